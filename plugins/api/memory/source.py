"""The protocol of document sources.

A source lists documents and reads them into chunks; the index reads documents again when they change and removes those that
are gone. Each chunk records the name of its source, so that sources can be searched separately.

To add one, implement these methods in a new module, add its name to `memory_settings.SourceName`, with which
`memory.sources` enables it, and pass it to `Memory` where the gateway creates it. Paths of its documents must differ from
those of other sources. Methods block, are called one at a time in a thread of the memory, and never change documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from plugins.api.memory.chunks import Chunk
from plugins.api.memory.scope import Scope


class WatchedFolders(msgspec.Struct, frozen=True, kw_only=True):
    """Folders to watch: `flat` without and `deep` with their subfolders."""

    flat: frozenset[Path] = frozenset()
    deep: frozenset[Path] = frozenset()

    def __or__(self, other: WatchedFolders) -> WatchedFolders:
        return WatchedFolders(flat=self.flat | other.flat, deep=self.deep | other.deep)


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The documents of a source.

    Attributes:
        stamps: A stamp for each path, which changes when the document must be read again.
        remarks: Messages about other documents, as sentences.
        large: The paths of documents that are too large to be read.
    """

    stamps: Mapping[str, str]
    remarks: tuple[str, ...] = ()
    large: tuple[str, ...] = ()


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading a document.

    Attributes:
        chunks: All chunks that begin at line `since` or later. The index keeps the chunks of earlier lines.
        since: The first line that was read.
        state: An opaque value that the source receives on the next reading, such as an offset.
        more: The document is too long to be read at once; read on with this state.
    """

    chunks: Sequence[Chunk]
    since: int = 1
    state: str = ""
    more: bool = False


class Source(Protocol):
    """Documents of one kind. `name` identifies it in `memory.sources` and in a `Scope`."""

    name: str

    def watched(self) -> WatchedFolders:
        """Return the existing folders in which documents are written or removed.

        The index scans the source when Markdown files or folders change there. Empty for a source that is only scanned on
        searches and by `Memory.wake`.
        """
        ...

    def list_documents(self, known: Mapping[str, str]) -> Listing:
        """List all documents.

        Args:
            known: The stamps of the documents in the index. A document that has grown only a little may keep its old stamp.
        """
        ...

    def read(self, path: str, state: str) -> Reading | None:
        """Read a document, or return None if it cannot be read.

        Args:
            path: The path of the document.
            state: The state from its last reading, or "".
        """
        ...

    def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        """Return lines of a document as they may be shown in a scope.

        Args:
            path: The path of the document.
            first: The first line, counted from 1.
            lines: The maximum number of lines.
            scope: The documents that may be shown.

        Returns:
            The lines; "" if the document does not exist or is not in the scope; None if the path cannot belong to this
            source.
        """
        ...
