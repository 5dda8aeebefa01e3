"""What can go wrong with facts.

FactsError
├── FactsUnavailable  the log of the facts cannot be read or written now
└── NoSuchFact        no fact, or more than one, is meant by what was said
"""

from __future__ import annotations


class FactsError(Exception):
    """The root; `str(error)` is one sentence that a person can act on."""


class FactsUnavailable(FactsError):
    """The log of the facts is damaged, or its storage failed. It is left as it is."""


class NoSuchFact(FactsError):
    """A fact that was named is not there."""
