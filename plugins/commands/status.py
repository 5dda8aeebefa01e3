"""The commands `/status` and `/whoami`."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView
from plugins.commands.markdown import code


class Status:
    """The `/status` command, which shows the state of the session and of the gateway."""

    name: ClassVar[str] = "status"
    usage: ClassVar[str] = "/status"
    summary: ClassVar[str] = "Show the session's state: model, tokens, context, queue."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the gateway's status."""
        if argument:
            raise CommandFailed("/status takes no argument.")
        return conversation.status()


class Whoami:
    """The `/whoami` command, which shows the person that the gateway identified."""

    name: ClassVar[str] = "whoami"
    usage: ClassVar[str] = "/whoami"
    summary: ClassVar[str] = "Show who you are to the gateway, and the current session."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the person, client, channel, session key and session id."""
        if argument:
            raise CommandFailed("/whoami takes no argument.")
        facts = {
            "Person": conversation.person,
            "Client": conversation.client,
            "Channel": conversation.channel,
            "Session": conversation.key,
            "Session id": conversation.session,
        }
        return "\n".join(f"- {name}: {code(value) if value else 'unknown'}" for name, value in facts.items())
