"""The extract: a summary that no model writes, out of sentences as they were said.

It keeps what people asked, wished, decided and corrected, what tools were called with and how they ended, and the
identifiers, within so many tokens. An earlier summary goes on in it sentence by sentence, so that five extracts in a row say
what one would have. Pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from plugins.api.services import AskModel
from plugins.api.summarization import CompactionInput, Summary
from plugins.policies.budgeted_page import Line, Page
from plugins.policies.extract_sentences import Sentence, said, speakers
from plugins.policies.identifier_ranking import given, mentions
from plugins.policies.summary_checks import accounted
from plugins.policies.summary_sections import CONSTRAINTS, CONTEXT, DECISIONS, GOALS, NEXT, PROGRESS, TURN
from plugins.support.fencing import harmless
from plugins.support.text.sentences import clipped, is_correction, is_decision, is_wish, one_line
from sessions.events.messages import AssistantMessage, Message, ToolMessage

SHARES = {DECISIONS: 0.25, CONSTRAINTS: 0.15, GOALS: 0.15, TURN: 0.1, PROGRESS: 0.05, NEXT: 0.05, CONTEXT: 0.05}
"""The share of the room that each section may take before the identifiers have theirs; what is left over is theirs too."""

LAST_ASKS = 2
"""Messages of people that are kept whole, or nearly."""

LEAST_ASK = 12
"""Bytes of an ask that says something: an earlier `ok` or `go on` is left out."""

ASK_CHARACTERS = 600
LINE_CHARACTERS = 240
CALL_CHARACTERS = 110

LISTED = 0.1
"""The share of the room for identifiers that nobody said but that tools were called with."""


class Extract:
    """Summarises without a model."""

    name: ClassVar[str] = "extract"

    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        """The extract; nobody is asked, and nothing raised."""
        text = await asyncio.to_thread(extracted, leaving)
        kept, lost = await asyncio.to_thread(accounted, text, leaving)
        return Summary(text=text, by=self.name, kept=kept, lost=lost)


def extracted(leaving: CompactionInput) -> str:
    """The extract of what leaves, with at most `leaving.limit` estimated tokens. The same values give the same text."""
    told, page = said(leaving), Page(leaving.limit)
    for section, lines in _candidates(leaving, told):
        page.fill(section, lines, int(SHARES[section] * leaving.limit))
    page.name(mentions(told), given(leaving.messages), int(LISTED * leaving.limit))
    for section, lines in _candidates(leaving, told):
        page.fill(section, lines, page.room)
    return page.text()


def _candidates(leaving: CompactionInput, told: Sequence[Sentence]) -> Iterator[tuple[str, list[Line]]]:
    """For each section the lines that it might have, the ones to be taken first first."""
    asked = speakers(told, "person")
    spoken = [each for each in told if each.by != "summary"]
    decided = (each for each in spoken if is_decision(each.text) or (each.by == "person" and is_correction(each.text)))
    yield DECISIONS, [*_latest(decided), *_carried(told, DECISIONS)]
    wished = [*_latest(each for each in asked if is_wish(each.text)), *_carried(told, CONSTRAINTS)]
    yield CONSTRAINTS, [*wished, *_latest(each for each in speakers(told, "assistant") if is_wish(each.text))]
    yield GOALS, [*_asks(asked), *_carried(told, GOALS)]
    yield TURN, [*_turn(leaving, told), *_carried(told, TURN)] if leaving.began else []
    yield PROGRESS, [*_calls(leaving.messages), *_carried(told, PROGRESS)]
    yield NEXT, _latest(_closing(told)) or _carried(told, NEXT)
    facts = (each for each in asked if _is_fact(each.text))
    yield CONTEXT, [*_latest(facts), *_carried(told, CONTEXT), *(_carried(told, TURN) if not leaving.began else [])]


def _latest(chosen: Iterable[Sentence]) -> list[Line]:
    lines = enumerate(each for each in chosen if each.text)
    return [Line(clipped(each.text, LINE_CHARACTERS), each.at, within) for within, each in lines][::-1]


def _carried(told: Sequence[Sentence], section: str) -> list[Line]:
    """What the summary in force says in a section, before everything that is new; its end first."""
    lines = [each.text for each in told if each.by == "summary" and each.section == section and each.text]
    return [Line(clipped(text, ASK_CHARACTERS), index - len(lines)) for index, text in enumerate(lines)][::-1]


def _asks(asked: Sequence[Sentence]) -> list[Line]:
    """What people wrote: the last messages whole, of the others the sentence that asks most."""
    messages: dict[int, list[str]] = {}
    for each in asked:
        if each.text:
            messages.setdefault(each.at, []).append(each.text)
    latest = list(messages)[-LAST_ASKS:]
    return [
        Line(clipped(" ".join(texts), ASK_CHARACTERS) if at in latest else clipped(_ask_in(texts), LINE_CHARACTERS), at)
        for at, texts in reversed(messages.items())
        if at in latest or len(texts) > 1 or len(texts[0].encode()) >= LEAST_ASK
    ]


def _ask_in(texts: Sequence[str]) -> str:
    """The first question, else the first wish or decision, else the first sentence."""
    questions = (text for text in texts if text.endswith(("?", "？")))
    return next(questions, next((text for text in texts if is_wish(text) or is_decision(text)), texts[0]))


def _turn(leaving: CompactionInput, told: Sequence[Sentence]) -> list[Line]:
    """The turn whose beginning leaves: what was asked, and what the assistant said since."""
    last = max((each.at for each in told if each.by == "person"), default=-1)
    lines = [Line("Asked: " + clipped(" ".join(e.text for e in told if e.at == last), ASK_CHARACTERS), last)]
    return (lines if last >= 0 else []) + _latest(each for each in told if each.by == "assistant" and each.at > last)


def _closing(told: Sequence[Sentence]) -> list[Sentence]:
    """The last two sentences of the assistant's last message that says anything."""
    spoken = [each for each in speakers(told, "assistant") if each.text]
    return [each for each in spoken if each.at == spoken[-1].at][-2:] if spoken else []


def _is_fact(text: str) -> bool:
    """Whether somebody tells something with a name or a number in it, rather than asks."""
    if text.endswith(("?", "？")):
        return False
    return any(word[0].isupper() or any(map(str.isdigit, word)) or not word.isascii() for word in text.split()[1:])


def _calls(messages: Sequence[Message]) -> list[Line]:
    """What tools were called with and how that ended, the last first; what was done again is told once."""
    calls = {
        call.id: (at, call) for at, each in enumerate(messages) if isinstance(each, AssistantMessage) for call in each.calls
    }
    lines: dict[str, Line] = {}
    for message in reversed(messages):
        if isinstance(message, ToolMessage) and message.id in calls:
            at, call = calls[message.id]
            what = f"{call.tool} {clipped(one_line(harmless(call.arguments[: 2 * CALL_CHARACTERS])), CALL_CHARACTERS)}"
            failed = f"failed: {clipped(one_line(harmless(message.text[: 2 * CALL_CHARACTERS])), CALL_CHARACTERS)}"
            lines.setdefault(what, Line(f"{what}: {failed if message.failed else 'done'}", at))
    return list(lines.values())
