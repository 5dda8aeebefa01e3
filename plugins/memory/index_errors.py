"""Errors of the memory index."""

from __future__ import annotations


class BackendFailed(Exception):
    """A backend cannot be used; `str(error)` is the reason, as the end of a sentence."""


class IndexRebuilt(Exception):
    """The index was damaged or deleted and is empty now: everything has to be indexed again."""
