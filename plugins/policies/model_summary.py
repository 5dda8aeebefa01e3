"""The built-in summarizer: a model writes the summary, which is checked and repaired once, or replaced by the extract."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from plugins.api.compaction import CompactionInput, Summary
from plugins.api.plugin_services import AskModel, ModelAnswer
from plugins.policies.budgeted_page import Page
from plugins.policies.chunked_requests import ModelQuestion, ask_in_pieces, total_usage
from plugins.policies.extract import build_extract
from plugins.policies.extract_sentences import IdentifierMention, collect_sentences, rank_identifiers
from plugins.policies.identifiers import is_named
from plugins.policies.languages.prompts import SummaryTexts, language
from plugins.policies.summary_checks import CheckedSummary, check, is_refusal, kept_and_lost
from plugins.policies.summary_sections import (
    CONSTRAINTS,
    CONTEXT,
    DECISIONS,
    EMPTY,
    GOALS,
    IDENTIFIERS,
    NEXT,
    PROGRESS,
    STATES,
    TURN,
    format_sections,
    parse_sections,
)
from plugins.support.errors import ContextOverflow, ProviderError
from plugins.support.fencing import FencedEntry, divided, entries, harmless, quoted, unwrapped
from plugins.support.text.sentences import clipped, one_line
from sessions.events.tokens import estimate

MAX_FOCUS_CHARACTERS = 800
"""Maximum characters used of a person's focus for a summary."""


MAX_MERGE_ROUNDS = 3
"""Maximum rounds of merging partial summaries; enough for any record that fits into eight chunks at first."""

CHARACTERS_PER_TOKEN = 6
"""Characters read of an answer per token that it may have."""

QUESTION_CHARACTERS = 400
"""Maximum characters of a person's last message that are added."""


def system_prompt(leaving: CompactionInput) -> str:
    """Return the system prompt."""
    return _texts(leaving).system


def summary_prompt(leaving: CompactionInput) -> str:
    """Return the prompt that follows the record of the messages."""
    texts = _texts(leaving)
    asked = f"{texts.question} {texts.earlier}" if leaving.summary.strip() else texts.question
    return f"{asked}\n\n{_form(leaving)}"


def merge_prompt(leaving: CompactionInput) -> str:
    """Return the prompt that follows the record of several summaries."""
    return f"{_texts(leaving).merging}\n\n{_form(leaving)}"


def repair_prompt(leaving: CompactionInput, asked: str, summary: str, faults: Sequence[str]) -> str:
    """Return the prompt for repairing the faulty summary that answered the prompt `asked`."""
    texts = _texts(leaving)
    told = "\n".join(f"- {fault}" for fault in faults)
    return f"{asked}\n\n{texts.attempt}\n\n{quoted(summary, texts.attempt_name)}\n\n{texts.repair}\n{told}"


def _texts(leaving: CompactionInput) -> SummaryTexts:
    return language(leaving.language).summary


def _form(leaving: CompactionInput) -> str:
    texts = _texts(leaving)
    form = {
        GOALS: texts.goals,
        CONSTRAINTS: texts.constraints,
        PROGRESS: texts.progress.replace("{parts}", ", ".join(f"### {state}" for state in STATES)),
        DECISIONS: texts.decisions,
        NEXT: texts.next,
        CONTEXT: texts.context,
        IDENTIFIERS: _identifiers(leaving, texts),
        **({TURN: texts.turn} if leaving.splits_turn else {}),
    }
    headings = "\n".join(f"## {name}\n({what})" for name, what in form.items())
    parts = [f"{texts.headings}\n\n{headings}", _rules(leaving, texts), _focus(leaving, texts)]
    return "\n\n".join(filter(None, parts))


