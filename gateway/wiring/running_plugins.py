"""Opens what plugins run in and are served by: channels, MCP servers, the web tools, and the reloading of plugins."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import structlog

from gateway.config.keys import (
    Config,
    check_backend,
    check_embedding,
    check_providers,
    check_servers,
    check_summarizers,
    check_workspaces,
)
from gateway.conversations.channels.channel_instances import ChannelInstance, channel_instances
from gateway.conversations.channels.channel_runner import ChannelRunner
from gateway.plugin_runtime.development import PluginDevelopment
from gateway.plugin_runtime.lifecycle import Lifecycle
from gateway.plugin_runtime.plugin_loading import OpenedPlugins, allowed_plugins, plugin_tables, unread_tables
from gateway.plugin_runtime.service_factory import PluginServiceFactory
from gateway.plugin_runtime.watchdog import Watchdog, read_last_block
from gateway.protocol.slash_commands import command_help
from gateway.status.instruments import GatewayContext
from gateway.support.home import Home
from gateway.wiring.open_agents import AgentParts, Agents, SharedParts, plugin_context
from gateway.wiring.systemd import before_watchdog
from plugins.api.context import PluginContext
from plugins.host.hooks import Hooks
from plugins.host.loading import PluginFolder
from plugins.mcp.mcp_client import McpClient
from plugins.support import task_leaks
from plugins.tools.web.web_tools import WebTools

log = structlog.get_logger("exuvia")


class RunningPlugins(msgspec.Struct, frozen=True, kw_only=True):
    """The loaded plugins, and the parts that run or serve them."""

    hooks: Hooks
    services: PluginServiceFactory
    opened: OpenedPlugins
    lifecycle: Lifecycle
    channels: ChannelRunner
    mcp: McpClient
    development: tuple[PluginDevelopment, ...]
    web: WebTools

    def problems(self) -> list[str]:
        """Return the problems of all parts, as sentences."""
        developed = [sentence for each in self.development for sentence in each.problems()]
        return [*self.channels.problems(), *self.mcp.problems(), *developed]


def load_plugins(context: GatewayContext, folders: tuple[PluginFolder, ...]) -> Hooks:
    """Load the plugins that the configuration allows, and those in `folders`; log those that are refused."""
    config, blocked = context.config, read_last_block(context.home.held_up)
    hooks = allowed_plugins(config, folders, but=blocked.plugin if blocked else "")
    if blocked is not None:
        hooks.refuse(blocked.plugin, "", f"it ended the gateway: {blocked.sentence()} The next restart tries it again")
    for warning in unread_tables(config, hooks):
        log_warning(warning)
    for refusal in hooks.refused:
        log.error("plugin_refused", plugin=refusal.plugin, reason=refusal.sentence)
    return hooks


def start_watchdog(stack: contextlib.AsyncExitStack, context: GatewayContext, hooks: Hooks) -> Watchdog:
    """Watch the event loop, and track tasks, if third-party plugins are loaded."""
    limit = before_watchdog(context.config.plugins.hold_limit, os.environ)
    watchdog = Watchdog(hooks.third_party_modules, limit=limit, file=context.home.held_up)
    if hooks.third_party_modules():
        asyncio.get_running_loop().set_task_factory(task_leaks.task_factory)
        stack.enter_context(watchdog.awake())
    return watchdog


async def open_plugins(
    stack: contextlib.AsyncExitStack, shared: SharedParts, agents: Agents, folders: Sequence[PluginFolder]
) -> RunningPlugins:
    """Open what runs or serves the plugins on `stack`. Channels and hooks have the memory and the workspace of `main`."""
    context, hooks, main = shared.context, shared.hooks, agents.main
    make_context = partial(plugin_context, shared, context, main.knowledge)
    lifecycle = Lifecycle(hooks, make_context)
    channels = ChannelRunner(_channel_contexts(shared, main), context.clock.now, shared.stores.leases)
    await channels.reconfigure(channel_instances(context.config, hooks, log_warning))

    async def reloaded(name: str) -> None:
        await channels.reconfigure(channel_instances(context.config, hooks))
        await shared.models.open_providers(context.config)
        agents.reload_plugins()
        await lifecycle.started(only=name)

    development = tuple(
        PluginDevelopment(
            folder,
            hooks,
            fit=plugin_tables(context.config),  # another table needs a restart
            check=lambda tried: check(context.config, tried, context.home),
            reloaded=reloaded,
        )
        for folder in folders
    )
    mcp = McpClient(
        log=shared.services.of("mcp", main.knowledge.memory, main.knowledge.facts).log,
        workspace=context.workspace,
        folder=context.home.mcp_logins,
        sandbox_level=lambda: context.config.sandbox.level,
        window=shared.models.window,
        environment=os.environ,
        reserved=lambda: main.opened.tools,
    )
    stack.push_async_callback(mcp.close)
    web = WebTools(
        lambda: context.config.tools.fetch,
        lambda: context.config.tools.search,
        clock=context.clock,
        transport=shared.transport,
        environment=os.environ,
    )
    return RunningPlugins(
        hooks=hooks,
        services=shared.services,
        opened=main.opened,
        lifecycle=lifecycle,
        channels=channels,
        mcp=mcp,
        development=development,
        web=await stack.enter_async_context(web),
    )


def _channel_contexts(shared: SharedParts, main: AgentParts) -> Callable[[ChannelInstance], PluginContext]:
    hooks, make_context = shared.hooks, partial(plugin_context, shared, shared.context, main.knowledge)

    def channel_context(channel: ChannelInstance) -> PluginContext:
        if channel.settings is None:
            owner = hooks.owner("register_channels", channel.name)
            return msgspec.structs.replace(make_context(owner, hooks.settings(owner)), name=channel.name)
        return msgspec.structs.replace(
            make_context(f"channels.{channel.name}", channel.settings),
            name=channel.name,
            folder=shared.context.home.channels / channel.name,
            commands=lambda: command_help(main.opened.commands),
        )

    return channel_context


def log_warning(sentence: str) -> None:
    """Log a warning about the configuration."""
    log.warning("configuration", warning=sentence)


def check(config: Config, hooks: Hooks, home: Home) -> None:
    """Check that plugins provide everything that a configuration names, and that the workspaces of agents are apart. Blocks.

    Raises:
        ConfigRefused: Something cannot be used.
    """
    check_providers(config, hooks.chat_providers())
    check_embedding(config, hooks.embedding_providers())
    check_backend(config, hooks.memory_backends)
    check_summarizers(config, hooks.summarizers(), hooks.flushes())
    check_servers(config)
    check_workspaces(config, home.root)
    channel_instances(config, hooks)
