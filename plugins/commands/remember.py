"""The commands `/remember` and `/memory`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView, MemoryReport
from plugins.api.fact_values import Fact, FactsError
from plugins.commands.facts_commands import format_fact
from plugins.commands.markdown import code, highlighted, one_line
from plugins.support.workspace import parse_citation

MAX_FACTS = 12
"""Maximum facts listed per section."""

MAX_CHARACTERS = 300
"""Maximum characters shown of a search result."""


class Remember:
    """The `/remember` command, which writes to the notes."""

    name: ClassVar[str] = "remember"
    usage: ClassVar[str] = "/remember TEXT"
    summary: ClassVar[str] = "Write TEXT to the notes, where searches find it from now on."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the place of the new text; raise CommandFailed if it cannot be written."""
        if not argument:
            raise CommandFailed("Write /remember followed by what to remember.")
        return f"Remembered: {code(await conversation.remember(argument))}."


class Memory:
    """The `/memory` command, which shows or searches the memory."""

    name: ClassVar[str] = "memory"
    usage: ClassVar[str] = "/memory [QUERY]"
    summary: ClassVar[str] = "Show what is remembered, search the memory for QUERY, or show what is at MEMORY.md#L3-L7."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the latest notes and facts, with search results, best first, or with the text of a citation."""
        if not argument:
            report = await conversation.memory()
            return "\n".join([_overview(report), *await _facts(conversation, report.today)])
        if cited := parse_citation(argument):
            return await _passage(*cited, conversation)
        found = await conversation.search_memory(argument)
        lines = [
            f"- {code(place)} {highlighted(one_line(text.lstrip('-*+ '), MAX_CHARACTERS), argument)}"
            for place, text in found.hits
        ]
        return "\n".join([*(lines or ["Nothing found."]), *(f"\n{remark}" for remark in found.remarks)])


async def _passage(path: str, first: int, last: int, conversation: ConversationView) -> str:
    text = await conversation.excerpt(path, first, max(1, last - first + 1))
    if not text:
        raise CommandFailed(f"There is nothing at {path}#L{first}-L{last}.")
    return f"{code(f'{path}#L{first}-L{last}')}\n\n```\n{text.replace('```', '´´´')}\n```"


def _overview(report: MemoryReport) -> str:
    counts = _count(report.notes, "note"), _count(report.sessions, "session"), _count(report.chunks, "chunk")
    head = f"**Memory**: {', '.join(counts)}; found {report.how}."
    lines = [f"- {code(note.path)}, {note.bytes:,} bytes, changed {note.changed}" for note in report.latest]
    return "\n".join([head, *([""] if lines else []), *lines, *(f"\n{remark}" for remark in report.remarks)])


async def _facts(conversation: ConversationView, today: date | None) -> list[str]:
    """Format the facts: today's, earlier ones of the daily log, and the long-term ones, pinned and important first.

    Daily facts that were already distilled into a long-term fact are left out.
    """
    try:
        found = await conversation.facts.listed()
    except FactsError as error:
        return ["", str(error)]
    distilled = {each for fact in found for each in fact.made_of}
    daily = [fact for fact in reversed(found) if fact.layer == "daily" and fact.id not in distilled]
    new = [fact for fact in daily if conversation.local(fact.created).date() == today]
    earlier = [fact for fact in daily if conversation.local(fact.created).date() != today]
    kept = sorted((fact for fact in found if fact.layer == "longterm"), key=lambda fact: (not fact.pinned, -fact.importance))
    parts = [("Today", new), ("Earlier in the daily log", earlier), ("Long-term", kept)]
    return [line for name, facts in parts if facts for line in _fact_list(name, facts)]


def _fact_list(name: str, facts: Sequence[Fact]) -> list[str]:
    more = [f"- … and {len(facts) - MAX_FACTS:,} more: `exuvia memory facts list`"] if len(facts) > MAX_FACTS else []
    return [
        "",
        f"**{name}** ({_count(len(facts), 'fact')})",
        *(f"- {format_fact(fact)}" for fact in facts[:MAX_FACTS]),
        *more,
    ]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
