"""Selection of the search results that are added to a person's message. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from plugins.support.fencing import harmless
from sessions.events.events import RecalledHit
from sessions.events.tokens import estimate
from sessions.state.truncation import head_and_tail

if TYPE_CHECKING:
    from plugins.memory.search.search import Hit

# Measured on a conversation of LoCoMo (Maharana et al., ACL 2024) with the bundled model: of 30 everyday requests that have
# nothing to do with it, one is given something, and by keywords only 17 %.
#
# A cosine says that only of a model that was measured. With multilingual-e5-small 0.40 lets 75 % of 40 answering turns
# through, and for 2 of those 30 requests one of a hundred turns; 0.35 one for 11 of them.
MIN_COSINE = {"all-minilm-l6-v2-int8": 0.35, "multilingual-e5-small": 0.40}
"""Minimum cosine of a relevant chunk, by embedding model."""

MIN_COVERED, MIN_COVERED_ALONE = 0.6, 0.5
"""Minimum share of the question's words in a relevant chunk, whatever its cosine; and if it has none."""

FRAME_TOKENS = 24
"""Tokens of the line above a hit."""

MIN_TOKENS = 40
"""Minimum tokens for which a hit is truncated rather than dropped."""


def is_relevant(hit: Hit, min_cosine: float | None) -> bool:
    """Return True if a hit is relevant to the question, not just the best one found.

    Args:
        hit: The search result.
        min_cosine: Minimum cosine of a relevant chunk, None if unknown for the model.
    """
    found = hit.ranked.candidate
    if found.cosine is None or min_cosine is None:
        return found.covered >= MIN_COVERED_ALONE
    return found.cosine >= min_cosine or found.covered >= MIN_COVERED


def select_hits(
    hits: Sequence[Hit],
    *,
    min_cosine: float | None,
    calibrated: bool,
    results: int,
    tokens: int,
    known: Callable[[Hit], bool],
) -> tuple[RecalledHit, ...]:
    """Select relevant hits that are not `known` to the model, within a number of results and a budget of estimated tokens.

    If the search is calibrated for the model of the vectors, it leaves out hits with much less evidence than the best, so
    one relevant hit makes all of them relevant. The hits are given best first. The last one selected may be truncated.
    """
    all_relevant = calibrated and any(is_relevant(hit, min_cosine) for hit in hits)
    selected: list[RecalledHit] = []
    for hit in hits:
        room = tokens - FRAME_TOKENS
        if len(selected) == results or room < MIN_TOKENS:
            break
        if (all_relevant or is_relevant(hit, min_cosine)) and not known(hit):
            recalled = _recalled(hit, room)
            selected.append(recalled)
            tokens -= FRAME_TOKENS + estimate(recalled.text)
    return tuple(selected)


def _recalled(hit: Hit, room: int) -> RecalledHit:
    text = harmless(hit.chunk.text)
    if (size := estimate(text)) > room:
        text = head_and_tail(text, len(text.encode()) * (room - MIN_TOKENS // 2) // size)
    return RecalledHit(
        path=hit.chunk.path,
        lines=(hit.chunk.first, hit.chunk.last),
        digest=hit.chunk.digest(),
        text=text,
        score=round(hit.ranked.score, 4),
        headings=tuple(" ".join(harmless(heading).split()) for heading in hit.chunk.headings),
    )
