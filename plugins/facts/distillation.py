"""Distillation of daily facts into long-term facts: batches, prompts and parsing of the answers. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from plugins.api.fact_values import Fact, FactDraft, InvalidFact
from plugins.facts.fact_book import FactBook
from plugins.facts.model_answers import parse_draft, parse_rows
from plugins.facts.scoring import equivalent_facts
from plugins.policies.languages.prompts import FactTexts
from plugins.support.fencing import harmless, mark_for
from sessions.events.tokens import estimate

BATCH = 12_000
"""Maximum characters of facts in a request."""

LINE = 40
"""Estimated characters of a line besides the fact."""

MOST = 20
"""Maximum facts taken from one answer."""

ANSWER = 2500
"""Maximum tokens of an answer."""


class DistillationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an answer, and the ids of facts they supersede, each with the index of the newer fact.

    `wrong` says why the answer is unusable, empty if it is usable.
    """

    drafts: tuple[FactDraft, ...] = ()
    superseded: tuple[tuple[str, int], ...] = ()
    wrong: str = ""


def owners_due(book: FactBook, *, threshold: int, interval_hours: float, now: datetime) -> list[str]:
    """Return the owners whose daily facts are due for distillation.

    Args:
        book: The facts.
        threshold: The number of new facts at which they become due; 0 for never.
        interval_hours: The age in hours of the oldest new fact at which they become due; 0 for never.
        now: The current time.
    """
    fresh: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in book.undistilled():
        fresh[fact.owner].append(fact)
    return [owner for owner, theirs in fresh.items() if _is_due(theirs, threshold, interval_hours, now)]


def _is_due(fresh: Sequence[Fact], threshold: int, interval_hours: float, now: datetime) -> bool:
    if threshold and len(fresh) >= threshold:
        return True
    longest = now - datetime.fromisoformat(min(fact.created for fact in fresh))
    return bool(interval_hours) and longest >= timedelta(hours=interval_hours)


class TokenBudget:
    """The number of facts that fit into one request.

    `tokens` is what the context window leaves for them, None if unknown.
    """

    def __init__(self, tokens: int | None) -> None:
        self._most = self._now = tokens
        self.single_refusals = 0
        """Consecutive refusals of a request with a single fact."""

    def batch(self, fresh: Sequence[Fact]) -> list[Fact]:
        """Return the first new facts, about `BATCH` characters in half of the tokens, and at least one."""
        left = None if self._now is None else self._now // 2
        return _first(fresh, left) or list(fresh[:1])

    def context_for(self, known: Sequence[Fact], batch: Sequence[Fact]) -> list[Fact]:
        """Return the known facts to show with a batch, in their order.

        Those with most words in common with the batch are chosen, about `BATCH` characters in the remaining tokens.
        """
        left = None if self._now is None else self._now - sum(map(_tokens, batch))
        shown = {fact.id for fact in _first(nearest(known, batch), left)}
        return [fact for fact in known if fact.id in shown]

    def shrink(self, refused: Sequence[Fact], *, for_good: bool) -> bool:
        """Request fewer facts next time; with `for_good` in all later requests too. Return False if there was only one."""
        if len(refused) == 1:
            self.single_refusals += 1
            self._now = self._most
            return False
        self._now = sum(map(_tokens, refused)) // 2
        if for_good:
            self._most = self._now
        return True

    def answered(self) -> None:
        """Reset the budget after a successful request."""
        self._now, self.single_refusals = self._most, 0


def nearest(known: Sequence[Fact], fresh: Sequence[Fact]) -> list[Fact]:
    """Return the known facts, those with most words in common with the new ones first."""
    from plugins.support.text.words import word_set  # noqa: PLC0415 - loads language data

    said = frozenset[str]().union(*(word_set(fact.content) for fact in fresh))
    return sorted(known, key=lambda each: -len(said & word_set(each.content)))


def _first(facts: Sequence[Fact], tokens: int | None) -> list[Fact]:
    """Return the first facts that fit into `BATCH` characters and the given tokens."""
    found: list[Fact] = []
    characters = 0
    for fact in facts:
        characters += len(fact.content) + LINE
        if tokens is not None:
            tokens -= _tokens(fact)
        if characters > BATCH or (tokens is not None and tokens < 0):
            break
        found.append(fact)
    return found


def _tokens(fact: Fact) -> int:
    return estimate(fact.content) + LINE // 4


def request(fresh: Sequence[Fact], known: Sequence[Fact], language: FactTexts) -> str:
    """Build the prompt: the known facts, the new facts, numbered, and the question."""
    lines = [f"{number}. ({fact.type}) {harmless(fact.content)}" for number, fact in enumerate([*known, *fresh], 1)]
    mark = mark_for("\n".join(lines))
    kept, new = lines[: len(known)], lines[len(known) :]
    parts = [f"[{mark}] {language.kept}:", *kept, f"[{mark}] {language.new}:", *new, f"[{mark}] end"]
    return "\n".join([*parts, "", language.distill_question])


def parse_distillation(answer: str, known: Sequence[Fact], fresh: Sequence[Fact]) -> DistillationResult:
    """Parse an answer about `known` and `fresh` facts.

    The sources of a fact are those that the answer names, else the equivalent new facts. A known fact among the sources is
    superseded.
    """
    if (rows := parse_rows(answer)) is None:
        return DistillationResult(wrong="The answer was not the requested JSON.")
    drafts: list[FactDraft] = []
    superseded: dict[str, int] = {}
    kept = {fact.id for fact in known}
    for row in rows[:MOST]:
        try:
            found = parse_draft(row)
        except InvalidFact:
            continue
        sources = _numbered(row, "from", [*known, *fresh]) or equivalent_facts(found.content, fresh)
        old = [fact.id for fact in _numbered(row, "supersedes", [*known, *fresh])] + [f.id for f in sources if f.id in kept]
        made_of = tuple(fact.id for fact in sources if fact.id not in kept and fact.id not in old)
        superseded |= {each: len(drafts) for each in old if each not in superseded}
        drafts.append(msgspec.structs.replace(found, made_of=made_of))
    wrong = "The answer contained no valid fact." if rows and not drafts else ""
    return DistillationResult(drafts=tuple(drafts), superseded=tuple(superseded.items()), wrong=wrong)


def unchanged(facts: Sequence[Fact]) -> DistillationResult:
    """Return the facts unchanged; deduplication drops repetitions later."""
    drafts = tuple(
        FactDraft(
            content=fact.content,
            type=fact.type,
            tags=tuple(tag for tag in fact.tags if ":" not in tag),
            importance=fact.importance,
            made_of=(fact.id,),
        )
        for fact in facts
    )
    return DistillationResult(drafts=drafts)


def _numbered(row: object, name: str, facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts, numbered from 1, that a row refers to."""
    numbers = row.get(name) if isinstance(row, Mapping) else None
    if not isinstance(numbers, list):
        return []
    valid = dict.fromkeys(n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= len(facts))
    return [facts[number - 1] for number in valid]
