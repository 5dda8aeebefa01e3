"""What this program does itself; everything else that begins with a slash is the gateway's."""

from __future__ import annotations

from gateway.terminal.frames import CommandLine

OWN_COMMANDS = (
    CommandLine(name="switch", usage="/switch KEY", summary="Go on in another conversation, or begin it."),
    CommandLine(name="attach", usage="/attach PATH", summary="Send a file along with the next message."),
)


def own_help() -> str:
    """What stands below the gateway's answer to `/help`, in Markdown."""
    return "\n".join(["**In this terminal**", "", *(f"- {_line(command)}" for command in OWN_COMMANDS)])


def own_help_of(name: str) -> str | None:
    """What `/help NAME` answers, with or without the slash of the name; None if the gateway must answer it."""
    wanted = name.strip().removeprefix("/").lower()
    return next((_line(command) for command in OWN_COMMANDS if command.name == wanted), None)


def _line(command: CommandLine) -> str:
    return f"`{command.usage}`: {command.summary}"
