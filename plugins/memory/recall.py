"""Selection of the search results that are added to a person's message. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from plugins.support.fencing import harmless
from sessions.events.events import RecalledHit
from sessions.events.tokens import estimate
from sessions.state.truncation import head_and_tail

if TYPE_CHECKING:
    from plugins.memory.search.search import Hit

# Measured on a conversation of LoCoMo (Maharana et al., ACL 2024) with the bundled model, four results each: of 150
# questions that it answers, 65 % are given an answering turn (73 % without any minimum), of 30 everyday requests that have
# nothing to do with it, one is given something. By words alone it is 31 % and 17 %.
#
# A cosine says that only of a model that was measured. With multilingual-e5-small 0.40 lets 75 % of 40 answering turns
# through, and for 2 of those 30 requests one of a hundred turns; 0.35 one for 11 of them.
NEAR = {"all-minilm-l6-v2-int8": 0.35, "multilingual-e5-small": 0.40}
"""Minimum cosine of a relevant chunk, by embedding model."""

COVERED, COVERED_ALONE = 0.6, 0.5
"""The share of the question's words from which on it is by its words; and where no vector was compared."""

FRAME = 24
"""Tokens of the line above a hit."""

LEAST = 40
"""Minimum tokens for which a hit is truncated rather than dropped."""


def is_relevant(hit: Hit, near: float | None) -> bool:
    """Return True if a hit is relevant to the question, and not just the best of what there is.

    Args:
        hit: The search result.
        near: Minimum cosine of a relevant chunk, None if unknown for the model.
    """
    found = hit.ranked.candidate
    if found.cosine is None or near is None:
        return found.covered >= COVERED_ALONE
    return found.cosine >= near or found.covered >= COVERED


def select_hits(
    hits: Iterable[Hit], *, near: float | None, results: int, tokens: int, known: Callable[[Hit], bool]
) -> tuple[RecalledHit, ...]:
    """Of hits, best first, those that are relevant and not `known` to the model already: at most so many, which together
    take at most so many estimated tokens; the last may be cut."""
    taken: list[RecalledHit] = []
    for hit in hits:
        room = tokens - FRAME
        if len(taken) == results or room < LEAST:
            break
        if is_relevant(hit, near) and not known(hit):
            shown = _shown(hit, room)
            taken.append(shown)
            tokens -= FRAME + estimate(shown.text)
    return tuple(taken)


def _shown(hit: Hit, room: int) -> RecalledHit:
    text = harmless(hit.chunk.text)
    if (size := estimate(text)) > room:
        text = head_and_tail(text, len(text.encode()) * (room - LEAST // 2) // size)
    return RecalledHit(
        path=hit.chunk.path,
        lines=(hit.chunk.first, hit.chunk.last),
        digest=hit.chunk.digest(),
        text=text,
        score=round(hit.ranked.score, 4),
        headings=tuple(" ".join(harmless(heading).split()) for heading in hit.chunk.headings),
    )
