"""A cache for functions of short texts, with bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

R = TypeVar("R")

LONGEST = 256
"""The maximum length in characters of the first argument of a cached result."""


def bounded_cache(most: int) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that caches the last `most` results of a pure function whose first argument is a text.

    Unlike `functools.lru_cache`, it limits the memory of the arguments: results for texts of more than `LONGEST` characters
    are not cached.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        cached = lru_cache(most)(function)

        @wraps(function)
        def call(text: str, *more: str) -> R:
            return cached(text, *more) if len(text) <= LONGEST else function(text, *more)

        return call

    return decorate
