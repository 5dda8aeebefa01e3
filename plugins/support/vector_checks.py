"""Validating and normalizing vectors. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import TypeAlias

from plugins.support.errors import BadAnswer

Vector: TypeAlias = list[float]

_CLOSE = 1e-3
"""The tolerance for the length of a normalized vector, since servers round."""


def checked(vectors: Sequence[Vector], count: int) -> list[Vector]:
    """Return the vectors normalized to length 1.

    Raises:
        BadAnswer: Their number or lengths differ, or one has invalid numbers or is all zeros.
    """
    if len(vectors) != count:
        raise BadAnswer(f"The server returned {len(vectors)} vectors for {count} texts.")
    return [unit(vector) for vector in same_length(vectors)]


def same_length(vectors: Sequence[Vector]) -> Sequence[Vector]:
    """Return the vectors, or raise `BadAnswer` if their lengths differ."""
    if len({len(vector) for vector in vectors}) > 1:
        raise BadAnswer("The server returned vectors of different lengths.")
    return vectors


def in_order(vectors: Sequence[Vector], indices: Sequence[int | None]) -> list[Vector]:
    """Sort vectors by the index that the server returned with each; without any index the order is kept.

    Raises:
        BadAnswer: An index is missing, duplicate or out of range.
    """
    if all(index is None for index in indices):
        return list(vectors)
    by_index = dict(zip(indices, vectors, strict=True))
    if set(by_index) != set(range(len(vectors))):
        raise BadAnswer("The server returned vectors whose indexes do not match the texts.")
    return [by_index[index] for index in range(len(vectors))]


def unit(vector: Vector) -> Vector:
    """Return the vector normalized to length 1, or raise `BadAnswer` if it is all zeros or not finite."""
    length = math.sqrt(sum(map(mul, vector, vector))) if vector else 0.0
    if not math.isfinite(length):
        raise BadAnswer("The server returned a vector with numbers that are not finite.")
    if length == 0.0:
        raise BadAnswer("The server returned a vector that is all zeros.")
    return vector if abs(length - 1.0) < _CLOSE else [number / length for number in vector]
