"""The `/verbose` command."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView


class Verbose:
    """The `/verbose` command, which shows or changes how much clients show of a turn: tools, tokens and compactions."""

    name: ClassVar[str] = "verbose"
    usage: ClassVar[str] = "/verbose [on|off|default]"
    summary: ClassVar[str] = "Show tools, tokens and compactions in the chat, or hide them."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the current setting, after changing it if the argument is `on`, `off` or `default`."""
        if argument not in ("", "on", "off", "default"):
            raise CommandFailed("Write /verbose on, /verbose off or /verbose default.")
        if argument:
            await conversation.choose_verbose({"on": True, "off": False}.get(argument))
        return "Verbose is on." if conversation.verbose() else "Verbose is off."
