"""Builds a gateway from the bottom up: storage, plugins, models, memory, facts, conversations."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from gateway.config.keys import Config, check_backend, check_condensers, check_embedding, check_providers
from gateway.config.settings import Settings
from gateway.conversations.channels import ChannelRunner
from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.context.loaded_notes import WorkspaceNotes
from gateway.conversations.facts.fact_extraction import FactExtraction
from gateway.conversations.facts.fact_store import facts_of
from gateway.conversations.notes.day_notes import DayNotes
from gateway.conversations.notes.memory_writer import MemoryWriter
from gateway.conversations.notes.workspace_memory import open_memory
from gateway.conversations.reply_delivery import ReplyDelivery
from gateway.conversations.routing.switchboard import Switchboard
from gateway.conversations.turn.tool_calls import OfferedTools
from gateway.metrics.counters import Counters
from gateway.metrics.process import LoopLag
from gateway.models.call import ModelCaller
from gateway.models.model_list_cache import CachedModelLists, load_model_lists
from gateway.models.providers import OpenProviders, open_chats, open_embeddings
from gateway.models.registry import ModelRegistry
from gateway.plugin_runtime.development import PluginDevelopment
from gateway.plugin_runtime.lifecycle import Lifecycle
from gateway.plugin_runtime.plugin_loading import OpenedPlugins, allowed_plugins, plugin_tables, unread_tables
from gateway.plugin_runtime.service_factory import PluginServiceFactory
from gateway.plugin_runtime.watchdog import Watchdog, read_last_block
from gateway.status.last_hour import LastHour
from gateway.status.problems import Problems
from gateway.support.home import Home
from gateway.support.storage import attachments_of
from gateway.support.version import VERSION
from gateway.wiring.factory import ConversationDependencies, ConversationFactory
from gateway.wiring.open_stores import open_catalog, open_log_stores
from gateway.wiring.systemd import before_watchdog
from plugins.api.chat import ChatProvider
from plugins.api.command import Command
from plugins.api.context import Clock, PluginContext, ProviderContext
from plugins.api.embedding import EmbeddingProvider
from plugins.api.plugin_services import PluginServices
from plugins.facts.facts import Facts
from plugins.host.hooks import Hooks
from plugins.host.loading import PluginFolder
from plugins.http.client import Transport
from plugins.memory.memory import Memory
from plugins.support import task_leaks
from plugins.support.secrets import hide_keys_of
from sessions.store.catalog import Catalog, SoleClaims
from sessions.store.protocols import Store

log = structlog.get_logger("exuvia")


@dataclass(frozen=True, kw_only=True)
class Application:
    """The parts of a gateway that its HTTP layer, reloading and shutdown use."""

    hooks: Hooks
    store: Store
    catalog: Catalog
    providers: OpenProviders[ChatProvider]
    embeddings: OpenProviders[EmbeddingProvider]
    models: ModelRegistry
    memory: Memory
    extraction: FactExtraction
    problems: Problems
    lag: LoopLag
    dependencies: ConversationDependencies
    switchboard: Switchboard
    last_hour: LastHour
    development: tuple[PluginDevelopment, ...]
    channels: ChannelRunner


@dataclass(frozen=True, kw_only=True)
class ApplicationBuilder:
    """Opens the parts of one gateway on `stack`, which closes them in reverse order.

    `began` is the start of the gateway on the clock's monotonic side, in seconds. The plugins in `folders` are loaded too.
    """

    stack: contextlib.AsyncExitStack
    home: Home
    settings: Settings
    clock: Clock
    counters: Counters
    began: float
    folders: tuple[PluginFolder, ...] = ()

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.settings.current

    async def build(self) -> Application:
        """Open everything and return it.

        Raises:
            ConfigRefused: The configuration names something that no plugin provides.
        """
        opened = self.stack.enter_async_context
        lag = self.stack.enter_context(LoopLag(self.counters.lag_seconds))
        stores = await opened(open_log_stores(self.home, self.counters.sync_seconds.observe))
        store, catalog = stores.sessions, await opened(open_catalog(self.home, stores.sessions))
        hooks = self._load_plugins()
        check(self.config, hooks)
        watchdog = self._start_watchdog(hooks)
        hide_keys_of(os.environ)  # plugins receive the environment
        transport = await opened(Transport())
        context = functools.partial(self._provider_context, transport=transport, reported=load_model_lists(self.home.models))
        providers = await opened(open_chats(hooks.chat_providers(), context))
        embeddings = await opened(open_embeddings(hooks.embedding_providers(), context))
        await asyncio.gather(providers.reconfigure(self.config), embeddings.reconfigure(self.config))
        models = ModelRegistry(providers, self.config.agent, now=self.clock.monotonic)
        caller = ModelCaller(self.counters, hold=providers.in_use)
        counted, backends = self.counters.count_embedded, hooks.memory_backends
        memory = await opened(open_memory(self.home, self.settings, embeddings, backends, self.clock, counted=counted))
        facts = await opened(facts_of(stores.facts, self.home, self.settings, self.clock))
        extraction = self._extraction(facts, store, catalog, models, caller)
        services = await opened(self._services(models, caller, embeddings, stores.of_plugin))

        def make_context(name: str, settings: Any) -> PluginContext:
            return self._plugin_context(name, settings, transport, services.of(name, memory, facts))

        opened_plugins, lifecycle = OpenedPlugins(hooks, make_context), Lifecycle(hooks, make_context)
        development = self._development(
            hooks, providers, embeddings, memory, opened_plugins=opened_plugins, lifecycle=lifecycle
        )

        day_notes = DayNotes(self.home.workspace(self.config.agent.workspace))

        def plugin_problems() -> list[str]:
            parts = (providers, embeddings, memory, facts, extraction, day_notes)
            found = [each for part in parts for each in part.problems()]
            found += channels.problems()
            return watchdog.problems() + found + [each for part in development for each in part.problems()]

        problems = Problems(
            catalog,
            self.counters,
            lag,
            models.breakers,
            unknown_fallbacks=models.unknown_fallbacks,
            plugin_problems=plugin_problems,
        )
        command_services = self._command_services(
            hooks,
            models,
            opened_plugins.commands,
            problems=problems,
            memory=memory,
            facts=facts,
            extraction=extraction,
            services=services,
        )
        channels = self._channels(hooks, make_context)
        delivery = ReplyDelivery(channels.opened, self.clock.now)
        dependencies = self._dependencies(
            hooks,
            models,
            providers,
            caller=caller,
            opened_plugins=opened_plugins,
            command_services=command_services,
            lifecycle=lifecycle,
            delivery=delivery,
            day_notes=day_notes,
        )
        switchboard = await opened(self._switchboard(store, catalog, dependencies))
        self.stack.push_async_callback(delivery.close)
        return Application(
            hooks=hooks,
            store=store,
            catalog=catalog,
            providers=providers,
            embeddings=embeddings,
            models=models,
            memory=memory,
            extraction=extraction,
            problems=problems,
            lag=lag,
            dependencies=dependencies,
            switchboard=switchboard,
            last_hour=LastHour(self.counters, lag, switchboard.load, self.clock),
            development=development,
            channels=channels,
        )

    def _services(
        self,
        models: ModelRegistry,
        caller: ModelCaller,
        embeddings: OpenProviders[EmbeddingProvider],
        store_of: Callable[[str], Store],
    ) -> PluginServiceFactory:
        return PluginServiceFactory(
            choose=models.choose,
            caller=caller,
            embedding=lambda: self.config.memory.embedding.chosen(embeddings),
            vectors_in_use=embeddings.in_use,
            store_of=store_of,
            now=self.clock.now,
        )

    def _load_plugins(self) -> Hooks:
        blocked = read_last_block(self.home.held_up)
        hooks = allowed_plugins(self.config, self.folders, but=blocked.plugin if blocked else "")
        if blocked is not None:
            hooks.refuse(blocked.plugin, "", f"it ended the gateway: {blocked.sentence()} The next restart tries it again")
        for warning in unread_tables(self.config, hooks):
            log.warning("configuration", warning=warning)
        for refusal in hooks.refused:
            log.error("plugin_refused", plugin=refusal.plugin, reason=refusal.sentence)
        return hooks

    def _start_watchdog(self, hooks: Hooks) -> Watchdog:
        """Watch the event loop, and track tasks, if third-party plugins are loaded."""
        limit = before_watchdog(self.config.plugins.hold_limit, os.environ)
        watchdog = Watchdog(hooks.third_party_modules, limit=limit, file=self.home.held_up)
        if hooks.third_party_modules():
            asyncio.get_running_loop().set_task_factory(task_leaks.task_factory)
            self.stack.enter_context(watchdog.awake())
        return watchdog

    def _development(
        self,
        hooks: Hooks,
        providers: OpenProviders[ChatProvider],
        embeddings: OpenProviders[EmbeddingProvider],
        memory: Memory,
        *,
        opened_plugins: OpenedPlugins,
        lifecycle: Lifecycle,
    ) -> tuple[PluginDevelopment, ...]:
        async def reloaded(name: str) -> None:
            await providers.reconfigure(self.config)
            await embeddings.reconfigure(self.config)
            opened_plugins.refresh()
            memory.wake()
            await lifecycle.started(only=name)

        return tuple(
            PluginDevelopment(
                folder,
                hooks,
                fit=plugin_tables(self.config),  # another table needs a restart
                check=lambda tried: check(self.config, tried),
                reloaded=reloaded,
            )
            for folder in self.folders
        )

    def _extraction(
        self, facts: Facts, store: Store, catalog: Catalog, models: ModelRegistry, caller: ModelCaller
    ) -> FactExtraction:
        return FactExtraction(
            facts,
            store,
            catalog,
            keys=lambda: self.config.memory.facts,
            language=lambda: self.config.agent.language,
            choose=models.choose,
            caller=caller,
            clock=self.clock,
        )

    def _dependencies(
        self,
        hooks: Hooks,
        models: ModelRegistry,
        providers: OpenProviders[ChatProvider],
        *,
        caller: ModelCaller,
        opened_plugins: OpenedPlugins,
        command_services: CommandServices,
        lifecycle: Lifecycle,
        delivery: ReplyDelivery,
        day_notes: DayNotes,
    ) -> ConversationDependencies:
        workspace = self.home.workspace(self.config.agent.workspace)
        return ConversationDependencies(
            settings=self.settings,
            clock=self.clock,
            hooks=hooks,
            models=models,
            caller=caller,
            providers=providers,
            tools=OfferedTools(opened_plugins.tools, self.settings),
            commands=opened_plugins.commands,
            attachments=attachments_of(self.home),
            notes=WorkspaceNotes(workspace),
            day_notes=day_notes,
            summarizers=opened_plugins.summarizers,
            flushes=opened_plugins.flushes,
            counters=self.counters,
            command_services=command_services,
            lifecycle=lifecycle,
            delivery=delivery,
        )

    def _channels(self, hooks: Hooks, make_context: Callable[[str, Any], PluginContext]) -> ChannelRunner:
        def context(channel: str) -> PluginContext:
            owner = hooks.owner("register_channels", channel)
            return make_context(owner, hooks.settings(owner))

        return ChannelRunner(hooks.channels(), context)

    def _switchboard(self, store: Store, catalog: Catalog, dependencies: ConversationDependencies) -> Switchboard:
        return Switchboard(
            store=store,
            catalog=catalog,
            claims=SoleClaims(catalog),
            build=ConversationFactory(dependencies).build,
            clock=self.clock,
            settings=self.settings,
        )

    def _command_services(
        self,
        hooks: Hooks,
        models: ModelRegistry,
        commands: Mapping[str, Command],
        *,
        problems: Problems,
        memory: Memory,
        facts: Facts,
        extraction: FactExtraction,
        services: PluginServiceFactory,
    ) -> CommandServices:
        return CommandServices(
            models=models,
            commands=commands,
            settings=self.settings,
            clock=self.clock,
            began=self.began,
            version=VERSION,
            hooks=hooks,
            problems=problems.sentences,
            memory=memory,
            facts=facts,
            fact_extraction=extraction,
            plugins_spent=services.spent,
            memory_writer=MemoryWriter(self.home.workspace(self.config.agent.workspace), memory, self.settings, self.clock),
        )

    def _provider_context(
        self, name: str, settings: Any, transport: Transport, reported: CachedModelLists
    ) -> ProviderContext:
        return ProviderContext(
            settings=settings,
            folder=self.home.plugins / name,
            workspace=self.home.workspace(self.config.agent.workspace),
            clock=self.clock,
            transport=transport,
            environment=os.environ,
            reported_models=reported.get(name),
        )

    def _plugin_context(self, name: str, settings: Any, transport: Transport, services: PluginServices) -> PluginContext:
        return PluginContext(
            settings=settings,
            folder=self.home.plugins / name,
            workspace=self.home.workspace(self.config.agent.workspace),
            clock=self.clock,
            transport=transport,
            environment=os.environ,
            services=services,
            protected=lambda: self.config.agent.protected_files,
        )


def check(config: Config, hooks: Hooks) -> None:
    """Check that plugins provide everything that a configuration names.

    Raises:
        ConfigRefused: No plugin provides it.
    """
    check_providers(config, hooks.chat_providers())
    check_embedding(config, hooks.embedding_providers())
    check_backend(config, hooks.memory_backends)
    check_condensers(config, hooks.summarizers(), hooks.flushes())
