"""The folder of all journals, for reading: lines of files of any size are found by seq, without an index."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sessions.events.codec import FIRST, TRAILER, InvalidLine, is_complete_line, seq_of
from sessions.events.errors import StorageFailed, UnknownSession
from sessions.files.append_file import error_text
from sessions.store.protocols import LONGEST_LINE, Position, Stamp
from sessions.store.reading import damage_after, is_torn

SMALLEST_BLOCK = 16 * 1024
"""Bytes of the first read: often only a line or two are needed."""

LARGEST_BLOCK = 1024 * 1024

NEAR = 16 * 1024
"""Size in bytes of a range that is scanned instead of bisected."""

HEAD = 160
"""Bytes at the start of a line that contain its seq and its shape."""

SUFFIX = ".jsonl"

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


class FileLines:
    """The `Lines` of an open journal, up to its size when this was created."""

    def __init__(self, descriptor: int, session: str) -> None:
        self.session = session
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    def forward(self, after: Position, upto: int | None = None) -> Iterator[bytes]:
        # A piece without a newline is the last one, or part of a line longer than LONGEST_LINE, which comes in several.
        return self._from(after.offset, self.size if upto is None else min(upto, self.size))

    def backward(self, upto: int | None = None) -> Iterator[tuple[bytes, int]]:
        end = self.size if upto is None else min(upto, self.size)
        after, is_line, too_long = end, False, False  # about `rest`: its end, and whether a newline follows
        rest, size = b"", SMALLEST_BLOCK
        while end > 0:
            begin = max(0, end - size)
            block = os.pread(self._descriptor, end - begin, begin)
            if len(block) < end - begin:
                return  # another process truncated the file
            rest, *pieces = (block + rest).split(b"\n")
            for piece in reversed(pieces):
                if is_line and not too_long and len(piece) < LONGEST_LINE:
                    yield piece + b"\n", after
                after -= len(piece) + is_line
                is_line, too_long = True, False
            if len(rest) >= LONGEST_LINE:
                after, rest, too_long = after - len(rest), b"", True
            end, size = begin, min(2 * size, LARGEST_BLOCK)
        if is_line and not too_long:
            yield rest + b"\n", after

    def position_before(self, seq: int) -> Position | None:
        # By bisection: seqs have no gaps and are at the start of each line.
        low, high = 0, self.size  # the line begins at or after `low`, a line start, and before `high`
        while high - low > NEAR:
            middle = (low + high) // 2
            start = self._next_start(middle, high)
            there = None if start is None else self._seq_at(start)
            if start is None or there is None or there > seq:
                high = middle + 1
            else:
                low = start
        offset = self._walk(low, seq)
        return None if offset is None else Position(seq=seq - 1, offset=offset, sum=self._sum_before(offset))

    def start_of_line(self, end: int) -> int:
        """Return the offset of the line whose newline is just before `end`, searching back no further than LONGEST_LINE."""
        begin = max(0, end - 1)
        lowest = max(0, end - LONGEST_LINE)
        step = 4096
        while begin > lowest:
            low = max(lowest, begin - step)
            found = os.pread(self._descriptor, begin - low, low).rfind(b"\n")
            if found >= 0:
                return low + found + 1
            begin, step = low, step * 4
        return lowest

    def _from(self, offset: int, end: int) -> Iterator[bytes]:
        rest, size = b"", SMALLEST_BLOCK
        while offset < end:
            read = os.pread(self._descriptor, min(size, end - offset), offset)
            if not read:
                break  # the file is shorter than `end`: another process removed its torn tail
            offset, size = offset + len(read), min(2 * size, LARGEST_BLOCK)
            first, *others = read.split(b"\n")
            if not others:
                rest += first
            else:
                yield rest + first + b"\n"
                *whole, rest = others
                for line in whole:
                    yield line + b"\n"
            if len(rest) > LONGEST_LINE:
                yield rest
                rest = b""
        if rest:
            yield rest

    def _walk(self, start: int, seq: int) -> int | None:
        """Scan line by line from `start` to `seq`, and return its offset."""
        lines = self._from(start, self.size)
        last = Position(offset=start)
        for line in lines:
            if not is_complete_line(line):
                if is_torn(line, lines):
                    return None
                raise damage_after(self.session, last, "it is not an event line")
            there = seq_of(line)
            if there >= seq:
                return last.offset
            last = Position(seq=there, offset=last.offset + len(line))
        return None

    def _next_start(self, offset: int, high: int) -> int | None:
        """Return the offset of the first line that begins after `offset` and before `high`."""
        step = 4096
        while offset < high:
            block = os.pread(self._descriptor, min(step, high - offset), offset)
            found = block.find(b"\n")
            if found >= 0:
                start = offset + found + 1
                return start if start < high else None
            if not block:
                return None
            offset, step = offset + len(block), min(step * 4, LONGEST_LINE)
        return None

    def _seq_at(self, start: int) -> int | None:
        """Return the seq of the line that begins at `start`; None in a torn tail or damage, which the scan reports."""
        try:
            return seq_of(os.pread(self._descriptor, HEAD, start))
        except InvalidLine:
            return None

    def _sum_before(self, start: int) -> bytes:
        """Return the sum stated by the line that ends at `start`, unverified: the key of the line that begins there."""
        return os.pread(self._descriptor, TRAILER, max(0, start - TRAILER))[-19:-3] if start else FIRST


class JournalFolder:
    """The journals in a folder, a `LogReader`: `folder/<session>.jsonl`. The folder need not exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, session: str) -> Path:
        """Return the path of a session's journal. Raises UnknownSession if the text cannot be a session id."""
        if not _SESSION.match(session):
            raise UnknownSession("Unknown session.")
        return self._folder / f"{session}{SUFFIX}"

    def read(self, session: str) -> AbstractContextManager[FileLines]:
        return open_lines(self._file(session))

    def stamp(self, session: str) -> Stamp | None:
        try:
            return stamp_of(self._file(session))
        except UnknownSession:
            return None

    def listed(self) -> Iterator[tuple[str, Stamp]]:
        try:
            with os.scandir(self._folder) as entries:
                named = sorted((entry.name.removesuffix(SUFFIX), entry) for entry in entries if entry.name.endswith(SUFFIX))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageFailed(f"{self._folder} cannot be listed: {error_text(error)}.") from error
        for session, entry in named:  # links and folders too, which cannot be read
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # deleted meanwhile
            yield session, _stamp(found) if stat.S_ISREG(found.st_mode) else Stamp(size=0, changed=0)

    def location(self, session: str) -> str:
        return str(self._file(session))

    def _file(self, session: str) -> Path:
        """Return the path of a file in the folder, which may be named unlike a journal. Raises UnknownSession."""
        if "/" in session or "\0" in session:
            raise UnknownSession("Unknown session.")
        return self._folder / f"{session}{SUFFIX}"


@contextmanager
def open_lines(path: Path) -> Iterator[FileLines]:
    """Open a journal for reading, as a context manager. Raises UnknownSession, StorageFailed."""
    try:
        descriptor = open_to_read(path)
        try:
            yield FileLines(descriptor, path.stem)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageFailed(f"{path.name} cannot be read: {error_text(error)}.") from error


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a journal, or None if there is none or it cannot be determined."""
    try:
        return _stamp(path.stat(follow_symlinks=False))
    except OSError:
        return None


def open_to_read(path: Path) -> int:
    """Return a descriptor of a journal. Raises UnknownSession if there is none, OSError if it cannot be opened."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe is no journal
    except FileNotFoundError:
        raise UnknownSession(f"Unknown session {path.stem}.") from None


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(size=found.st_size, changed=found.st_mtime_ns, identity=found.st_ino)
