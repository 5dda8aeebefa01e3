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
        raise failure_of(error) from error


def failure_of(error: BaseException) -> StrangerFailed:
    """What a stranger's code raised, as a failure that names it."""
    words, name = words_of(error), type(error).__name__[:SENTENCE]
    return StrangerFailed(f"{name}: {words}" if words else name)


def words_of(error: BaseException) -> str:
    """What an error says, on one line and not long; empty where it says nothing or cannot even do that."""
    try:
        text = str(error)[: 10 * SENTENCE]
    except BaseException:
        return ""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:SENTENCE]
