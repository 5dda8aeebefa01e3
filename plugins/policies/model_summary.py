"""The built-in summarizer: a model writes the summary; it is checked, mended once by the model and then by hand, or else
replaced by the extract, which asks nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from plugins.api.services import AskModel, ModelAnswer
from plugins.api.summarization import CompactionInput, Summary
from plugins.languages.prompts import language
from plugins.policies.budgeted_page import Page
from plugins.policies.chunked_requests import ModelQuestion, ask_in_pieces, spent
from plugins.policies.extract import extracted
from plugins.policies.extract_sentences import said
from plugins.policies.identifier_ranking import IdentifierMention, mentions
from plugins.policies.identifiers import is_named
from plugins.policies.summary_checks import CheckedSummary, accounted, check, is_excuse
from plugins.policies.summary_prompts import mending, merging, question, system
from plugins.policies.summary_sections import GOALS, IDENTIFIERS, parsed, written
from plugins.support.errors import ContextOverflow, ProviderError
from plugins.support.fencing import FencedEntry, divided, entries, harmless, unwrapped
from plugins.support.text.sentences import clipped, one_line
from sessions.events.tokens import estimate

ROUNDS = 3
"""How often summaries of pieces are merged; eight pieces at first make that enough for all that fit at all."""

CHARACTERS = 6
"""Characters that are read of an answer for each token that it may have."""

ASK = 400
"""Characters of a person's last message that are added."""


def completed(summary: str, leaving: CompactionInput, checked: CheckedSummary) -> str:
    """The summary in its form, with what `checked` found missing. Under a strict policy it is filled up with the identifiers
    that it does not name, first those that were demanded, then those that matter most."""
    sections = parsed(summary)
    if checked.unasked:
        _add(sections, GOALS, f"- Asked last: {clipped(one_line(harmless(checked.unasked[: 2 * ASK])), ASK)}")
    if leaving.identifier_policy == "strict":
        _add(sections, IDENTIFIERS, _names(written(sections), leaving, checked))
    return written(sections)


def _names(summary: str, leaving: CompactionInput, checked: CheckedSummary) -> str:
    page = Page(leaving.limit)
    page.hold(summary)
    found = {mention.name: mention for mention in mentions(said(leaving))}
    demanded = [found.pop(name, IdentifierMention(name=name, score=0, sentence="")) for name in checked.missing]
    page.name([*demanded, *found.values()], (), 0)
    return page.listed(IDENTIFIERS)


def _add(sections: dict[str, str], name: str, lines: str) -> None:
    sections[name] = "\n".join(filter(None, [sections.get(name, ""), lines]))


class _Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A try: the text, what is wrong with it, and the record and question that it came of."""

    text: str
    checked: CheckedSummary
    record: Sequence[FencedEntry]
    asked: str


class _NoSummary(Exception):
    """The model does not give one; `str(error)` says how."""


class ModelSummary:
    """Asks the model, piece by piece where it must, and merges what it says of the pieces."""

    name: ClassVar[str] = "model_summary"

    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        """The model's summary, or the extract where the model gives none that can be taken. Raises a ProviderError when it
        cannot be asked at all."""
        writing = _Writing(leaving, ask)
        try:
            text, by, failed = await writing.write(), self.name, ""
        except (ContextOverflow, _NoSummary) as error:
            text, by, failed = await asyncio.to_thread(extracted, leaving), "extract", str(error)
        kept, lost = await asyncio.to_thread(accounted, text, leaving)
        answers = writing.answers
        return Summary(
            text=text,
            by=by,
            checks=tuple(writing.checks),
            failed=failed,
            kept=kept,
            lost=lost,
            model=answers[-1].model if answers else "",
            usage=spent(answers),
        )


class _Writing:
    """The writing of one summary; `answers` and `checks` grow as it goes on."""

    def __init__(self, leaving: CompactionInput, ask: AskModel) -> None:
        self._leaving = leaving
        self._ask = ask
        self.answers: list[ModelAnswer] = []
        self.checks: list[str] = []

    async def write(self) -> str:
        """The summary. Raises _NoSummary, or a ProviderError of the first try; one of the second only ends the mending."""
        tried = await self._first()
        self.checks += (f"First try: {sentence}" for sentence in tried.checked.sentences)
        if tried.checked.sentences:
            tried = await self._mended(tried)
            self.checks += (f"Second try: {sentence}" for sentence in tried.checked.sentences)
        if not tried.checked.mendable:
            raise _NoSummary(tried.checked.unmendable)
        text = await asyncio.to_thread(completed, tried.text, self._leaving, tried.checked)
        if (size := estimate(text)) > self._leaving.limit:
            raise _NoSummary(f"With what it left out it has about {size} tokens; it may have {self._leaving.limit}.")
        if not all(is_named(each, text) for each in tried.checked.missing):
            raise _NoSummary("There is no room for the identifiers that it left out.")
        return text

    async def _first(self) -> _Tried:
        record = await asyncio.to_thread(entries, self._leaving.messages, self._leaving.summary)
        asked = question(self._leaving)
        for _ in range(1 + ROUNDS):
            texts = await self._asked_about(record, asked)
            if len(texts) == 1:
                return await self._checked(texts[0], record, asked)
            if any(map(is_excuse, texts)):
                raise _NoSummary("The model did not summarise a part of what leaves.")
            record = [
                FencedEntry(who=f"summary {number} of {len(texts)}", text=text) for number, text in enumerate(texts, 1)
            ]
            asked = merging(self._leaving)
        raise _NoSummary("The summaries of the parts are too long to be merged.")

    async def _mended(self, tried: _Tried) -> _Tried:
        asked = mending(self._leaving, tried.asked, tried.text, tried.checked.sentences)
        latest = (await asyncio.to_thread(divided, tried.record, self._question(asked).room))[-1]
        try:
            texts = await self._asked_about(latest, asked)
        except ProviderError as error:
            self.checks.append(f"It could not be mended: {error}")
            return tried
        again = await self._checked(texts[-1], tried.record, tried.asked)
        # A second try may be the worse one.
        return tried if tried.checked.mendable and not again.checked.mendable else again

    async def _asked_about(self, record: Sequence[FencedEntry], asked: str) -> list[str]:
        texts = []
        async for answer in ask_in_pieces(record, self._question(asked), self._ask):
            self.answers.append(answer)
            texts.append(harmless(unwrapped(answer.text[: self._leaving.limit * CHARACTERS])))
        return texts

    async def _checked(self, text: str, record: Sequence[FencedEntry], asked: str) -> _Tried:
        # What leaves may be megabytes, and is read through: not on the event loop.
        checked = await asyncio.to_thread(check, text, self._leaving)
        return _Tried(text=text, checked=checked, record=record, asked=asked)

    def _question(self, asked: str) -> ModelQuestion:
        leaving = self._leaving
        about = language(leaving.language).record
        return ModelQuestion(system=system(leaving), about=about, text=asked, limit=leaving.limit, window=leaving.window)
