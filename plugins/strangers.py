"""Calling code that may raise anything: a stranger's plugin while it is imported, inspected and asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SENTENCE = 300
"""Characters of a stranger's error that are worth showing."""


class StrangerFailed(Exception):
    """A stranger's code raised; `str(error)` names what, on one line."""


def attempt(call: Callable[[], T]) -> T:
    """Return what `call` returns; StrangerFailed when it raises anything at all, `SystemExit` included.

    Only KeyboardInterrupt passes: that is the person at the terminal, whoever's code was running. A StrangerFailed that
    was raised further in stays as it is.
    """
    try:
        return call()
    except (KeyboardInterrupt, StrangerFailed):
        raise
    except BaseException as error:
        raise StrangerFailed(_described(error)) from error


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:
        text = ""
    printable = "".join(character if character.isprintable() else " " for character in text)
    words = " ".join(printable.split())[:SENTENCE]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
