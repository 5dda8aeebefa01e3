"""Reading whole lines from a file of any size, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sessions.events.codec import FIRST, TRAILER
from sessions.store.protocols import LONGEST_LINE

BLOCK = 1024 * 1024


def lines_from(descriptor: int, offset: int, end: int, *, block: int = BLOCK) -> Iterator[bytes]:
    """Yield the lines of a file from `offset` to `end`, reading `block` bytes at a time.

    A piece without a newline is the last one, or part of a line longer than LONGEST_LINE, which is yielded in several
    pieces.
    """
    rest = b""
    while offset < end:
        read = os.pread(descriptor, min(block, end - offset), offset)
        if not read:
            break  # the file is shorter than `end`: another process removed its torn tail
        offset += len(read)
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


def start_of_line(descriptor: int, end: int) -> int:
    """Return the offset of the line whose newline is just before `end`, searching back no further than LONGEST_LINE."""
    begin = max(0, end - 1)
    lowest = max(0, end - LONGEST_LINE)
    step = 4096
    while begin > lowest:
        low = max(lowest, begin - step)
        found = os.pread(descriptor, begin - low, low).rfind(b"\n")
        if found >= 0:
            return low + found + 1
        begin, step = low, step * 4
    return lowest


def sum_before(descriptor: int, start: int) -> bytes:
    """Return the sum stated by the line that ends at `start`, unverified: the key of the line that begins there."""
    if start == 0:
        return FIRST
    return os.pread(descriptor, TRAILER, max(0, start - TRAILER))[-19:-3]
