"""Checks of channels: each one is opened, asked as whom it is logged in, and closed again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gateway.config.keys import Config
from gateway.conversations.channels.channel_instances import channel_instances
from gateway.conversations.channels.channel_probe import CheckedChannel, check_closed
from gateway.doctor.findings import DoctorContext, Finding
from gateway.plugin_runtime.plugin_loading import allowed_plugins
from gateway.support.clock import SystemClock
from gateway.support.errors import ConfigRefused
from gateway.support.home import Home
from plugins.api.context import PluginContext
from plugins.host.hooks import Hooks
from plugins.http.client import Transport

MEND = "See docs/channels.md for this kind; `exuvia channels check NAME` tries it again."


def channels(context: DoctorContext) -> Sequence[Finding]:
    """Report the channels that cannot be opened."""
    config = context.config
    if config is None or context.offline or not (config.channels or config.plugins.allow):
        return ()
    try:
        checked = asyncio.run(check_channels(config, context.home, context.environment))
    except ConfigRefused:  # reported by the check of the configuration
        return ()
    return findings_of(checked)


def findings_of(checked: Sequence[CheckedChannel]) -> Sequence[Finding]:
    """Return a finding for each channel that did not pass its check."""
    return [Finding(f"The channel {each.name!r} is not available: {each.says}", MEND) for each in checked if not each.ok]


async def check_channels(
    config: Config, home: Home, environment: Mapping[str, str], names: Collection[str] = ()
) -> list[CheckedChannel]:
    """Open, check and close the channels of a configuration, or those named. No gateway may run, since a service may allow
    one connection only.

    Raises:
        ConfigRefused: The configuration of a channel is invalid.
    """
    from plugins.testing.contexts import in_memory_services  # noqa: PLC0415 - a check leaves nothing in memory or facts

    hooks = await asyncio.to_thread(allowed_plugins, config)
    instances = await asyncio.to_thread(channel_instances, config, hooks)
    async with Transport() as transport:
        checked = []
        for name, instance in instances.items():
            if names and name not in names:
                continue
            settings, folder = instance.settings, home.channels / name
            if settings is None:
                settings, folder = _of_plugin(hooks, home, name)
            context = PluginContext(
                settings=settings,
                folder=folder,
                workspace=home.workspace(config.agent.workspace),
                clock=SystemClock(),
                transport=transport,
                environment=environment,
                services=in_memory_services(),
                name=name,
            )
            checked.append(check_closed(instance, context))
        return list(await asyncio.gather(*checked))


def _of_plugin(hooks: Hooks, home: Home, channel: str) -> tuple[object, Path]:
    """Return the settings and the folder of the plugin that provides a channel."""
    owner = hooks.owner("register_channels", channel)
    return hooks.settings(owner), home.plugins / owner
