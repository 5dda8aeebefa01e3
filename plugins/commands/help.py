"""The `/help` command."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandHelp, CommandTime, ConversationView
from plugins.support.suggestions import did_you_mean


class Help:
    """The `/help` command, which lists all commands or explains one."""

    name: ClassVar[str] = "help"
    usage: ClassVar[str] = "/help [command]"
    summary: ClassVar[str] = "List the commands, or explain one."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with a line for each command, or for the one that `argument` names, with or without its slash."""
        commands = conversation.commands()
        if not argument:
            return "\n".join(["**Commands**", "", *(f"- {_line(command)}" for command in commands)])
        wanted = argument.removeprefix("/").lower()
        for command in commands:
            if command.name == wanted:
                return _line(command)
        meant = did_you_mean(wanted, [command.name for command in commands], before="/", mark="`") or "."
        raise CommandFailed(f"Unknown command{meant} `/help` lists all commands.")


def _line(command: CommandHelp) -> str:
    return f"`{command.usage}`: {command.summary}"
