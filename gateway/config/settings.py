"""The configuration in force: one immutable value at a time, which whoever begins a turn asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gateway.config.keys import Config, Sections

AFTER_RESTART = (
    "gateway.host",
    "gateway.port",
    "gateway.allowed_hosts",
    "gateway.allowed_origins",
    "agent.workspace",
    "plugins.allow",
    "plugins.hold_limit",
    "plugins.tables",
)
"""The keys that take effect only when the gateway starts: sockets, folders and modules are opened once. A whole section may
stand here too."""


class Settings:
    """Holds the configuration in force. What was read later is `offered`; keys that wait for a restart keep their old values
    in `current`."""

    def __init__(self, config: Config) -> None:
        self.current = config
        self.fault: str | None = None
        """Why what stands in the file now is not in force, as a sentence."""
        self.waiting: tuple[str, ...] = ()
        """The keys whose new values wait for a restart."""

    def offer(self, config: Config) -> set[str]:
        """Put a configuration in force as far as that can be done while running; returns the keys that changed by it."""
        before = self.current
        self.waiting = tuple(key for key in AFTER_RESTART if _at(before, key) != _at(config, key))
        for key in self.waiting:
            config = _with(config, key, _at(before, key))
        self.current = config
        self.fault = None
        return changes(before, config)

    def notes(self) -> list[str]:
        """What an operator should know, as sentences for `/status`."""
        notes = [] if self.fault is None else [f"The configuration before the last change is in force: {self.fault}"]
        return notes + ([waiting_sentence(self.waiting)] if self.waiting else [])


def waiting_sentence(keys: tuple[str, ...]) -> str:
    """That these keys wait for a restart."""
    return f"A restart will put into force what changed in {', '.join(keys)}."


def changes(before: Sections, after: Sections) -> set[str]:
    """The paths of the keys that have other values, or stand in one of the two only."""
    old, new = (dict(leaves(sections)) for sections in (before, after))
    return {key for key in old.keys() | new.keys() if key not in old or key not in new or old[key] != new[key]}


def leaves(sections: Sections) -> Iterator[tuple[str, Any]]:
    """Every key of the sections with its value."""
    for name in Sections.__struct_fields__:
        yield from _leaves(getattr(sections, name), name)


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, msgspec.Struct):
        value = {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}")
    else:
        yield key, value


def _at(sections: Sections, key: str) -> Any:
    value: Any = sections
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _with(config: Config, key: str, value: Any) -> Config:
    section, _, name = key.partition(".")
    inner = msgspec.structs.replace(getattr(config, section), **{name: value}) if name else value
    return msgspec.structs.replace(config, **{section: inner})
