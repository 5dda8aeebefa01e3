"""The built-in memory flush, which asks a model before a compaction which facts to keep in the notes.

The model has no tools: the gateway appends its answer to the day's note. `NO_REPLY` stores nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from plugins.api.compaction import CompactionInput, FlushResult, FlushRules
from plugins.api.plugin_services import AskModel, ModelAnswer
from plugins.policies.chunked_requests import ModelQuestion, ask_in_pieces, total_usage
from plugins.policies.languages.prompts import language
from plugins.policies.silent_reply import NO_REPLY
from plugins.support.errors import ProviderError
from plugins.support.fencing import entries, harmless, unwrapped

MAX_NOTE_TOKENS = 1_500
"""Maximum tokens of the notes about one chunk, at most an eighth of the window."""

MAX_ANSWER_CHARACTERS = 24_000
"""Maximum characters used of an answer, in case a model repeats itself endlessly."""

_LIST = re.compile(r"^[^\S\n]*+(?:[-*+•]|\d++[.)、]) *+\S", re.MULTILINE)


class ModelMemoryFlush:
    """The memory flush, which asks about the messages chunk by chunk."""

    name: ClassVar[str] = "memory_flush"

    async def flush(self, leaving: CompactionInput, ask: AskModel, rules: FlushRules) -> FlushResult:
        """Return what to write to the day's note.

        If the model cannot be asked, the result says so instead of raising, and keeps the answers about earlier chunks.
        """
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
        return _result(answers, reason)


def notes_in(answer: str) -> str:
    """Return the notes in a model's answer, "" for none.

    `NO_REPLY` on the first line means none; on the last line it is removed, and means none if no list comes before it.
    """
    lines = [line.rstrip() for line in unwrapped(harmless(answer[:MAX_ANSWER_CHARACTERS])).splitlines()]
    plain = [line.strip("*_`. \t") for line in lines]  # keeps all letters of NO_REPLY
    if not lines or plain[0] == NO_REPLY:
        return ""
    if plain[-1] == NO_REPLY:
        lines.pop()
        if not _LIST.search("\n".join(lines)):
            return ""
    return "\n".join(lines).strip()


def _question(leaving: CompactionInput, rules: FlushRules) -> ModelQuestion:
    """Build the request in the person's language, or with the operator's texts instead."""
    texts = language(leaving.language)
    system, prompt = rules.system_prompt.strip(), rules.prompt.strip()
    return ModelQuestion(
        system=system or texts.flush.system,
        about="" if system else texts.record,
        text=(prompt or f"{texts.flush.prompt}\n\n{texts.flush.how}").replace("YYYY-MM-DD", leaving.day),
        limit=min(MAX_NOTE_TOKENS, max(1, leaving.window // 8)),
        window=leaving.window,
    )


def _result(answers: Sequence[ModelAnswer], reason: str) -> FlushResult:
    text = "\n".join(_deduplicated(notes_in(answer.text) for answer in answers)).strip()
    model = answers[-1].model if answers else ""
    if text:
        return FlushResult(outcome="written", text=text, reason=reason, model=model, usage=total_usage(answers))
    if not reason and not any(answer.text.strip() for answer in answers):
        reason = "The model returned an empty answer."
    return FlushResult(outcome="failed" if reason else "nothing", reason=reason, model=model, usage=total_usage(answers))


def _deduplicated(notes: Iterator[str]) -> Iterator[str]:
    """Yield the lines of the notes without repeated list items."""
    seen: set[str] = set()
    for line in (line for note in notes for line in note.splitlines()):
        same = " ".join(line.casefold().split())
        if same not in seen:
            yield line
        if _LIST.match(line):
            seen.add(same)
