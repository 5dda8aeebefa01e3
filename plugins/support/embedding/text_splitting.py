"""Splitting texts into batches and pieces for embedding. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from plugins.support.embedding.vector_checks import Vector, unit
from sessions.events.tokens import estimate

FEWEST = 32
"""The minimum length of a piece in characters."""

_GAP = re.compile(r"\s+")


def batches(texts: Sequence[str], most: int, total: int) -> Iterator[Sequence[str]]:
    """Yield the texts in batches of up to `most` texts and, unless one alone exceeds it, `total` tokens (0: no limit)."""
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
    """Split a text into pieces that fit, preferably at white space. Joined they are the text."""
    if fits(text) or len(text) < 2 * FEWEST:
        return [text]
    return [piece for half in halves(text) for piece in pieces(half, fits)]


def halves(text: str) -> tuple[str, str]:
    """Split a text near its middle, preferably at white space."""
    middle, reach = len(text) // 2, len(text) // 4
    gaps = [gap.end() for gap in _GAP.finditer(text, middle - reach, middle + reach)]
    cut = min(gaps, key=lambda place: abs(place - middle), default=middle)
    return text[:cut], text[cut:]


def together(vectors: Sequence[Vector], texts: Sequence[str]) -> Vector:
    """Return the vector of a text from those of its pieces: their mean, weighted by length."""
    if len(vectors) == 1:
        return vectors[0]
    weights = [len(text) for text in texts]
    return unit([sum(w * x for w, x in zip(weights, numbers, strict=True)) for numbers in zip(*vectors, strict=True)])
