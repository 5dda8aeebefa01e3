"""Reading the lines of a journal from the last to the first, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sessions.store.protocols import LONGEST_LINE

SMALLEST_BLOCK = 16 * 1024
"""Bytes of the first read: usually only the last line is needed."""

LARGEST_BLOCK = 1024 * 1024


def reversed_lines(descriptor: int, start: int, end: int) -> Iterator[tuple[bytes, int]]:
    """Yield each line between the offsets `start` and `end`, newline included, with the offset just after it; last line
    first.

    `start` must be the beginning of a line. Bytes after the last newline are skipped, and so are lines longer than
    LONGEST_LINE.
    """
    after, is_line, too_long = end, False, False  # about `rest`: its end, and whether a newline follows
    rest, size = b"", SMALLEST_BLOCK
    while end > start:
        begin = max(start, end - size)
        block = os.pread(descriptor, end - begin, begin)
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
