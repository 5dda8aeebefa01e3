"""Whether what a server gives as vectors are some: as many as were asked for, of numbers, with a direction. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import TypeAlias

from plugins.support.errors import BadAnswer

Vector: TypeAlias = list[float]

_CLOSE = 1e-3
"""By how much the length of a vector may differ from 1 to be taken for 1: servers round."""


def checked(vectors: Sequence[Vector], count: int) -> list[Vector]:
    """The vectors, each of length 1; BadAnswer unless there are as many, all with equally many numbers, finite and not all
    zero."""
    if len(vectors) != count:
        raise BadAnswer(f"The server gave {len(vectors)} vectors for {count} texts.")
    return [unit(vector) for vector in same_length(vectors)]


def same_length(vectors: Sequence[Vector]) -> Sequence[Vector]:
    """The vectors as they are; BadAnswer where one has more numbers than another."""
    if len({len(vector) for vector in vectors}) > 1:
        raise BadAnswer("The server gave vectors of different lengths.")
    return vectors


def in_order(vectors: Sequence[Vector], places: Sequence[int | None]) -> list[Vector]:
    """The vectors in the order of the texts, by the place that the server tells with each; all as they come where it tells
    none. BadAnswer where a place is missing, doubled or none of a text's."""
    if all(place is None for place in places):
        return list(vectors)
    by_place = dict(zip(places, vectors, strict=True))
    if set(by_place) != set(range(len(vectors))):
        raise BadAnswer("The server gave vectors without saying, for each text once, which is whose.")
    return [by_place[place] for place in range(len(vectors))]


def unit(vector: Vector) -> Vector:
    """The vector with length 1; BadAnswer for one without a direction."""
    length = math.sqrt(sum(map(mul, vector, vector))) if vector else 0.0
    if not math.isfinite(length):
        raise BadAnswer("The server gave a vector with numbers that are not finite.")
    if length == 0.0:
        raise BadAnswer("The server gave a vector that is all zeros.")
    return vector if abs(length - 1.0) < _CLOSE else [number / length for number in vector]
