"""`/stop`: an end to the running turn."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView


class Stop:
    """Cancels the turn that runs; what waits behind it stays."""

    name: ClassVar[str] = "stop"
    usage: ClassVar[str] = "/stop"
    summary: ClassVar[str] = "Stop the answer that is being made; messages that wait are still answered."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Say whether something was stopped; CommandFailed, with nothing stopped, where anything follows the name."""
        if argument:
            raise CommandFailed("/stop takes nothing after it.")
        return "Stopped." if conversation.stop_turn() else "Nothing was running."
