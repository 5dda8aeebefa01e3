"""`/remember` and `/memory`: into the memory, and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView, MemoryReport
from plugins.api.facts.fact_errors import FactsError
from plugins.api.facts.fact_values import Fact
from plugins.commands.facts_commands import told
from plugins.commands.markdown import code, one_line

FACTS = 12
"""Facts of each kind that are listed."""

LENGTH = 300
"""Characters of what was found that are shown."""


class Remember:
    """Writes something into the notes at once."""

    name: ClassVar[str] = "remember"
    usage: ClassVar[str] = "/remember TEXT"
    summary: ClassVar[str] = "Write TEXT into the notes; it is found from now on."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with where it stands; CommandFailed where nothing is given, or it cannot be written."""
        if not argument:
            raise CommandFailed("Write /remember and what is to be remembered.")
        return f"Remembered: {code(await conversation.remember(argument))}."


class Memory:
    """Shows what is remembered, or searches it."""

    name: ClassVar[str] = "memory"
    usage: ClassVar[str] = "/memory [QUERY]"
    summary: ClassVar[str] = "Show what is remembered, or what the memory has for QUERY."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the notes that changed last, or with what was found, best first."""
        if not argument:
            report = await conversation.memory()
            return "\n".join([_shown(report), *await _facts(conversation, report.today)])
        found = await conversation.search_memory(argument)
        lines = [f"- {code(place)} {one_line(text.lstrip('-*+ '), LENGTH)}" for place, text in found.hits]
        return "\n".join([*(lines or ["Nothing was found."]), *(f"\n{remark}" for remark in found.remarks)])


def _shown(report: MemoryReport) -> str:
    counts = _count(report.notes, "note"), _count(report.sessions, "session"), _count(report.chunks, "piece")
    head = f"**Memory**: {', '.join(counts)}; found {report.how}."
    lines = [f"- {code(note.path)}, {note.bytes:,} bytes, changed {note.changed}" for note in report.latest]
    return "\n".join([head, *([""] if lines else []), *lines, *(f"\n{remark}" for remark in report.remarks)])


async def _facts(conversation: ConversationView, today: date | None) -> list[str]:
    """The facts of the daily log, the newest first and those of today apart, but for those that one of the others stands
    for; then of those that stay the pins and the most important."""
    try:
        found = await conversation.facts.listed()
    except FactsError as error:
        return ["", str(error)]
    kept_of = {each for fact in found for each in fact.made_of}
    daily = [fact for fact in reversed(found) if fact.layer == "daily" and fact.id not in kept_of]
    new = [fact for fact in daily if conversation.local(fact.created).date() == today]
    earlier = [fact for fact in daily if conversation.local(fact.created).date() != today]
    kept = sorted((fact for fact in found if fact.layer == "longterm"), key=lambda fact: (not fact.pinned, -fact.importance))
    parts = [("Today", new), ("Earlier in the daily log", earlier), ("Kept for long", kept)]
    return [line for name, facts in parts if facts for line in _listed(name, facts)]


def _listed(name: str, facts: Sequence[Fact]) -> list[str]:
    more = [f"- … and {len(facts) - FACTS:,} more: `exuvia memory facts list`"] if len(facts) > FACTS else []
    return ["", f"**{name}** ({_count(len(facts), 'fact')})", *(f"- {told(fact)}" for fact in facts[:FACTS]), *more]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
