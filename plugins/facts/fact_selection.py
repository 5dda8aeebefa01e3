"""Selection of the facts that are added to a person's message. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from plugins.api.fact_values import Fact
from plugins.facts.facts import DOCUMENT
from plugins.facts.scoring import RecallStats, equivalent_facts
from plugins.support.fencing import harmless
from sessions.events.events import RecalledHit
from sessions.events.tokens import estimate

COVERED = 0.34
"""Minimum share of the message's weight that a fact must match."""

MOST = 8
"""Maximum facts per message."""

FRAME = 20
"""Tokens of the line above a fact."""


def select_facts(
    found: Iterable[RecallStats], *, tokens: int, known: Set[str], line: Callable[[Fact], int]
) -> tuple[RecalledHit, ...]:
    """Select relevant facts that the model does not know yet, without repetitions, within a token budget.

    Args:
        found: Recalled facts, best first.
        tokens: Maximum estimated tokens.
        known: Ids of facts that the model was already shown.
        line: Returns the line of a fact in its log.
    """
    taken: list[RecalledHit] = []
    told: list[Fact] = []
    for each in found:
        text = harmless(each.fact.content)
        size = FRAME + estimate(text)
        if len(taken) == MOST or size > tokens:
            break
        if each.overlap >= COVERED and each.fact.id not in known and not equivalent_facts(each.fact.content, told):
            tokens -= size
            told.append(each.fact)
            taken.append(_hit(each, text, line(each.fact)))
    return tuple(taken)


def _hit(recalled: RecallStats, text: str, line: int) -> RecalledHit:
    fact = recalled.fact
    return RecalledHit(
        path=DOCUMENT,
        lines=(line, line),
        digest=fact.id,
        text=text,
        score=round(recalled.score, 4),
        headings=(f"{fact.type}, {fact.created[:10]}",),
    )
