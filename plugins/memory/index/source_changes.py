"""Detection and indexing of changed documents."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence

import msgspec

from plugins.api.memory.memory_backend import Document, MemoryBackend
from plugins.api.memory.source import Source


# gc=False: there may be tens of thousands, and none can be part of a cycle.
class Due(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A document that is not indexed in its current version. `state` is the source's from the last reading."""

    source: Source
    path: str
    stamp: str
    state: str


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking the sources: documents by source, those to read, deleted and too large ones, and remarks."""

    documents: Counter[str]
    due: tuple[Due, ...]
    gone: tuple[str, ...]
    large: tuple[str, ...]
    remarks: tuple[str, ...]


class RefreshResult(msgspec.Struct, frozen=True, kw_only=True):
    """The documents that were read, those that could not be, and those left, of which the first may be read in part."""

    read: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    left: tuple[Due, ...] = ()


def changes(index: MemoryBackend, sources: Sequence[Source]) -> Changes:
    """Compare the sources with the index. Takes as long as listing them."""
    known = index.known()
    stamps = {path: stamp for path, (stamp, _) in known.items()}
    listings = [(source, source.list_documents(stamps)) for source in sources]
    there = {path: (source, stamp) for source, each in reversed(listings) for path, stamp in each.stamps.items()}
    return Changes(
        documents=Counter(source.name for source, _ in there.values()),
        due=tuple(
            Due(source=source, path=path, stamp=stamp, state=known[path][1] if path in known else "")
            for path, (source, stamp) in there.items()
            if stamps.get(path) != stamp
        ),
        gone=tuple(path for path in known if path not in there),
        large=tuple(path for _, each in listings for path in each.large),
        remarks=tuple(remark for _, each in listings for remark in each.remarks),
    )


def take_in(index: MemoryBackend, due: Sequence[Due], seconds: float = math.inf) -> RefreshResult:
    """Index documents until the time is up, at least part of one. Unreadable ones are removed from the index."""
    until = time.monotonic() + seconds
    read: list[str] = []
    unreadable: list[str] = []
    left = deque(due)

    def documents() -> Iterator[Document]:
        while left:
            each = left.popleft()
            reading = each.source.read(each.path, each.state)
            if reading is None:
                unreadable.append(each.path)
            elif reading.more:  # no stamp yet, so that an interrupted document is read again
                left.appendleft(msgspec.structs.replace(each, state=reading.state))
                yield Document(path=each.path, source=each.source.name, stamp="", reading=reading)
            else:
                read.append(each.path)
                yield Document(path=each.path, source=each.source.name, stamp=each.stamp, reading=reading)
            if time.monotonic() > until:
                return

    index.store(documents())
    if unreadable:
        index.remove(unreadable)
    return RefreshResult(read=tuple(read), unreadable=tuple(unreadable), left=tuple(left))


def refresh(index: MemoryBackend, sources: Sequence[Source]) -> RefreshResult:
    """Index all changes, however long it takes."""
    found = changes(index, sources)
    if found.gone:
        index.remove(found.gone)
    return take_in(index, found.due)
