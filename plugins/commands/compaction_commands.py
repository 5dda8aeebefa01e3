"""The commands `/compact`, `/compactions` and `/revert`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, CompactionEntry, ConversationView
from plugins.commands.markdown import code, one_line

MAX_COMPACTIONS = 20
"""Maximum compactions listed."""

MAX_IDENTIFIERS = 8
"""Maximum identifiers listed as kept, and as lost."""


class Compact:
    """The `/compact` command, which summarises all but the newest messages."""

    name: ClassVar[str] = "compact"
    usage: ClassVar[str] = "/compact [focus]"
    summary: ClassVar[str] = "Summarise the conversation so far. Optionally add what to focus on."
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the summary; raise CommandFailed if nothing was changed."""
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
    """The `/compactions` command, which lists the compactions of the session."""

    name: ClassVar[str] = "compactions"
    usage: ClassVar[str] = "/compactions"
    summary: ClassVar[str] = "List the compactions: when, why, and what they kept."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the latest compactions."""
        if argument:
            raise CommandFailed("/compactions takes no argument.")
        entries = await conversation.compactions(MAX_COMPACTIONS)
        if not entries:
            return "This session has no compactions yet."
        formatted = (_format_entry(entry, conversation.local(entry.at)) for entry in entries)
        return "\n\n".join(formatted)  # Markdown would attach a line right below a list to its last item


class Revert:
    """The `/revert` command, which reverts a compaction and those built on it."""

    name: ClassVar[str] = "revert"
    usage: ClassVar[str] = "/revert N"
    summary: ClassVar[str] = "Show the model the original messages of compaction N again."
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the size of the next request; raise CommandFailed if the compaction cannot be reverted."""
        if not (argument.isascii() and argument.isdecimal()) or len(argument) > 9:
            raise CommandFailed("/revert takes the number of a compaction; /compactions lists them.")
        number = int(argument)
        made = [entry.number for entry in await conversation.compactions(MAX_COMPACTIONS) if entry.in_force]
        tokens = await conversation.revert(number)
        others = ", ".join(str(other) for other in made if other > number)
        reverted = f"Reverted compaction {number}{f' and {others}, which built on it' if others else ''}"
        return f"{reverted}: the next request has about {tokens:,} tokens."


def _format_entry(entry: CompactionEntry, at: datetime) -> str:
    lines = [
        f"**{entry.number}** {at:%Y-%m-%d %H:%M %Z} ({entry.why}): {entry.messages} messages, {entry.tokens_before:,} →"
        f" {entry.tokens_after:,} tokens, by {entry.by}{'' if entry.in_force else ', reverted'}"
    ]
    lines += [_identifiers(what, found) for what, found in (("kept", entry.kept), ("lost", entry.lost)) if found]
    if entry.failed:
        lines.append(f"- the model's summary was rejected: {one_line(entry.failed, 300)}")
    return "\n".join(lines)


def _identifiers(what: str, found: Sequence[str]) -> str:
    named = ", ".join(map(code, found[:MAX_IDENTIFIERS]))
    more = ", …" if len(found) > MAX_IDENTIFIERS else ""
    return f"- {what} {len(found)} identifier{'' if len(found) == 1 else 's'}: {named}{more}"
