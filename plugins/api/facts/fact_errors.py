"""Errors of the facts.

FactsError
├── FactsUnavailable  the facts log cannot be read or written now
└── NoSuchFact        the given name matches no fact, or more than one
"""

from __future__ import annotations


class FactsError(Exception):
    """The base class. `str(error)` is a one-sentence message for people."""


class FactsUnavailable(FactsError):
    """The facts log is damaged or its storage failed. The file is left unchanged."""


class NoSuchFact(FactsError):
    """No fact, or more than one, matches the given name."""
