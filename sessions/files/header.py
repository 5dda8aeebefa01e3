"""The header of a journal: its first line, or, in a fork, the line after the copied ones. And new session ids."""

from __future__ import annotations

import os
import secrets
from datetime import datetime

import msgspec

from sessions.events.codec import FIRST, InvalidLine, decode, seq_of, verify
from sessions.events.events import FORMAT, Recorded, SessionForked, SessionOpened, Succession
from sessions.files.line_reader import BLOCK, start_of_line, sum_before

FIRST_LINE = 64 * 1024
"""Maximum length in bytes of such a line, which holds only a few short names."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_session_id(now: datetime) -> str:
    """Return a new id, such as `20261121-031241-7k2m9q`: the time, and six random characters."""
    return f"{now:%Y%m%d-%H%M%S}-" + "".join(secrets.choice(_ALPHABET) for _ in range(6))


class JournalHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a session: `at` is its time, `parent` the session that it was forked from, or empty. `seq` is that of
    the event with this information: in a fork, the first event of its own."""

    session: str
    key: str
    person: str
    at: str
    succeeds: Succession | None = None
    parent: str = ""
    seq: int = 1


def read_header(descriptor: int, session: str) -> JournalHeader:
    """Read the header of the journal of `session`. Of a fork, all bytes up to its own first line are read. Blocks; raises
    InvalidLine, OSError."""
    line, newline, _ = os.pread(descriptor, FIRST_LINE, 0).partition(b"\n")
    try:
        verify(line + newline, FIRST, 1)
        recorded = decode(line)
    except InvalidLine as error:
        raise InvalidLine(f"its first line does not open a session: {error}") from error
    opened = recorded.event
    if not isinstance(opened, SessionOpened):
        raise InvalidLine("its first line does not open a session")
    if opened.format > FORMAT:
        raise InvalidLine(f"its format is {opened.format}, but this version supports only up to {FORMAT}")
    if opened.session == session:
        return JournalHeader(session=session, key=opened.key, person=opened.person, at=recorded.at, succeeds=opened.succeeds)
    forked = _fork(descriptor, session)
    if forked is None or not isinstance(forked.event, SessionForked):
        raise InvalidLine(f"it is the journal of {opened.session}, renamed")
    event = forked.event
    return JournalHeader(
        session=session, key=event.key, person=opened.person, at=forked.at, parent=event.parent, seq=forked.seq
    )


def _fork(descriptor: int, session: str) -> Recorded | None:
    """Return the event that created the fork of this name. A byte search is safe, because quotation marks inside a text are
    escaped."""
    mark = b'"kind":"session_forked","session":"%s"' % session.encode()
    offset, before = 0, b""
    while block := os.pread(descriptor, BLOCK, offset):
        if (found := (before + block).find(mark)) >= 0:
            return _line_at(descriptor, offset - len(before) + found)
        offset += len(block)
        before = (before + block)[-len(mark) :]
    return None


def _line_at(descriptor: int, inside: int) -> Recorded | None:
    """Return the event whose line includes an offset; None if it is not a line of an intact chain."""
    line, newline, _ = os.pread(descriptor, FIRST_LINE, start := start_of_line(descriptor, inside)).partition(b"\n")
    try:
        verify(line + newline, sum_before(descriptor, start), seq_of(line))
        return decode(line)
    except InvalidLine:
        return None
