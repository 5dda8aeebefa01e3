"""The lines of each file that a session has read, so that a tool does not overwrite content the session has not seen.

The file tools of one workspace share one `SeenFiles`. It is kept in memory only: after a restart a file must be read again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

MAX_FILES = 4096
"""Maximum files remembered, of all sessions together; the least recently used is dropped first."""

MAX_RANGES = 100
"""Maximum line ranges remembered per file; beyond that the last ones are dropped."""

_shared: WeakValueDictionary[Path, SeenFiles] = WeakValueDictionary()


class KnownFile(msgspec.Struct, frozen=True, gc=False):
    """The version of a file that a session has read, and which of its lines.

    `ranges` are half-open line ranges, counted from 1, sorted and disjoint.
    """

    digest: bytes
    ranges: tuple[tuple[int, int], ...]

    def is_of(self, content: bytes) -> bool:
        """Return True if this is the version that was read."""
        return self.digest == _digest(content)

    def unseen(self, content: bytes) -> tuple[int, int] | None:
        """Return the first and last line of the first range that was not read, or None if all was."""
        end = count_lines(content) + 1
        first = self.ranges[0][1] if self.ranges and self.ranges[0][0] == 1 else 1
        if first >= end:
            return None
        return first, min([start for start, _ in self.ranges if start > first] + [end]) - 1


class SeenFiles:
    """The files that the sessions of one workspace have read.

    `changing` is held while a file is changed, so that no tool changes a file between another's read and write.
    """

    def __init__(self) -> None:
        self.changing = threading.Lock()
        self._known: OrderedDict[tuple[str, tuple[str, ...]], KnownFile] = OrderedDict()
        self._guard = threading.Lock()

    def note(self, session: str, parts: tuple[str, ...], content: bytes, seen_range: tuple[int, int]) -> None:
        """Record that a session was shown a half-open range of lines of this content."""
        digest = _digest(content)
        with self._guard:
            known = self._known.get((session, parts))
            ranges = known.ranges if known is not None and known.digest == digest else ()
            self._put(session, parts, KnownFile(digest, _merge((*ranges, seen_range))[:MAX_RANGES]))

    def note_change(self, session: str, parts: tuple[str, ...], before: bytes, after: bytes) -> None:
        """Record that a session itself changed the content of a file it knew.

        If it had read all of the file, it knows all of the new content; otherwise it keeps what it knew of the lines before
        the first change, since the numbers of later lines may have changed.
        """
        with self._guard:
            known = self._known.get((session, parts))
            if known is None or not known.is_of(before):
                return
            whole = known.unseen(before) is None
            end = count_lines(after) + 1 if whole else _first_difference(before, after)
            ranges = ((1, end),) if whole else tuple((a, min(b, end)) for a, b in known.ranges if a < end)
            self._put(session, parts, KnownFile(_digest(after), ranges))

    def known(self, session: str, parts: tuple[str, ...]) -> KnownFile | None:
        """Return what the session has read of a file, None for nothing."""
        with self._guard:
            return self._known.get((session, parts))

    def _put(self, session: str, parts: tuple[str, ...], known: KnownFile) -> None:
        self._known[session, parts] = known
        self._known.move_to_end((session, parts))
        while len(self._known) > MAX_FILES:
            self._known.popitem(last=False)


def seen_files(workspace: Path) -> SeenFiles:
    """Return the `SeenFiles` shared by the tools of a workspace."""
    return _shared.setdefault(workspace, SeenFiles())


def count_lines(content: bytes) -> int:
    """Return the number of lines, including a last one without a line ending."""
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def _merge(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Merge overlapping and adjacent ranges."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(seen_range for seen_range in ranges if seen_range[0] < seen_range[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def _first_difference(before: bytes, after: bytes) -> int:
    """Return the number of the first line in which two contents differ."""
    low, high = 0, min(len(before), len(after))
    while low < high:  # between `low` and `high` leading bytes are equal
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
    return before.count(b"\n", 0, low) + 1


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()
