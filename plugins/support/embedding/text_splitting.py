"""How texts are laid out over requests: not too many in one, none too long, and nothing left out. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from plugins.support.embedding.vector_checks import Vector, unit
from sessions.events.tokens import estimate

FEWEST = 32
"""Characters that a piece of a text has at least: a model that takes no more has no use for notes."""

_GAP = re.compile(r"\s+")


def batches(texts: Sequence[str], most: int, total: int) -> Iterator[Sequence[str]]:
    """The texts in their order, at most `most` at once and, but for a text that is longer by itself, at most `total`
    estimated tokens; 0 is as many as there are."""
    first, tokens = 0, 0
    for place, text in enumerate(texts):
        more = estimate(text)
        if place > first and (place - first >= most or (total and tokens + more > total)):
            yield texts[first:place]
            first, tokens = place, 0
        tokens += more
    if texts:
        yield texts[first:]


def pieces(text: str, fits: Callable[[str], bool]) -> list[str]:
    """The text in pieces that fit, cut where there is white space if there is any in the middle; one of fewer than twice
    `FEWEST` characters is not cut. Put together they are the text."""
    if fits(text) or len(text) < 2 * FEWEST:
        return [text]
    return [piece for half in halves(text) for piece in pieces(half, fits)]


def halves(text: str) -> tuple[str, str]:
    """The text in two pieces of about the same length, cut behind the white space that is nearest to its middle."""
    middle, reach = len(text) // 2, len(text) // 4
    gaps = [gap.end() for gap in _GAP.finditer(text, middle - reach, middle + reach)]
    cut = min(gaps, key=lambda place: abs(place - middle), default=middle)
    return text[:cut], text[cut:]


def together(vectors: Sequence[Vector], texts: Sequence[str]) -> Vector:
    """The vector of a text out of those of its pieces: their mean, each counting by its length."""
    if len(vectors) == 1:
        return vectors[0]
    weights = [len(text) for text in texts]
    return unit([sum(w * x for w, x in zip(weights, numbers, strict=True)) for numbers in zip(*vectors, strict=True)])
