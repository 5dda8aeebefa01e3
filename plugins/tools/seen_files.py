"""What a session has seen of each file, so that nothing is overwritten that it does not know.

The file tools of one workspace share one `SeenFiles`. It lives in memory: after a restart a file is read again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

MOST_SEEN = 4096
"""Files remembered, of all sessions together; the one that was used longest ago is forgotten first."""

MOST_PIECES = 100
"""Pieces of one file that are remembered; of a file that is read in more, those farthest behind are forgotten."""

_shared: WeakValueDictionary[Path, SeenFiles] = WeakValueDictionary()


class KnownFile(msgspec.Struct, frozen=True, gc=False):
    """What a session knows of a file: which version, and of that the lines in `pieces`, each from a line to the one before
    another, counted from 1, in order and apart from each other."""

    digest: bytes
    pieces: tuple[tuple[int, int], ...]

    def is_of(self, content: bytes) -> bool:
        """Whether this is the version that was seen."""
        return self.digest == _digest(content)

    def unseen(self, content: bytes) -> tuple[int, int] | None:
        """The first and the last line of the first piece of this version that was not seen; None if all of it was."""
        end = lines_in(content) + 1
        first = self.pieces[0][1] if self.pieces and self.pieces[0][0] == 1 else 1
        if first >= end:
            return None
        return first, min([start for start, _ in self.pieces if start > first] + [end]) - 1


class SeenFiles:
    """What the sessions have seen of one workspace. `changing` is held while a file is changed, so that no tool changes a
    file between another's reading and writing of it."""

    def __init__(self) -> None:
        self.changing = threading.Lock()
        self._known: OrderedDict[tuple[str, tuple[str, ...]], KnownFile] = OrderedDict()
        self._guard = threading.Lock()

    def note(self, session: str, parts: tuple[str, ...], content: bytes, piece: tuple[int, int]) -> None:
        """The session was shown these lines of this content, from one to the one before another, beside those of it that it
        was shown before."""
        digest = _digest(content)
        with self._guard:
            known = self._known.get((session, parts))
            pieces = known.pieces if known is not None and known.digest == digest else ()
            self._put(session, parts, KnownFile(digest, _joined((*pieces, piece))[:MOST_PIECES]))

    def note_change(self, session: str, parts: tuple[str, ...], before: bytes, after: bytes) -> None:
        """The session itself made one content of another that it knew. It knows all of it if it knew all before; else what
        it knew of the lines before the first that changed, since those behind have other numbers now."""
        with self._guard:
            known = self._known.get((session, parts))
            if known is None or not known.is_of(before):
                return
            whole = known.unseen(before) is None
            end = lines_in(after) + 1 if whole else _first_difference(before, after)
            pieces = ((1, end),) if whole else tuple((a, min(b, end)) for a, b in known.pieces if a < end)
            self._put(session, parts, KnownFile(_digest(after), pieces))

    def known(self, session: str, parts: tuple[str, ...]) -> KnownFile | None:
        """What the session has seen of a file."""
        with self._guard:
            return self._known.get((session, parts))

    def _put(self, session: str, parts: tuple[str, ...], known: KnownFile) -> None:
        self._known[session, parts] = known
        self._known.move_to_end((session, parts))
        while len(self._known) > MOST_SEEN:
            self._known.popitem(last=False)


def seen_files(workspace: Path) -> SeenFiles:
    """The one of this workspace, kept as long as one of its tools is."""
    return _shared.setdefault(workspace, SeenFiles())


def lines_in(content: bytes) -> int:
    """How many lines a file has, the last one also without a line end."""
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def _joined(pieces: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The same lines in as few pieces as possible."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(piece for piece in pieces if piece[0] < piece[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def _first_difference(before: bytes, after: bytes) -> int:
    """The first line in which two contents differ."""
    low, high = 0, min(len(before), len(after))
    while low < high:  # they have the first `low` bytes in common, and not more than `high`
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
    return before.count(b"\n", 0, low) + 1


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()
