"""What a search of the memory may raise."""

from __future__ import annotations


class IndexUnusable(Exception):
    """The index can be neither read nor made; `str(error)` is a sentence. The notes are as they were."""


class BackendFailed(Exception):
    """A backend cannot be used, now or later; `str(error)` is why, as the end of a sentence."""


class IndexRebuilt(Exception):
    """The index was harmed or gone and is begun anew: it has to be told everything again."""
