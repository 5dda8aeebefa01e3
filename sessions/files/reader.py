"""Reading a journal from any seq on without an index, by bisection: seqs have no gaps and are at the start of each line."""

from __future__ import annotations

import os
from pathlib import Path

from sessions.events.codec import InvalidLine, is_complete_line, seq_of, verify
from sessions.files.line_reader import BLOCK, lines_from, sum_before
from sessions.files.verify import damage_after, is_torn, open_journal
from sessions.store.protocols import LONGEST_LINE, Position

NEAR = 16 * 1024
"""Size in bytes of a range that is scanned instead of bisected."""

HEAD = 160
"""Bytes at the start of a line that contain its seq and its shape."""


def read_lines(path: Path, first: int, limit: int, *, upto: int | None = None) -> list[bytes]:
    """Return the verified lines from seq `first` (at least 1) on: about `limit` bytes, and at least one line if there is
    one.

    Reads up to offset `upto` (default: the end of the file). Safe while another process appends: a torn tail is left out.
    Blocks; raises UnknownSession, JournalDamaged, StorageFailed.
    """
    with open_journal(path) as descriptor:
        size = os.fstat(descriptor).st_size
        end = size if upto is None else min(size, upto)
        start = _find(descriptor, path, first, end)
        if start is None:
            return []
        before = Position(seq=first - 1, offset=start, sum=sum_before(descriptor, start))
        return _read(descriptor, path, before, limit, end)


def _read(descriptor: int, path: Path, last: Position, limit: int, end: int) -> list[bytes]:
    found: list[bytes] = []
    lines = lines_from(descriptor, last.offset, end, block=min(limit + HEAD, BLOCK))
    for line in lines:
        if found and limit < len(line):
            break
        try:
            digest = verify(line, last.sum, last.seq + 1)
        except InvalidLine as invalid:
            if is_torn(line, lines):
                break
            raise damage_after(path, last, str(invalid)) from invalid
        found.append(line)
        limit -= len(line)
        last = Position(seq=last.seq + 1, offset=last.offset + len(line), sum=digest)
    return found


def _find(descriptor: int, path: Path, seq: int, end: int) -> int | None:
    """Return the offset of the line `seq`, or None if the journal ends before it."""
    low, high = 0, end  # the line begins at or after `low`, a line start, and before `high`
    while high - low > NEAR:
        middle = (low + high) // 2
        start = _next_start(descriptor, middle, high)
        there = None if start is None else _seq_at(descriptor, start)
        if start is None or there is None or there > seq:
            high = middle + 1
        else:
            low = start
    return _walk(descriptor, path, low, seq, end)


def _walk(descriptor: int, path: Path, start: int, seq: int, end: int) -> int | None:
    """Scan line by line from `start` to `seq`, and return its offset."""
    lines = lines_from(descriptor, start, end, block=NEAR)
    last = Position(offset=start)
    for line in lines:
        if not is_complete_line(line):
            if is_torn(line, lines):
                return None
            raise damage_after(path, last, "it is not an event line")
        there = seq_of(line)
        if there >= seq:
            break
        last = Position(seq=there, offset=last.offset + len(line))
    else:
        return None
    return last.offset


def _next_start(descriptor: int, offset: int, high: int) -> int | None:
    """Return the offset of the first line that begins after `offset` and before `high`."""
    step = 4096
    while offset < high:
        block = os.pread(descriptor, min(step, high - offset), offset)
        found = block.find(b"\n")
        if found >= 0:
            start = offset + found + 1
            return start if start < high else None
        if not block:
            return None
        offset, step = offset + len(block), min(step * 4, LONGEST_LINE)
    return None


def _seq_at(descriptor: int, start: int) -> int | None:
    """Return the seq of the line that begins at `start`; None in a torn tail or damage, which the scan reports."""
    try:
        return seq_of(os.pread(descriptor, HEAD, start))
    except InvalidLine:
        return None
