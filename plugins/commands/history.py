"""The `/history` command."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView, HistoryEntry
from plugins.commands.markdown import one_line

USUAL, MOST = 10, 100
"""Number of messages shown by default, and the maximum."""

MAX_CHARACTERS = 500
"""Maximum characters shown of a message."""


class History:
    """The `/history` command, which shows the last messages of the session, one per line."""

    name: ClassVar[str] = "history"
    usage: ClassVar[str] = "/history [n] [all]"
    summary: ClassVar[str] = f"Show the last {USUAL} messages, or the last n, at most {MOST}; `all` shows commands too."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the last messages, oldest first.

        The argument is an optional number from 1 to 100, followed by an optional `all` to include commands and their
        answers.
        """
        *words, last = argument.lower().split() or [""]
        commands = last == "all"
        entries = await conversation.history(_count(" ".join(words if commands else [*words, last])), commands=commands)
        return "\n".join(_line(entry, conversation.local(entry.at)) for entry in entries) or "There are no messages yet."


def _count(argument: str) -> int:
    if not argument:
        return USUAL
    # isascii: int() also accepts underscores and the digits of other scripts.
    if argument.isascii() and argument.isdigit() and len(argument) <= 3 and 1 <= int(argument) <= MOST:
        return int(argument)
    raise CommandFailed(f"Write /history, or /history and a number from 1 to {MOST}; `all` at the end shows commands too.")


def _line(entry: HistoryEntry, at: datetime) -> str:
    return f"- {at:%Y-%m-%d %H:%M:%S %Z} **{entry.who}**: {one_line(entry.text, MAX_CHARACTERS) or '(empty)'}"
