"""A cache for functions of short texts, with bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

R = TypeVar("R")

LONGEST = 256
"""Characters of the first argument up to which a result is kept."""


def bounded_cache(most: int) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that keeps the last `most` results of a pure function, whose first argument is somebody's text.

    `functools.lru_cache` bounds how many arguments it keeps and not how long they are: a few hundred names of megabytes, as
    one person can send them, would fill the memory. For a text of more than `LONGEST` characters nothing is kept.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        kept = lru_cache(most)(function)

        @wraps(function)
        def call(text: str, *more: str) -> R:
            return kept(text, *more) if len(text) <= LONGEST else function(text, *more)

        return call

    return decorate
