"""`/tides`: whose sea the tool looks at."""

from __future__ import annotations

from typing import ClassVar

from exuvia import CommandFailed, CommandTime, ConversationView


class Tides:
    """See the module. `harbour` is set when the gateway has started."""

    name: ClassVar[str] = "tides"
    usage: ClassVar[str] = "/tides"
    summary: ClassVar[str] = "Say whose tides are told."
    when: ClassVar[CommandTime] = "now"
    harbour: ClassVar[str] = "nowhere"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """The answer."""
        if argument:
            raise CommandFailed("/tides takes no argument.")
        return f"The tides are those of **{self.harbour}**."
