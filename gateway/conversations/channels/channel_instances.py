"""The channels that a configuration names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.config.keys import Config, unknown_name
from gateway.config.validation import Validator
from gateway.support.errors import ConfigRefused
from plugins.api.channel import Channel
from plugins.api.context import NoSettings
from plugins.host.hooks import Hooks
from plugins.host.loading import built_in_channels, channel_kinds
from plugins.host.validation import channel_settings

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class ChannelInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A channel to be opened: its name and its class, and its settings if the class is a kind (see `Channel`)."""

    name: str
    kind: type[Channel]
    settings: Any = None


def channel_instances(
    config: Config, hooks: Hooks, warn: Callable[[str], None] = lambda _: None
) -> dict[str, ChannelInstance]:
    """Return the channels of a configuration by name: one for each class without `Settings`, and one for each table
    `[channels.NAME]`, secrets resolved. A table may have the name of such a class, for the keys that the gateway reads.

    Args:
        hooks: The plugins. A built-in channel that is not loaded yet is imported, which blocks.
        warn: Called with sentences about values that are accepted and discouraged.

    Raises:
        ConfigRefused: A table is invalid, or its kind does not exist; the message names the key.
    """
    kinds = channel_kinds(hooks, {keys.kind for keys in config.channels.values()})
    alone = {name for name, kind in kinds.items() if channel_settings(kind) is None}
    instances = {name: ChannelInstance(name=name, kind=kinds[name]) for name in alone}
    for name, keys in config.channels.items():
        kind = kinds.get(keys.kind)
        if kind is None:
            raise unknown_name(config, f"channels.{name}.kind", keys.kind, sorted({*kinds, *built_in_channels()}))
        if reason := _fault(name, kind, alone):
            key = f"channels.{name}"
            raise ConfigRefused(f"{config.sources.place(key)}: {key} {reason}.", key=key)
        validator = Validator(config.sources, config.references)
        settings = validator.fit(keys.settings, channel_settings(kind) or NoSettings, f"channels.{name}")
        for warning in validator.warnings:
            warn(warning)
        if name not in alone:
            instances[name] = ChannelInstance(name=name, kind=kind, settings=settings)
    return instances


def _fault(name: str, kind: type[Channel], alone: set[str]) -> str:
    """Return why a channel of this kind cannot have this name, as the end of a sentence; "" if it can."""
    if not _NAME.fullmatch(name):
        return "is not a name for a channel: lower-case letters, digits, _ and -, beginning with a letter, up to 32"
    if kind.name in alone and name != kind.name:
        return f"is of a kind that is opened once, under its own name; call the table channels.{kind.name}"
    if name in alone and name != kind.name:
        return "has the name of a channel that a plugin opens; choose another one"
    return ""
