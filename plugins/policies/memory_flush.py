"""The built-in flush: before messages leave the view, a model is asked what of them must last.

It has no tools: what it answers, the daemon appends to the day's note. `NO_REPLY` stores nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from plugins.api.services import AskModel, ModelAnswer
from plugins.api.summarization import CompactionInput, FlushResult, FlushRules
from plugins.languages.prompts import language
from plugins.policies.chunked_requests import ModelQuestion, ask_in_pieces, spent
from plugins.policies.silent_reply import NO_REPLY
from plugins.support.errors import ProviderError
from plugins.support.fencing import entries, harmless, unwrapped

LIMIT = 1_500
"""Tokens that the notes on one piece may have, at most an eighth of the window."""

LARGEST = 24_000
"""Characters of an answer that are taken; a model that repeats itself has no end."""

_LIST = re.compile(r"^[^\S\n]*+(?:[-*+•]|\d++[.)、]) *+\S", re.MULTILINE)


class ModelMemoryFlush:
    """Asks about the leaving messages, piece by piece."""

    name: ClassVar[str] = "memory_flush"

    async def flush(self, leaving: CompactionInput, ask: AskModel, rules: FlushRules) -> FlushResult:
        """What to write into the day's note. A model that cannot be asked is an outcome, nothing that is raised; what it
        answered about earlier pieces is kept then."""
        if not leaving.messages:
            return FlushResult(outcome="nothing")
        answers: list[ModelAnswer] = []
        reason = ""
        try:
            record = await asyncio.to_thread(entries, leaving.messages)
            async for answer in ask_in_pieces(record, _question(leaving, rules), ask):
                answers.append(answer)
        except ProviderError as error:
            reason = str(error) or type(error).__name__
        return _flushed(answers, reason)


def notes_in(answer: str) -> str:
    """The notes in a model's answer, "" where it has none: `NO_REPLY` by itself, or on the first line, whatever comes behind
    it, or on the last, behind anything that is no list."""
    lines = [line.rstrip() for line in unwrapped(harmless(answer[:LARGEST])).splitlines()]
    plain = [line.strip("*_`. \t") for line in lines]  # NO_REPLY loses no letter by this
    if not lines or plain[0] == NO_REPLY:
        return ""
    if plain[-1] == NO_REPLY:
        lines.pop()
        if not _LIST.search("\n".join(lines)):
            return ""
    return "\n".join(lines).strip()


def _question(leaving: CompactionInput, rules: FlushRules) -> ModelQuestion:
    """The request in the person's language. A text of the operator's stands alone in its place."""
    spoken = language(leaving.language)
    system, prompt = rules.system_prompt.strip(), rules.prompt.strip()
    return ModelQuestion(
        system=system or spoken.flush.system,
        about="" if system else spoken.record,
        text=(prompt or f"{spoken.flush.prompt}\n\n{spoken.flush.how}").replace("YYYY-MM-DD", leaving.day),
        limit=min(LIMIT, max(1, leaving.window // 8)),
        window=leaving.window,
    )


def _flushed(answers: Sequence[ModelAnswer], reason: str) -> FlushResult:
    text = "\n".join(_once(notes_in(answer.text) for answer in answers)).strip()
    model = answers[-1].model if answers else ""
    if text:
        return FlushResult(outcome="written", text=text, reason=reason, model=model, usage=spent(answers))
    if not reason and not any(answer.text.strip() for answer in answers):
        reason = "The model answered nothing."
    return FlushResult(outcome="failed" if reason else "nothing", reason=reason, model=model, usage=spent(answers))


def _once(notes: Iterator[str]) -> Iterator[str]:
    """Their lines, no item of a list twice."""
    seen: set[str] = set()
    for line in (line for note in notes for line in note.splitlines()):
        same = " ".join(line.casefold().split())
        if same not in seen:
            yield line
        if _LIST.match(line):
            seen.add(same)
