"""Reading and verifying a log: its chain is read line by line, and its end is classified as whole, torn or damaged.

A tail is torn if no whole line follows it and it lacks its newline or contains NUL: that is what a crash leaves of bytes
that were never reported durable. Everything else that does not verify is damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress

import msgspec

from sessions.events.codec import FIRST, InvalidLine, decode, is_complete_line, seq_of, verify
from sessions.events.errors import JournalDamaged, UnknownSession
from sessions.events.events import Recorded
from sessions.store.protocols import LONGEST_LINE, START, Lines, LogReader, Position

PAGE_BYTES = 1024 * 1024
"""Bytes of lines that are read at a time."""


class VerificationResult(msgspec.Struct, frozen=True, kw_only=True):
    """A log whose lines up to `last` verify; the `torn` bytes after it were never acknowledged."""

    events: int
    bytes: int
    last: Position
    torn: int


class StoredLog(msgspec.Struct, frozen=True):
    """One log of a store, for reading. All methods block; they raise UnknownSession, StorageFailed and JournalDamaged."""

    reader: LogReader
    session: str

    def read(self) -> AbstractContextManager[Lines]:
        """Open the log; see `LogReader.read`."""
        return self.reader.read(self.session)

    def verify(self) -> VerificationResult:
        """Verify the whole log, even while another process appends to it."""
        with self.read() as lines:
            last = verify_lines(lines, START, lambda _: None)
            return VerificationResult(events=last.seq, bytes=lines.size, last=last, torn=lines.size - last.offset)

    def lines(self, first: int, limit: int) -> list[bytes]:
        """Return the verified lines from seq `first` (at least 1) on: about `limit` bytes, and at least one line if there is
        one. A torn tail is left out."""
        with self.read() as lines:
            return read_lines(lines, first, limit)

    def events(self, first: int = 1) -> Iterator[Recorded]:
        """Yield the events from seq `first` on, in order."""
        seq = first
        while lines := self.lines(seq, PAGE_BYTES):
            for line in lines:
                try:
                    yield decode(line)
                except InvalidLine as error:
                    raise JournalDamaged(self.session, seq, str(error), good_seq=seq - 1) from error
                seq += 1


def last_seq(logs: LogReader, session: str) -> int:
    """Return the seq of the last whole line of a log, 0 if there is none. Nothing is verified. Blocks; raises
    StorageFailed."""
    with suppress(UnknownSession), logs.read(session) as lines:
        for line, _ in lines.backward():
            with suppress(InvalidLine):
                return seq_of(line)
    return 0


def read_lines(lines: Lines, first: int, limit: int, *, upto: int | None = None) -> list[bytes]:
    """Return the verified lines from seq `first` (at least 1) on, up to the offset `upto`: about `limit` bytes, and at least
    one line if there is one. A torn tail is left out. Raises JournalDamaged."""
    before = lines.position_before(first)
    if before is None:
        return []
    offset, digest = before.offset, before.sum
    found: list[bytes] = []
    following = lines.forward(before, upto)
    for line in following:
        if found and limit < len(line):
            break
        try:
            digest = verify(line, digest, first + len(found))
        except InvalidLine as invalid:
            if is_torn(line, following):
                break
            last = Position(seq=first + len(found) - 1, offset=offset, sum=digest)
            raise damage_after(lines.session, last, str(invalid)) from invalid
        found.append(line)
        limit -= len(line)
        offset += len(line)
    return found


def verify_lines(lines: Lines, after: Position, fold: Callable[[bytes], None], upto: int | None = None) -> Position:
    """Verify the lines between `after` and `upto` (default: the end), call `fold` with each, and return the position of the
    last.

    The bytes after it, if any, are a torn tail. Raises JournalDamaged, and whatever `fold` raises.
    """
    seq, offset, digest = after.seq, after.offset, after.sum
    following = lines.forward(after, upto)
    for line in following:
        try:
            if len(line) > LONGEST_LINE:
                raise InvalidLine("it is longer than the maximum line length")
            digest = verify(line, digest, seq + 1)
        except InvalidLine as invalid:
            last = Position(seq=seq, offset=offset, sum=digest)
            if is_torn(line, following):
                return last
            raise damage_after(lines.session, last, str(invalid)) from invalid
        fold(line)
        seq, offset = seq + 1, offset + len(line)
    return Position(seq=seq, offset=offset, sum=digest)


def verify_position(lines: Lines, position: Position) -> None:
    """Raise JournalDamaged, with line 0, unless the line that ends at a position has its seq and sum."""
    if position == START:
        return
    session = lines.session
    if position.offset > lines.size:
        end, offset = lines.size, position.offset
        why = f"acknowledged events are missing: it ends at byte {end}, but seq {position.seq} was at byte {offset}"
        raise JournalDamaged(session, 0, why)
    backward = lines.backward(position.offset)
    line, _ = next(backward, (b"", 0))
    before = FIRST if len(line) == position.offset else next(backward, (b"", 0))[0][-19:-3]
    try:
        digest = verify(line, before, position.seq)
    except InvalidLine as invalid:
        why = f"the line that ends at byte {position.offset} is not seq {position.seq}"
        raise JournalDamaged(session, 0, why) from invalid
    if digest != position.sum:
        raise JournalDamaged(session, 0, f"seq {position.seq} differs from the acknowledged event with this number")


def damage_after(session: str, last: Position, reason: str) -> JournalDamaged:
    """Return the error for the line after `last`. Its number is also its seq, because seqs start at 1 without gaps."""
    return JournalDamaged(session, last.seq + 1, reason, good_seq=last.seq, good_end=last.offset)


def is_torn(line: bytes, following: Iterator[bytes]) -> bool:
    """Return True if a line that does not verify begins a torn tail; `following` are the lines after it."""
    if len(line) > LONGEST_LINE or (line.endswith(b"\n") and 0 not in line):
        return False
    return not any(is_complete_line(later) for later in following)
