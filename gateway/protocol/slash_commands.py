"""Slash commands: recognise and parse them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from plugins.api.command import Command, CommandHelp

_COMMAND = re.compile(r"\A/([a-z][a-z0-9_]{0,31})(?:\s+(.*))?\Z", re.DOTALL)

_OPENS_SESSION = frozenset({"new", "reset"})

_OPENS_WITH_ARGUMENT = frozenset({"agent"})


class TypedCommand(msgspec.Struct, frozen=True):
    """A command as it was typed: its name without the slash, and its argument."""

    name: str
    argument: str

    @property
    def opens_session(self) -> bool:
        """Return True if the command opens the key's next session, or refuses to."""
        return self.always_opens_session or (self.name in _OPENS_WITH_ARGUMENT and bool(self.argument))

    @property
    def always_opens_session(self) -> bool:
        """Return True if the command opens the key's next session whatever its argument is."""
        return self.name in _OPENS_SESSION

    @property
    def is_urgent(self) -> bool:
        """Return True if the command overtakes those that wait."""
        return self.name == "stop"


def command_help(commands: Mapping[str, Command]) -> list[CommandHelp]:
    """Return all commands as `/help` and clients list them, by name."""
    ordered = sorted(commands.values(), key=lambda command: command.name)
    return [CommandHelp(name=c.name, usage=c.usage, summary=c.summary) for c in ordered]


def parse_command(text: str) -> TypedCommand | None:
    """Return the command in a message, or None for an ordinary message. `/usr/bin` and `/ hello` are ordinary."""
    match = _COMMAND.match(text.strip())
    return TypedCommand(match[1], (match[2] or "").strip()) if match else None
