"""The header of a session's log: its first line, or, in a fork, the line after the copied ones. And new session ids."""

from __future__ import annotations

import secrets
from datetime import datetime

import msgspec

from sessions.events.codec import FIRST, InvalidLine, decode, seq_of, verify
from sessions.events.events import FORMAT, MAIN_AGENT, Recorded, SessionForked, SessionOpened, Succession
from sessions.store.protocols import START, Lines

FIRST_LINE = 64 * 1024
"""Maximum length in bytes of such a line, which holds only a few short names."""

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""The characters of the last part of a session's id: without those that look alike."""


def new_session_id(now: datetime) -> str:
    """Return a new id, such as `20261121-031241-7k2m9q`: the time, and six random characters."""
    return f"{now:%Y%m%d-%H%M%S}-{random_suffix()}"


def random_suffix() -> str:
    """Return six random characters of an id that a person may type."""
    return "".join(secrets.choice(ALPHABET) for _ in range(6))


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
    agent: str = MAIN_AGENT


def read_header(lines: Lines) -> JournalHeader:
    """Read the header of a session's log. Of a fork, all lines up to its own first one are read. Blocks; raises
    InvalidLine."""
    session = lines.session
    line = next(lines.forward(START, FIRST_LINE), b"")
    try:
        verify(line, FIRST, 1)
        recorded = decode(line)
    except InvalidLine as error:
        raise InvalidLine(f"its first line does not open a session: {error}") from error
    opened = recorded.event
    if not isinstance(opened, SessionOpened):
        raise InvalidLine("its first line does not open a session")
    if opened.format > FORMAT:
        raise InvalidLine(f"its format is {opened.format}, but this version supports only up to {FORMAT}")
    if opened.session == session:
        return JournalHeader(
            session=session,
            key=opened.key,
            person=opened.person,
            at=recorded.at,
            succeeds=opened.succeeds,
            agent=opened.agent,
        )
    forked = _fork(lines)
    if forked is None or not isinstance(forked.event, SessionForked):
        raise InvalidLine(f"it is the journal of {opened.session}, renamed")
    event = forked.event
    return JournalHeader(
        session=session,
        key=event.key,
        person=opened.person,
        at=forked.at,
        parent=event.parent,
        seq=forked.seq,
        agent=opened.agent,
    )


def read_agent(lines: Lines) -> str:
    """Return the agent of a session from the first line of its log, which of a fork is its parent's. Blocks; raises
    InvalidLine."""
    line = next(lines.forward(START, FIRST_LINE), b"")
    verify(line, FIRST, 1)
    opened = decode(line).event
    return opened.agent if isinstance(opened, SessionOpened) else MAIN_AGENT


def _fork(lines: Lines) -> Recorded | None:
    """Return the event that created the fork of this name; None if it is not in a line of an intact chain. A byte search is
    safe, because quotation marks inside a text are escaped."""
    mark = b'"kind":"session_forked","session":"%s"' % lines.session.encode()
    before = b""
    for line in lines.forward(START):
        if mark in line:
            try:
                verify(line, before[-19:-3], seq_of(line))
                return decode(line)
            except InvalidLine:
                return None
        before = line
    return None
