"""Where what can be found comes from: the contract of a source.

A source says which documents there are and reads one of them into chunks; the index does the rest: what changed is read
again, what is gone is forgotten, and every chunk keeps the name of its source, by which it can be searched apart.

To add one, write a class with these methods in a module of its own, give `settings.SourceName` its word, by which
`memory.sources` switches it on and off, and hand it to `Memory` where the gateway makes it. Its documents are named by
paths that no other source has. Methods block, are called in a thread of the memory's, one at a time, and never change what
they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from plugins.api.memory.chunks import Chunk
from plugins.api.memory.scope import Scope


class WatchedFolders(msgspec.Struct, frozen=True, kw_only=True):
    """Folders to be watched: `flat` for what lies in them alone, `deep` for all below them too."""

    flat: frozenset[Path] = frozenset()
    deep: frozenset[Path] = frozenset()

    def __or__(self, other: WatchedFolders) -> WatchedFolders:
        return WatchedFolders(flat=self.flat | other.flat, deep=self.deep | other.deep)


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The documents that there are, by their paths, each with a stamp that changes when it is to be read again; and what is
    to be known about others, in sentences. `large` are the paths of those that are too large to be read."""

    stamps: Mapping[str, str]
    remarks: tuple[str, ...] = ()
    large: tuple[str, ...] = ()


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a document. `chunks` are all that begin at the line `since` or later; those that the index has of
    earlier lines stay. `state` is given back at the next reading, and means something to the source alone: how far it
    came, say. `more`: the document was too long to be read at once, and is to be read on with this state."""

    chunks: Sequence[Chunk]
    since: int = 1
    state: str = ""
    more: bool = False


class Source(Protocol):
    """Documents of one kind. `name` is its word in `memory.sources` and in a `Scope`."""

    name: str

    def watched(self) -> WatchedFolders:
        """The folders in which something happens when a document is written or removed, as far as they exist: what is
        reported of Markdown files and folders there has the source looked at. Nothing for a source that is looked at
        by other occasions: each search, and `Memory.wake`."""
        ...

    def there(self, known: Mapping[str, str]) -> Listing:
        """All documents. `known` has the stamps with which they were read last: one that has grown too little to be worth
        it may keep its old one."""
        ...

    def read(self, path: str, state: str) -> Reading | None:
        """A document; `state` is that of its last reading, empty if there was none. None where it cannot be read."""
        ...

    def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        """Lines of a document as they are shown to whom the scope is of: from `first`, counted from 1, at most so many.
        Empty where there is no such document, or none in the scope; None for a path that no document of this source can
        have."""
        ...
