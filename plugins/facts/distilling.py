"""How daily facts become few that stay: batches, what a model is asked, and what of its answer counts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from plugins.context.fencing import harmless, mark_for, unwrapped
from plugins.facts.book import Book
from plugins.facts.languages import Language
from plugins.facts.values import TYPES, Draft, Fact, InvalidFact, draft

BATCH = 12_000
"""Characters of facts in one request."""

MOST = 20
"""Facts that one batch leaves."""

ANSWER = 2500
"""Tokens that an answer may have."""

OUTDATED = 0.5
"""What is left of the importance of a fact that a newer one supersedes."""


class Distilled(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer gave: facts, and of older ones the id, the index of the fact that says otherwise, and the importance
    that is left. `wrong` says what was wrong with the answer, empty if it counts."""

    drafts: tuple[Draft, ...] = ()
    superseded: tuple[tuple[str, int, float], ...] = ()
    wrong: str = ""


def is_due(book: Book, owner: str, *, threshold: int, interval_hours: float, now: datetime) -> bool:
    """Whether the daily facts of this person are to be distilled: so many are new, or it is so long ago. 0 of either is
    never for that reason."""
    fresh = [fact for fact in book.undistilled() if fact.owner == owner]
    if not fresh:
        return False
    if threshold and len(fresh) >= threshold:
        return True
    since = book.distilled_at or min(fact.created for fact in fresh)
    return bool(interval_hours) and now - datetime.fromisoformat(since) >= timedelta(hours=interval_hours)


def batches(facts: Sequence[Fact]) -> Iterator[list[Fact]]:
    """The facts in portions of about `BATCH` characters, each in one."""
    batch: list[Fact] = []
    size = 0
    for fact in facts:
        if batch and size + len(fact.content) > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(fact)
        size += len(fact.content) + 40
    if batch:
        yield batch


def request(fresh: Sequence[Fact], known: Sequence[Fact], language: Language) -> str:
    """The facts as data, those that are kept already first, each with its number, and the question behind them."""
    told = [f"{number}. ({fact.type}) {harmless(fact.content)}" for number, fact in enumerate([*known, *fresh], 1)]
    mark = mark_for("\n".join(told))
    kept, new = told[: len(known)], told[len(known) :]
    parts = [f"[{mark}] {language.kept}:", *kept, f"[{mark}] {language.new}:", *new, f"[{mark}] end"]
    return "\n".join([*parts, "", language.distill_question])


def distilled(answer: str, known: Sequence[Fact]) -> Distilled:
    """What counts of an answer about these `known` facts and new ones behind them."""
    try:
        value = msgspec.json.decode(unwrapped(answer).encode("utf-8", "replace"))
    except (msgspec.MsgspecError, RecursionError):
        return Distilled(wrong="The answer was not the JSON that was asked for.")
    rows = value.get("facts") if isinstance(value, dict) else value
    if not isinstance(rows, list):
        return Distilled(wrong="The answer had no list of facts.")
    drafts: list[Draft] = []
    superseded: dict[str, tuple[str, int, float]] = {}
    for row in rows[:MOST]:
        try:
            drafts.append(_draft(row))
        except InvalidFact:
            continue
        for old in _numbered(row, known):
            left = max(0.1, round(old.importance * OUTDATED, 4))
            superseded.setdefault(old.id, (old.id, len(drafts) - 1, left))
    wrong = "No fact of the answer was sound." if rows and not drafts else ""
    return Distilled(drafts=tuple(drafts), superseded=tuple(superseded.values()), wrong=wrong)


def as_they_are(facts: Sequence[Fact]) -> Distilled:
    """The facts unchanged, which dedupe then thins out."""
    drafts = tuple(
        Draft(
            content=fact.content,
            type=fact.type,
            tags=tuple(tag for tag in fact.tags if ":" not in tag),
            importance=fact.importance,
        )
        for fact in facts
    )
    return Distilled(drafts=drafts)


def _draft(row: object) -> Draft:
    if not isinstance(row, Mapping) or not isinstance(row.get("content"), str):
        raise InvalidFact("A fact is an object with a content.")
    kind, tags, importance = (row.get(name) for name in ("type", "tags", "importance"))
    return draft(
        harmless(row["content"]),
        kind if isinstance(kind, str) and kind in TYPES else "fact",
        [tag for tag in tags if isinstance(tag, str) and ":" not in tag][:8] if isinstance(tags, list) else (),
        float(importance) if isinstance(importance, int | float) and not isinstance(importance, bool) else 0.5,
    )


def _numbered(row: Mapping[str, Any], known: Sequence[Fact]) -> list[Fact]:
    """The known facts, pins excepted, that a row says it supersedes."""
    numbers = row.get("supersedes")
    if not isinstance(numbers, list):
        return []
    named = [number for number in numbers if isinstance(number, int) and 1 <= number <= len(known)]
    return [known[number - 1] for number in named if not known[number - 1].pinned]
