"""The commands `/new` and `/reset`."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandTime, ConversationView
from plugins.commands.markdown import code


class New:
    """The `/new` command, which starts a new session under the same key."""

    name: ClassVar[str] = "new"
    usage: ClassVar[str] = "/new"
    summary: ClassVar[str] = "Start a new session; the old one is kept."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the new session's id.

        Any argument is ignored: later messages already wait for the new session, so the command may not fail because of its
        form.
        """
        return f"Started a new session: {code(await conversation.start_anew())}. The old one is kept."


class Reset(New):
    """The `/reset` command, an alias of `/new`."""

    name: ClassVar[str] = "reset"
    usage: ClassVar[str] = "/reset"
    summary: ClassVar[str] = "The same as /new."
