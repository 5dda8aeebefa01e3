"""The commands of this program; the gateway handles all others."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.protocol.client_frames import CommandLine
from gateway.protocol.slash_commands import parse_command
from plugins.support.suggestions import did_you_mean

OWN_COMMANDS = (
    CommandLine(
        name="switch", usage="/switch [KEY]", summary="Pick a conversation, or switch to KEY; a new KEY starts one."
    ),
    CommandLine(name="attach", usage="/attach PATH", summary="Attach a file to the next message; `@PATH` in it does, too."),
)

UNFOLDING = (
    "- `Ctrl-O`: Show the last tool call with its arguments, changes and output, or the model's reasoning; again, the one"
    " before it. While a tool runs or the model reasons: show that as it comes, or hide it."
)


def own_help() -> str:
    """Return the section that follows the gateway's answer to `/help`, in Markdown."""
    return "\n".join(["**In this terminal**", "", *(f"- {_line(command)}" for command in OWN_COMMANDS), UNFOLDING])


def own_help_of(name: str) -> str | None:
    """Return the help of one command, with or without its slash; None if it is not a command of this program."""
    wanted = name.strip().removeprefix("/").lower()
    return next((_line(command) for command in OWN_COMMANDS if command.name == wanted), None)


def own_hint(line: str, of_gateway: Sequence[CommandLine]) -> str | None:
    """Return a suggestion for an unknown command that resembles one of this program; None in all other cases."""
    typed, known = parse_command(line), {command.name for command in of_gateway}
    if typed is None or typed.name in known:
        return None
    if typed.name in ("exit", "quit", "bye"):
        return "Ctrl-D leaves."
    own = {command.name for command in OWN_COMMANDS}
    meant = did_you_mean(typed.name, [*known, *own], before="/")
    return f"There is no command /{typed.name}{meant}" if any(f"/{name}?" in meant for name in own) else None


def _line(command: CommandLine) -> str:
    return f"`{command.usage}`: {command.summary}"
