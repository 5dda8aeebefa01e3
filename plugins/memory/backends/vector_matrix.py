"""Vectors compared one by one, with numpy if it is installed."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from operator import mul
from typing import Any


class Vectors:
    """Normalised vectors of `dimensions` numbers, by digest."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self._rows: dict[str, int] = {}
        self._numbers = array("f")

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, digest: object) -> bool:
        return digest in self._rows

    def put(self, digest: str, vector: Sequence[float]) -> None:
        """Store a vector.

        Raises:
            ValueError: It has the wrong length.
        """
        if len(vector) != self.dimensions:
            raise ValueError(f"a vector has {len(vector)} dimensions instead of {self.dimensions}")
        scaled = _scaled(vector)
        if digest in self._rows:
            begin = self._rows[digest] * self.dimensions
            self._numbers[begin : begin + self.dimensions] = scaled
        else:
            self._rows[digest] = len(self._rows)
            self._numbers += scaled

    def items(self) -> Iterator[tuple[str, array[float]]]:
        """Yield each digest with its vector."""
        for digest, row in self._rows.items():
            yield digest, self._numbers[row * self.dimensions : (row + 1) * self.dimensions]

    def of(self, digests: Collection[str]) -> Vectors:
        """Return the vectors of these digests only."""
        kept = Vectors(self.dimensions)
        for digest, vector in self.items():
            if digest in digests:
                kept.put(digest, vector)
        return kept

    def cosines(self, vector: Sequence[float]) -> dict[str, float]:
        """Return the cosine of each vector with this one, from -1 to 1."""
        if len(vector) != self.dimensions:
            return {}
        products = _products(self._numbers, self.dimensions, _scaled(vector))
        return dict(zip(self._rows, products, strict=True))


def _scaled(vector: Sequence[float]) -> array[float]:
    length = math.sqrt(sum(map(mul, vector, vector))) or 1.0
    return array("f", [number / length for number in vector])


def _products(rows: array[float], dimensions: int, vector: array[float]) -> list[float]:
    try:
        np: Any = import_module("numpy")
    except ImportError:
        return [sum(map(mul, rows[at : at + dimensions], vector)) for at in range(0, len(rows), dimensions)]
    matrix = np.frombuffer(rows, np.float32).reshape(-1, dimensions) if rows else np.empty((0, dimensions), np.float32)
    products: list[float] = (matrix @ np.frombuffer(vector, np.float32)).tolist()
    return products
