"""A summarizer that uses no model: it selects sentences from the messages.

It keeps what people asked, wished, decided and corrected, the tool calls with their outcomes, and identifiers, within a
token budget. Sentences of an earlier summary are carried over, so that five extracts in a row say what one would have said.
Pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from plugins.api.compaction import CompactionInput, Summary
from plugins.api.plugin_services import AskModel
from plugins.policies.budgeted_page import Line, Page
from plugins.policies.extract_sentences import (
    Sentence,
    by_speaker,
    collect_sentences,
    identifiers_in_calls,
    rank_identifiers,
)
from plugins.policies.summary_checks import kept_and_lost
from plugins.policies.summary_sections import CONSTRAINTS, CONTEXT, DECISIONS, GOALS, NEXT, PROGRESS, TURN
from plugins.support.fencing import harmless
from plugins.support.text.sentences import clipped, is_correction, is_decision, is_wish, one_line
from sessions.events.messages import AssistantMessage, Message, ToolMessage

SHARES = {DECISIONS: 0.25, CONSTRAINTS: 0.15, GOALS: 0.15, TURN: 0.1, PROGRESS: 0.05, NEXT: 0.05, CONTEXT: 0.05}
"""Share of the budget that each section may use before the identifiers; they get what is left."""

FULL_MESSAGES = 2
"""Number of the latest messages of people that are kept (nearly) complete."""

MIN_MESSAGE_BYTES = 12
"""Minimum bytes of an earlier message to be kept, which leaves out `ok` and `go on`."""

MESSAGE_CHARACTERS = 600
LINE_CHARACTERS = 240
CALL_CHARACTERS = 110

LISTED_SHARE = 0.1
"""Share of the budget for identifiers that occur only in tool calls."""


class Extract:
    """The extractive summarizer."""

    name: ClassVar[str] = "extract"

    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        """Return the extract. Neither calls a model nor raises."""
        text = await asyncio.to_thread(build_extract, leaving)
        kept, lost = await asyncio.to_thread(kept_and_lost, text, leaving)
        return Summary(text=text, by=self.name, kept=kept, lost=lost)


def build_extract(leaving: CompactionInput) -> str:
    """Return an extract of at most `leaving.limit` estimated tokens. Deterministic."""
    sentences, page = collect_sentences(leaving), Page(leaving.limit)
    for section, lines in _candidates(leaving, sentences):
        page.fill(section, lines, int(SHARES[section] * leaving.limit))
    page.add_identifiers(
        rank_identifiers(sentences), identifiers_in_calls(leaving.messages), int(LISTED_SHARE * leaving.limit)
    )
    for section, lines in _candidates(leaving, sentences):
        page.fill(section, lines, page.remaining)
    return page.text()


def _candidates(leaving: CompactionInput, sentences: Sequence[Sentence]) -> Iterator[tuple[str, list[Line]]]:
    """Yield the candidate lines of each section, the most important first."""
    asked = by_speaker(sentences, "person")
    spoken = [each for each in sentences if each.by != "summary"]
    decided = (each for each in spoken if is_decision(each.text) or (each.by == "person" and is_correction(each.text)))
    yield DECISIONS, [*_latest(decided), *_carried_over(sentences, DECISIONS)]
    wished = [*_latest(each for each in asked if is_wish(each.text)), *_carried_over(sentences, CONSTRAINTS)]
    yield CONSTRAINTS, [*wished, *_latest(each for each in by_speaker(sentences, "assistant") if is_wish(each.text))]
    yield GOALS, [*_messages_of_people(asked), *_carried_over(sentences, GOALS)]
    yield TURN, [*_turn(leaving, sentences), *_carried_over(sentences, TURN)] if leaving.splits_turn else []
    yield PROGRESS, [*_calls(leaving.messages), *_carried_over(sentences, PROGRESS)]
    yield NEXT, _latest(_closing(sentences)) or _carried_over(sentences, NEXT)
    facts = (each for each in asked if _is_fact(each.text))
    yield (
        CONTEXT,
        [
            *_latest(facts),
            *_carried_over(sentences, CONTEXT),
            *(_carried_over(sentences, TURN) if not leaving.splits_turn else []),
        ],
    )


def _latest(chosen: Iterable[Sentence]) -> list[Line]:
    lines = enumerate(each for each in chosen if each.text)
    return [Line(clipped(each.text, LINE_CHARACTERS), each.at, within) for within, each in lines][::-1]


def _carried_over(sentences: Sequence[Sentence], section: str) -> list[Line]:
    """Return the lines that the current summary has in a section, sorted before all new ones; its last line first."""
    lines = [each.text for each in sentences if each.by == "summary" and each.section == section and each.text]
    return [Line(clipped(text, MESSAGE_CHARACTERS), index - len(lines)) for index, text in enumerate(lines)][::-1]


def _messages_of_people(asked: Sequence[Sentence]) -> list[Line]:
    """Return the messages of people: the latest in full, of earlier ones the most important sentence."""
    messages: dict[int, list[str]] = {}
    for each in asked:
        if each.text:
            messages.setdefault(each.at, []).append(each.text)
    latest = list(messages)[-FULL_MESSAGES:]
    return [
        Line(
            clipped(" ".join(texts), MESSAGE_CHARACTERS)
            if at in latest
            else clipped(_main_sentence(texts), LINE_CHARACTERS),
            at,
        )
        for at, texts in reversed(messages.items())
        if at in latest or len(texts) > 1 or len(texts[0].encode()) >= MIN_MESSAGE_BYTES
    ]


def _main_sentence(texts: Sequence[str]) -> str:
    """Return the first question, else the first wish or decision, else the first sentence."""
    questions = (text for text in texts if text.endswith(("?", "？")))
    return next(questions, next((text for text in texts if is_wish(text) or is_decision(text)), texts[0]))


def _turn(leaving: CompactionInput, sentences: Sequence[Sentence]) -> list[Line]:
    """Return the beginning of a turn that continues after the compaction: the request and the answers so far."""
    last = max((each.at for each in sentences if each.by == "person"), default=-1)
    lines = [Line("Asked: " + clipped(" ".join(e.text for e in sentences if e.at == last), MESSAGE_CHARACTERS), last)]
    return (lines if last >= 0 else []) + _latest(each for each in sentences if each.by == "assistant" and each.at > last)


def _closing(sentences: Sequence[Sentence]) -> list[Sentence]:
    """Return the last two sentences of the assistant's last message with text."""
    spoken = [each for each in by_speaker(sentences, "assistant") if each.text]
    return [each for each in spoken if each.at == spoken[-1].at][-2:] if spoken else []


def _is_fact(text: str) -> bool:
    """Return True for a statement that contains a name or a number."""
    if text.endswith(("?", "？")):
        return False
    return any(word[0].isupper() or any(map(str.isdigit, word)) or not word.isascii() for word in text.split()[1:])


def _calls(messages: Sequence[Message]) -> list[Line]:
    """Return the tool calls with their outcomes, the last first, without repetitions."""
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
