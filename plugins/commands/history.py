"""`/history`: the last messages at a glance."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView, HistoryEntry
from plugins.commands.markdown import one_line

USUAL, MOST = 10, 100
"""How many messages are shown when no number is given, and at most."""

LENGTH = 500
"""Characters of each message that are shown."""


class History:
    """Shows the last messages of the session, each on one line."""

    name: ClassVar[str] = "history"
    usage: ClassVar[str] = "/history [n] [all]"
    summary: ClassVar[str] = f"Show the last {USUAL} messages, or the last n, at most {MOST}; `all` shows commands too."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the messages, oldest first; `argument` is how many, CommandFailed unless it is 1 to 100, and `all`
        where commands and their answers are wanted."""
        *words, last = argument.lower().split() or [""]
        commands = last == "all"
        entries = await conversation.history(_count(" ".join(words if commands else [*words, last])), commands=commands)
        return "\n".join(_line(entry, conversation.local(entry.at)) for entry in entries) or "Nothing has been said yet."


def _count(argument: str) -> int:
    if not argument:
        return USUAL
    # isascii before int: other scripts' digits and underscores are numbers to Python, not to a reader of the usage.
    if argument.isascii() and argument.isdigit() and len(argument) <= 3 and 1 <= int(argument) <= MOST:
        return int(argument)
    raise CommandFailed(f"Write /history, or /history and a number from 1 to {MOST}; `all` at the end shows commands too.")


def _line(entry: HistoryEntry, at: datetime) -> str:
    return f"- {at:%Y-%m-%d %H:%M:%S %Z} **{entry.who}**: {one_line(entry.text, LENGTH) or '(nothing)'}"
