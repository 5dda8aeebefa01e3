"""The `/stop` command."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView


class Stop:
    """The `/stop` command, which cancels the running turn; waiting messages are still answered."""

    name: ClassVar[str] = "stop"
    usage: ClassVar[str] = "/stop"
    summary: ClassVar[str] = "Stop the current answer; waiting messages are still answered."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer whether a turn was stopped."""
        if argument:
            raise CommandFailed("/stop takes no argument.")
        return "Stopped." if conversation.stop_turn() else "Nothing was running."
