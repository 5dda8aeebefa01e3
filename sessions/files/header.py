"""Whose a journal is: its first line says so, or, in a fork, the line behind what was copied. And the names of new ones."""

from __future__ import annotations

import os
import secrets
from datetime import datetime

import msgspec

from sessions.events.codec import FIRST, InvalidLine, decode, seq_of, verify
from sessions.events.events import FORMAT, Recorded, SessionForked, SessionOpened, Succession
from sessions.files.line_reader import BLOCK, start_of_line, sum_before

FIRST_LINE = 64 * 1024
"""Bytes within which such a line must end; it holds a few short names."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_session_id(now: datetime) -> str:
    """`20261121-031241-7k2m9q`: when it was opened, and six random characters."""
    return f"{now:%Y%m%d-%H%M%S}-" + "".join(secrets.choice(_ALPHABET) for _ in range(6))


class JournalHeader(msgspec.Struct, frozen=True, kw_only=True):
    """How a session began: `at` is when, `parent` the session that it is a fork of ("" if of none). `seq` is that of the
    event that says so: of a fork, the first that is its own."""

    session: str
    key: str
    person: str
    at: str
    succeeds: Succession | None = None
    parent: str = ""
    seq: int = 1


def beginning(descriptor: int, session: str) -> JournalHeader:
    """The beginning of the journal of a session, whose name it has. Of a fork all bytes up to its own line are read.
    Blocks; raises InvalidLine, OSError."""
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
        raise InvalidLine(f"its format is {opened.format}, and this version reads up to {FORMAT}")
    if opened.session == session:
        return JournalHeader(session=session, key=opened.key, person=opened.person, at=recorded.at, succeeds=opened.succeeds)
    forked = _fork(descriptor, session)
    if forked is None or not isinstance(forked.event, SessionForked):
        raise InvalidLine(f"it is the journal of {opened.session}, under another name")
    event = forked.event
    return JournalHeader(
        session=session, key=event.key, person=opened.person, at=forked.at, parent=event.parent, seq=forked.seq
    )


def _fork(descriptor: int, session: str) -> Recorded | None:
    """The event that made a fork of this name. In a text its quotation marks would be escaped: bytes can be looked for."""
    mark = b'"kind":"session_forked","session":"%s"' % session.encode()
    offset, before = 0, b""
    while block := os.pread(descriptor, BLOCK, offset):
        if (found := (before + block).find(mark)) >= 0:
            return _line_at(descriptor, offset - len(before) + found)
        offset += len(block)
        before = (before + block)[-len(mark) :]
    return None


def _line_at(descriptor: int, inside: int) -> Recorded | None:
    """The event whose line covers an offset; None if that is no line of an intact chain."""
    line, newline, _ = os.pread(descriptor, FIRST_LINE, start := start_of_line(descriptor, inside)).partition(b"\n")
    try:
        verify(line + newline, sum_before(descriptor, start), seq_of(line))
        return decode(line)
    except InvalidLine:
        return None
