"""`/compact`, `/compactions`, `/revert`: what was said before, summarised; what was summarised; and back again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, CompactionEntry, ConversationView
from plugins.commands.markdown import code, one_line

LISTED = 20
"""How many compactions are listed."""

NAMED = 8
"""How many identifiers are named of those that were kept, and of those that were lost."""


class Compact:
    """Summarises all but the newest messages."""

    name: ClassVar[str] = "compact"
    usage: ClassVar[str] = "/compact [focus]"
    summary: ClassVar[str] = "Summarise what was said so far; say behind it what matters."
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the summary; CommandFailed where nothing was changed."""
        made = await conversation.compact(argument)
        lines = [
            "**Compact Complete!**",
            "",
            f"- Messages compacted: {made.messages}",
            "**Compressed Summary:**",
            made.summary,
        ]
        return "\n".join([*lines, "- Summary task started in background"] if made.noted else lines)


class Compactions:
    """Lists them, and what is in force."""

    name: ClassVar[str] = "compactions"
    usage: ClassVar[str] = "/compactions"
    summary: ClassVar[str] = "List what was summarised, when, why, and what was kept of it."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the last of them; CommandFailed where anything follows the name."""
        if argument:
            raise CommandFailed("/compactions takes nothing after it.")
        entries = await conversation.compactions(LISTED)
        if not entries:
            return "Nothing was compacted in this session yet."
        told = (_told(entry, conversation.local(entry.at)) for entry in entries)
        return "\n\n".join(told)  # a line right below a list would belong to its last point


class Revert:
    """Takes one back, and those on top of it."""

    name: ClassVar[str] = "revert"
    usage: ClassVar[str] = "/revert N"
    summary: ClassVar[str] = "Show the model again what compaction N had summarised."
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the size of what the model is shown now; CommandFailed where that is not possible."""
        if not (argument.isascii() and argument.isdecimal()) or len(argument) > 9:
            raise CommandFailed("/revert takes the number of a compaction; /compactions lists them.")
        number = int(argument)
        made = [entry.number for entry in await conversation.compactions(LISTED) if entry.in_force]
        tokens = await conversation.revert(number)
        others = ", ".join(str(other) for other in made if other > number)
        taken = f"Compaction {number} is taken back{f', and with it {others}, made on top of it' if others else ''}"
        return f"{taken}: the next request has about {tokens:,} tokens."


def _told(entry: CompactionEntry, at: datetime) -> str:
    lines = [
        f"**{entry.number}** {at:%Y-%m-%d %H:%M %Z} ({entry.why}): {entry.messages} messages, {entry.tokens_before:,} →"
        f" {entry.tokens_after:,} tokens, by {entry.by}{'' if entry.in_force else ', taken back'}"
    ]
    lines += [_identifiers(what, found) for what, found in (("kept", entry.kept), ("lost", entry.lost)) if found]
    if entry.failed:
        lines.append(f"- the model's own summary was not taken: {one_line(entry.failed, 300)}")
    return "\n".join(lines)


def _identifiers(what: str, found: Sequence[str]) -> str:
    named = ", ".join(map(code, found[:NAMED]))
    return f"- {what} {len(found)} identifier{'' if len(found) == 1 else 's'}: {named}{', …' if len(found) > NAMED else ''}"
