"""Whole lines out of a file of any size, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sessions.events.codec import CLOSING, FIRST
from sessions.store.recorder import LONGEST_LINE

BLOCK = 1024 * 1024


def lines_from(descriptor: int, offset: int, end: int, *, block: int = BLOCK) -> Iterator[bytes]:
    """The bytes of a file from `offset` to `end`, cut behind each newline, read `block` bytes at a time. A piece without
    a newline is the last, or belongs to a line longer than LONGEST_LINE, which comes in several pieces."""
    rest = b""
    while offset < end:
        read = os.pread(descriptor, min(block, end - offset), offset)
        if not read:
            break  # the file is shorter than `end`: another process cut its torn tail
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
    """Where the line begins whose newline is just before `end`; no further back than LONGEST_LINE."""
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
    """The sum that the line ending at `start` states, unchecked: the key of the line that begins there."""
    if start == 0:
        return FIRST
    return os.pread(descriptor, CLOSING, max(0, start - CLOSING))[-19:-3]
