"""`/new` and `/reset`, the same: a fresh session under the same key."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandTime, ConversationView
from plugins.commands.markdown import code


class New:
    """Opens the key's next session; the old one stays in its journal."""

    name: ClassVar[str] = "new"
    usage: ClassVar[str] = "/new"
    summary: ClassVar[str] = "Begin a new session; the old one is kept."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the new session's id. What follows the name is not looked at: later messages wait for the new
        session from the moment this command arrived, so it may not be refused for its form."""
        return f"A new session has begun: {code(await conversation.start_anew())}. The old one is kept."


class Reset(New):
    """The same under its other name."""

    name: ClassVar[str] = "reset"
    usage: ClassVar[str] = "/reset"
    summary: ClassVar[str] = "The same as /new."