def _rules(leaving: CompactionInput, texts: SummaryTexts) -> str:
    words = max(60, leaving.limit * 6 // 10)
    return texts.rules.replace("{empty}", EMPTY).replace("{words}", str(words))


def _identifiers(leaving: CompactionInput, texts: SummaryTexts) -> str:
    if leaving.identifier_policy == "custom" and leaving.identifier_instructions.strip():
        return leaving.identifier_instructions.strip()
    return texts.few_identifiers if leaving.identifier_policy == "off" else texts.identifiers


def _focus(leaving: CompactionInput, texts: SummaryTexts) -> str:
    focus = leaving.focus.strip()[:MAX_FOCUS_CHARACTERS]
    return f"{texts.focus}\n\n{quoted(focus, texts.wish)}" if focus else ""


def complete(summary: str, leaving: CompactionInput, checked: CheckedSummary) -> str:
    """Return the summary in its canonical form, with the missing parts that `checked` found added.

    Under a strict identifier policy the rest of the budget is filled with identifiers: required ones first, then by rank.
    """
    sections = parse_sections(summary)
    if checked.omitted_question:
        question = one_line(harmless(checked.omitted_question[: 2 * QUESTION_CHARACTERS]))
        _add(sections, GOALS, f"- Asked last: {clipped(question, QUESTION_CHARACTERS)}")
    if leaving.identifier_policy == "strict":
        _add(sections, IDENTIFIERS, _missing_identifiers(format_sections(sections), leaving, checked))
    return format_sections(sections)


def _missing_identifiers(summary: str, leaving: CompactionInput, checked: CheckedSummary) -> str:
    page = Page(leaving.limit)
    page.reserve(summary)
    found = {mention.name: mention for mention in rank_identifiers(collect_sentences(leaving))}
    required = [found.pop(name, IdentifierMention(name=name, score=0, sentence="")) for name in checked.missing_identifiers]
    page.add_identifiers([*required, *found.values()], (), 0)
    return page.section_lines(IDENTIFIERS)


def _add(sections: dict[str, str], name: str, lines: str) -> None:
    sections[name] = "\n".join(filter(None, [sections.get(name, ""), lines]))


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A summary from the model, its faults, and the record and prompt that led to it."""

    text: str
    checked: CheckedSummary
    record: Sequence[FencedEntry]
    prompt: str


class _SummaryRejected(Exception):
    """The model did not produce a usable summary; `str(error)` says why."""


class ModelSummary:
    """The summarizer that asks a model, in chunks if necessary, and merges the partial summaries."""

    name: ClassVar[str] = "model_summary"

    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        """Return the model's summary, or the extract if the model does not produce a usable one.

        Raises:
            ProviderError: The model could not be asked.
        """
        writer = _SummaryWriter(leaving, ask)
        try:
            text, by, failed = await writer.write(), self.name, ""
        except (ContextOverflow, _SummaryRejected) as error:
            text, by, failed = await asyncio.to_thread(build_extract, leaving), "extract", str(error)
        kept, lost = await asyncio.to_thread(kept_and_lost, text, leaving)
        answers = writer.answers
        return Summary(
            text=text,
            by=by,
            checks=tuple(writer.checks),
            failed=failed,
            kept=kept,
            lost=lost,
            model=answers[-1].model if answers else "",
            usage=total_usage(answers),
        )


class _SummaryWriter:
    """The state of writing one summary: the answers and failed checks so far."""

    def __init__(self, leaving: CompactionInput, ask: AskModel) -> None:
        self._leaving = leaving
        self._ask = ask
        self.answers: list[ModelAnswer] = []
        self.checks: list[str] = []

    async def write(self) -> str:
        """Return the summary.

        Raises:
            _SummaryRejected: No usable summary was produced.
            ProviderError: The first attempt failed. A failure during the repair only ends the repair.
        """
        attempt = await self._first_attempt()
        self.checks += (f"First try: {sentence}" for sentence in attempt.checked.sentences)
        if attempt.checked.sentences:
            attempt = await self._repair(attempt)
            self.checks += (f"Second try: {sentence}" for sentence in attempt.checked.sentences)
        if not attempt.checked.repairable:
            raise _SummaryRejected(attempt.checked.unrepairable_reason)
        text = await asyncio.to_thread(complete, attempt.text, self._leaving, attempt.checked)
        if (size := estimate(text)) > self._leaving.limit:
            raise _SummaryRejected(
                f"With the missing parts added it has about {size} tokens; the limit is {self._leaving.limit}."
            )
        if not all(is_named(each, text) for each in attempt.checked.missing_identifiers):
            raise _SummaryRejected("The missing identifiers do not fit.")
        return text

    async def _first_attempt(self) -> _Attempt:
        record = await asyncio.to_thread(entries, self._leaving.messages, self._leaving.summary)
        prompt = summary_prompt(self._leaving)
        for _ in range(1 + MAX_MERGE_ROUNDS):
            texts = await self._ask_model(record, prompt)
            if len(texts) == 1:
                return await self._check(texts[0], record, prompt)
            if any(map(is_refusal, texts)):
                raise _SummaryRejected("The model did not summarise a part of the messages.")
            record = [
                FencedEntry(who=f"summary {number} of {len(texts)}", text=text) for number, text in enumerate(texts, 1)
            ]
            prompt = merge_prompt(self._leaving)
        raise _SummaryRejected("The partial summaries are too long to be merged.")

    async def _repair(self, attempt: _Attempt) -> _Attempt:
        prompt = repair_prompt(self._leaving, attempt.prompt, attempt.text, attempt.checked.sentences)
        latest = (await asyncio.to_thread(divided, attempt.record, self._question(prompt).record_tokens))[-1]
        try:
            texts = await self._ask_model(latest, prompt)
        except ProviderError as error:
            self.checks.append(f"The repair failed: {error}")
            return attempt
        retry = await self._check(texts[-1], attempt.record, attempt.prompt)
        # The retry may be worse.
        return attempt if attempt.checked.repairable and not retry.checked.repairable else retry

    async def _ask_model(self, record: Sequence[FencedEntry], prompt: str) -> list[str]:
        texts = []
        async for answer in ask_in_pieces(record, self._question(prompt), self._ask):
            self.answers.append(answer)
            texts.append(harmless(unwrapped(answer.text[: self._leaving.limit * CHARACTERS_PER_TOKEN])))
        return texts

    async def _check(self, text: str, record: Sequence[FencedEntry], prompt: str) -> _Attempt:
        # In a thread, since the messages may be megabytes.
        checked = await asyncio.to_thread(check, text, self._leaving)
        return _Attempt(text=text, checked=checked, record=record, prompt=prompt)

    def _question(self, prompt: str) -> ModelQuestion:
        leaving = self._leaving
        about = language(leaving.language).record
        return ModelQuestion(
            system=system_prompt(leaving), about=about, text=prompt, limit=leaving.limit, window=leaving.window
        )
