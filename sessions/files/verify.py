"""Verification of a journal: its chain is read line by line, and its end is classified as whole, torn or damaged.

A tail is torn if no whole line follows it and it lacks its newline or contains NUL: that is what a crash leaves of bytes
that were never reported durable. Everything else that does not verify is damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sessions.events.codec import InvalidLine, is_complete_line, verify
from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.files.line_reader import lines_from, start_of_line, sum_before
from sessions.store.protocols import LONGEST_LINE, START, Position


class VerificationResult(msgspec.Struct, frozen=True, kw_only=True):
    """A journal whose lines up to `last` verify; the `torn` bytes after it were never acknowledged."""

    events: int
    bytes: int
    last: Position
    torn: int


def verify_journal(path: Path) -> VerificationResult:
    """Verify a whole journal, even while another process appends to it. Raises UnknownSession, JournalDamaged,
    StorageFailed."""
    with open_journal(path) as descriptor:
        size = os.fstat(descriptor).st_size
        last = verify_lines(descriptor, path, START, size, lambda _: None)
    return VerificationResult(events=last.seq, bytes=size, last=last, torn=size - last.offset)


@contextmanager
def open_journal(path: Path) -> Iterator[int]:
    """Open a journal for reading, as a context manager. Raises UnknownSession, StorageFailed."""
    try:
        descriptor = open_to_read(path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageFailed(f"{path.name} cannot be read: {error.strerror or error}.") from error


def open_to_read(path: Path) -> int:
    """Return a descriptor of a journal. Raises UnknownSession if there is none, OSError if it cannot be opened."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise UnknownSession(f"Unknown session {path.stem}.") from None


def verify_lines(descriptor: int, path: Path, after: Position, size: int, fold: Callable[[bytes], None]) -> Position:
    """Verify the lines between `after` and `size`, call `fold` with each, and return the position of the last.

    The bytes after it, if any, are a torn tail. Raises JournalDamaged, and whatever `fold` raises.
    """
    seq, offset, digest = after.seq, after.offset, after.sum
    lines = lines_from(descriptor, offset, size)
    for line in lines:
        try:
            if len(line) > LONGEST_LINE:
                raise InvalidLine("it is longer than the maximum line length")
            digest = verify(line, digest, seq + 1)
        except InvalidLine as invalid:
            last = Position(seq=seq, offset=offset, sum=digest)
            if is_torn(line, lines):
                return last
            raise damage_after(path, last, str(invalid)) from invalid
        fold(line)
        seq, offset = seq + 1, offset + len(line)
    return Position(seq=seq, offset=offset, sum=digest)


def verify_position(descriptor: int, path: Path, after: Position, size: int) -> None:
    """Raise JournalDamaged, with line 0, unless the line that ends at `after` has its seq and sum."""
    if after == START:
        return
    if after.offset > size:
        why = f"acknowledged events are missing: it ends at byte {size}, but seq {after.seq} was at byte {after.offset}"
        raise JournalDamaged(path, 0, why)
    start = start_of_line(descriptor, after.offset)
    line = os.pread(descriptor, after.offset - start, start)
    try:
        digest = verify(line, sum_before(descriptor, start), after.seq)
    except InvalidLine as invalid:
        raise JournalDamaged(path, 0, f"the line that ends at byte {after.offset} is not seq {after.seq}") from invalid
    if digest != after.sum:
        raise JournalDamaged(path, 0, f"seq {after.seq} differs from the acknowledged event with this number")


def damage_after(path: Path, last: Position, reason: str) -> JournalDamaged:
    """Return the error for the line after `last`. Its number is also its seq, because seqs start at 1 without gaps."""
    return JournalDamaged(path, last.seq + 1, reason, good_seq=last.seq, good_end=last.offset)


def is_torn(line: bytes, following: Iterator[bytes]) -> bool:
    """Return True if a line that does not verify begins a torn tail; `following` are the lines after it."""
    if len(line) > LONGEST_LINE or (line.endswith(b"\n") and 0 not in line):
        return False
    return not any(is_complete_line(later) for later in following)
