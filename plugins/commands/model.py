"""`/model`: which model answers, and another one from the next turn on."""

from __future__ import annotations

import re
from typing import ClassVar

from plugins.command_contract import CommandFailed, CommandTime, ConversationView
from plugins.commands.markdown import code

_NAMED = re.compile(r"[^\s:]+:\S+")


class Model:
    """Shows or changes the session's model."""

    name: ClassVar[str] = "model"
    usage: ClassVar[str] = "/model [provider:model]"
    summary: ClassVar[str] = (
        "Show which model answers and why, or change it; `/model default` returns to the configured one."
    )
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Without an argument: what is in use, why, and how to change it. With `provider:model`, `auto` or `default`:
        change it. Raises CommandFailed for anything else, and for a provider that there is not."""
        if not argument:
            return _shown(conversation)
        if argument == "default":
            return f"From the next turn on: {await conversation.choose_model(None)}"
        if argument != "auto" and not _NAMED.fullmatch(argument):
            raise CommandFailed("Write /model provider:model, such as /model openai:gpt-4.1, or /model default.")
        return f"From the next turn on: {await conversation.choose_model(argument)}"


def _shown(conversation: ConversationView) -> str:
    names = ", ".join(code(name) for name in conversation.models()) or "none"
    return "\n".join(
        [
            f"- In use: {conversation.model()}",
            f"- Ready to answer: {names}",
            "- To change it for this session: `/model provider:model`; back to the configured one: `/model default`",
        ]
    )
