"""Rewriting a log on a person's order: lines lose content, and the sums are computed again from the first of them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from sessions.events.codec import FIRST, TRAILER, InvalidLine, encode_line, line_sum, verify
from sessions.events.errors import JournalDamaged
from sessions.store.protocols import START, Lines
from sessions.store.reading import is_torn

Change: TypeAlias = Callable[[bytes], bytes]
"""Returns a line with other fields, the same envelope and any sum; or the same object if nothing changes."""


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """An event to append to a rewritten log, and its time."""

    event: msgspec.Struct
    at: str


def rechained(lines: Lines, change: Change, last: Callable[[], Appended | None] = lambda: None) -> Iterator[bytes]:
    """Yield the verified lines of a log after a change, chained anew; a torn tail is left out.

    Args:
        lines: The log.
        change: Changes one line.
        last: Called after the last line; returns an event to append, or None.

    Raises:
        JournalDamaged: The log does not verify; what was yielded before must not replace it.
    """
    seq, before, digest, moved = 0, FIRST, FIRST, False
    following = lines.forward(START)
    for line in following:
        try:
            before = verify(line, before, seq + 1)
        except InvalidLine as invalid:
            if is_torn(line, following):
                break
            raise JournalDamaged(lines.session, seq + 1, str(invalid), good_seq=seq) from invalid
        seq += 1
        changed = change(line)
        if changed is line and not moved:
            digest = before
            yield line
            continue
        moved = True
        body = changed[:-TRAILER]
        digest = line_sum(body, digest)
        yield b'%s,"sum":"%s"}\n' % (body, digest)
    if (appended := last()) is not None:
        line, _ = encode_line(seq + 1, appended.at, None, appended.event, digest)
        yield line
