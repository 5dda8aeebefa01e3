"""The lines of a file of any size, read in bounded memory and found by seq without an index."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sessions.events.codec import FIRST, TRAILER, InvalidLine, is_complete_line, seq_of
from sessions.store.protocols import LONGEST_LINE, Position
from sessions.store.reading import damage_after, is_torn

SMALLEST_BLOCK = 16 * 1024
"""Bytes of the first read: often only a line or two are needed."""

LARGEST_BLOCK = 1024 * 1024

NEAR = 16 * 1024
"""Size in bytes of a range that is scanned instead of bisected."""

HEAD = 160
"""Bytes at the start of a line that contain its seq and its shape."""


class FileLines:
    """The `Lines` of an open journal, up to its size when this was created."""

    def __init__(self, descriptor: int, session: str) -> None:
        self.session = session
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    def forward(self, after: Position, upto: int | None = None) -> Iterator[bytes]:
        """Yield the lines after a position; see `Lines.forward`.

        A piece without a newline is the last one, or part of a line longer than LONGEST_LINE, which is yielded in several
        pieces.
        """
        return self._from(after.offset, self.size if upto is None else min(upto, self.size))

    def backward(self, upto: int | None = None) -> Iterator[tuple[bytes, int]]:
        """Yield the lines before an offset, last line first; see `Lines.backward`."""
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
        """Return the position before the line `seq`, found by bisection: seqs have no gaps and are at the start of each
        line. See `Lines.position_before`."""
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
