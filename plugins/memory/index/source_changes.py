"""What changed in the sources since a backend was told of them, and telling it."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence

import msgspec

from plugins.api.memory.memory_backend import Document, MemoryBackend
from plugins.api.memory.source import Source


# There may be tens of thousands, which the garbage collector need not look through: none can be part of a cycle.
class Due(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A document that the index does not know as it is now. `state` is the source's, from the last reading."""

    source: Source
    path: str
    stamp: str
    state: str


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the sources found: how many documents there are by source, which are to be read, which are gone,
    which are too large, and what the sources remark."""

    documents: Counter[str]
    due: tuple[Due, ...]
    gone: tuple[str, ...]
    large: tuple[str, ...]
    remarks: tuple[str, ...]


class RefreshResult(msgspec.Struct, frozen=True, kw_only=True):
    """The documents that were read, those that could not be, and what is left, of which the first may be read in part."""

    read: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    left: tuple[Due, ...] = ()


def changes(index: MemoryBackend, sources: Sequence[Source]) -> Changes:
    """What is to be done to know the sources as they are now. Takes as long as they take to list."""
    known = index.known()
    stamps = {path: stamp for path, (stamp, _) in known.items()}
    listings = [(source, source.there(stamps)) for source in sources]
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
    """Read the documents in turn until the time is up, some of one at least if there is one; what cannot be read is
    forgotten."""
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
            elif reading.more:  # without its stamp, so that it is due if this ends here
                left.appendleft(msgspec.structs.replace(each, state=reading.state))
                yield Document(path=each.path, source=each.source.name, stamp="", reading=reading)
            else:
                read.append(each.path)
                yield Document(path=each.path, source=each.source.name, stamp=each.stamp, reading=reading)
            if time.monotonic() > until:
                return

    index.take(documents())
    if unreadable:
        index.forget(unreadable)
    return RefreshResult(read=tuple(read), unreadable=tuple(unreadable), left=tuple(left))


def refresh(index: MemoryBackend, sources: Sequence[Source]) -> RefreshResult:
    """Have the index know the sources as they are now, however long it takes."""
    found = changes(index, sources)
    if found.gone:
        index.forget(found.gone)
    return take_in(index, found.due)
