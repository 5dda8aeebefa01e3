"""`/verbose`: whether the chat shows what happens beside the conversation."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView


class Verbose:
    """Shows or changes how much clients show of a turn: the tools it runs, what it cost, what was compacted."""

    name: ClassVar[str] = "verbose"
    usage: ClassVar[str] = "/verbose [on|off|default]"
    summary: ClassVar[str] = "Show tools, tokens and compactions in the chat, or not."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer what is in force; with `on`, `off` or `default` change it. CommandFailed for anything else."""
        if argument not in ("", "on", "off", "default"):
            raise CommandFailed("Write /verbose on, /verbose off or /verbose default.")
        if argument:
            await conversation.choose_verbose({"on": True, "off": False}.get(argument))
        return "Verbose is on." if conversation.verbose() else "Verbose is off."
