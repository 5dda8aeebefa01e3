"""`/status` and `/whoami`: what is going on, and who is asking."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView
from plugins.commands.markdown import code


class Status:
    """Shows the state of the session and of the gateway."""

    name: ClassVar[str] = "status"
    usage: ClassVar[str] = "/status"
    summary: ClassVar[str] = "Show the session's state: model, tokens, context, queue."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the gateway's own account; CommandFailed where anything follows the name."""
        if argument:
            raise CommandFailed("/status takes nothing after it.")
        return conversation.status()


class Whoami:
    """Says who the gateway takes the person for."""

    name: ClassVar[str] = "whoami"
    usage: ClassVar[str] = "/whoami"
    summary: ClassVar[str] = "Say who you are here, and which session this is."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with person, client, channel, session key and session id."""
        if argument:
            raise CommandFailed("/whoami takes nothing after it.")
        facts = {
            "Person": conversation.person,
            "Client": conversation.client,
            "Channel": conversation.channel,
            "Session": conversation.key,
            "Session id": conversation.session,
        }
        return "\n".join(f"- {name}: {code(value) if value else 'not given'}" for name, value in facts.items())
