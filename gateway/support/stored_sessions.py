"""Read-only access to stored sessions: listing and finding them, their entries for display, and their past requests.

Nothing here writes or locks, so it works while the gateway runs and while it does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import msgspec

from gateway.support.errors import GatewayError
from gateway.support.sentences import call_line, ending_sentence
from plugins.support.workspace import OWNER
from sessions.events.codec import InvalidLine, decode, is_complete_line
from sessions.events.errors import SessionsError
from sessions.events.events import (
    AttachmentsWithheld,
    CommandAnswered,
    MessageImported,
    MessageReceived,
    ModelReplied,
    Recorded,
    ReplyImported,
    RequestSent,
    SessionForked,
    ToolReturned,
    TurnEnded,
)
from sessions.events.handed_messages import child_of, result_in
from sessions.events.vision import text_with_attachments
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript, Unfolding
from sessions.store.header import JournalHeader, read_header
from sessions.store.protocols import Lines, LogReader, Stamp
from sessions.store.reading import StoredLog

_ID = re.compile(r"\A[A-Za-z0-9-]{1,64}\Z")


class SessionUnknown(GatewayError):
    """The home has no such session."""


class SessionListing(msgspec.Struct, frozen=True, kw_only=True):
    """One session in a listing.

    `events` is the seq of its last event, `at` the time of that event, `bytes` the size of its journal. `readable` is false
    if the header or the last line is invalid; `exuvia sessions verify` then reports more. `parent` is the session that it
    was forked from.
    """

    key: str
    session: str
    opened: str
    at: str
    events: int
    bytes: int
    readable: bool
    person: str = ""
    parent: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a conversation for display.

    `who` is person, assistant, tool or gateway; `detail` is the client of a person, the tool calls of an assistant, or the
    outcome of a tool.
    """

    seq: int
    at: str
    who: str
    text: str
    detail: str = ""


def session_listings(logs: LogReader) -> list[SessionListing]:
    """Return all sessions, the most recently used last. Raises StorageFailed."""
    found = (_listing(logs, session, stamp) for session, stamp in logs.listed())
    return sorted(found, key=lambda listing: (listing.at, listing.session))


def find_session(logs: LogReader, name: str, person: str | None = None) -> StoredLog:
    """Return the log of a session id, or of the newest session of a key.

    A key is looked up for `person`, by default for the owner, or for anybody if the owner does not use it. Raises
    SessionUnknown, StorageFailed.
    """
    if _ID.match(name) and logs.stamp(name) is not None:
        return StoredLog(logs, name)
    every = [listing for listing in session_listings(logs) if listing.key == name]
    of_key = [listing for listing in every if listing.person == (person or OWNER)] or ([] if person else every)
    if not of_key:
        whose = f" of {person}" if person else ""
        raise SessionUnknown(f"There is no session {name!r}{whose}; `exuvia sessions list` lists all sessions.")
    newest = max(of_key, key=lambda listing: (listing.opened, listing.session))
    return StoredLog(logs, newest.session)


def entry_of(event: Recorded) -> Entry | None:  # noqa: PLR0911 - one arm for each kind
    """Return an event as an entry for display; None for events that are internal to the gateway."""
    match event.event:
        case MessageReceived(text=text) as message if child := child_of(message):
            return _entry(event, "subagent", result_in(text), child)
        case MessageReceived(text=text, client=client, attachments=attachments):
            return _entry(event, "person", text_with_attachments(text, attachments), client)
        case MessageImported(text=text, attachments=attachments):
            return _entry(event, "person", text_with_attachments(text, attachments), "imported")
        case ModelReplied(text=text, calls=calls) | ReplyImported(text=text, calls=calls) if text or calls:
            return _entry(event, "assistant", text, "\n".join(map(call_line, calls)))
        case ToolReturned(output=output, outcome=outcome):
            return _entry(event, "tool", output, outcome)
        case TurnEnded() as ended if (sentence := ending_sentence(ended)) is not None:
            return _entry(event, "gateway", sentence)
        case CommandAnswered(answer=answer):
            return _entry(event, "gateway", answer)
        case AttachmentsWithheld(files=files):
            return _entry(event, "gateway", "\n".join(file.sentence for file in files))
        case SessionForked(parent=parent, left=left):
            numbers = ", ".join(f"#{seq}" for seq in left)
            waited = f" What waited there for its turn is answered there alone: {numbers}." if left else ""
            return _entry(event, "gateway", f"This session was forked from {parent} here.{waited}")
        case _:
            return None


def _entry(event: Recorded, who: str, text: str, detail: str = "") -> Entry:
    return Entry(seq=event.seq, at=event.at, who=who, text=text, detail=detail)


def _listing(logs: LogReader, session: str, stamp: Stamp) -> SessionListing:
    began = last = None
    with suppress(SessionsError), logs.read(session) as lines:
        began, last = _header(lines), _last_event(lines)
    return SessionListing(
        key=began.key if began else "?",
        session=session,
        opened=began.at if began else "",
        at=last.at if last else "",
        events=last.seq if last else 0,
        bytes=stamp.size,
        readable=began is not None and last is not None,
        person=began.person if began else "",
        parent=began.parent if began else "",
    )


def _header(lines: Lines) -> JournalHeader | None:
    """Return the header of a log; None if it is invalid."""
    try:
        return read_header(lines)
    except InvalidLine:
        return None


def _last_event(lines: Lines) -> Recorded | None:
    """Return the event of the last line; None if it is invalid. A line that is still being written is skipped."""
    line, _ = next(lines.backward(), (b"", 0))
    try:
        return decode(line) if is_complete_line(line) else None
    except InvalidLine:
        return None


# --- past requests ----------------------------------------------------------------------------------------------------


PastRequest: TypeAlias = tuple[Recorded, Transcript]
"""A `request_sent` event, and the transcript before it."""

NOTHING = Transcript()


def requests_of_turn(log: StoredLog, turn: int | None, begin: Transcript = NOTHING) -> list[PastRequest]:
    """Return the answer requests of a turn in order, by default of the last turn that asked a model.

    The context of a request is computed from all events before it, so the journal is read from the start: run this in a
    thread. `begin` is the transcript at an event before them. Raises JournalDamaged, UnknownSession, StorageFailed.
    """
    transcript, asked = begin, list[PastRequest]()
    for event in log.events(begin.head + 1):
        if turn is not None and transcript.turn > turn:
            break
        is_request = isinstance(event.event, RequestSent) and event.event.purpose == "answer"
        if is_request and turn in (None, event.turn):
            if asked and asked[-1][0].turn != event.turn:
                asked.clear()
            asked.append((event, transcript))
        transcript = advance(log, transcript, event)
    return asked


def transcript_before(log: StoredLog, seq: int, begin: Transcript = NOTHING) -> Transcript:
    """Return the transcript of the events before `seq`. `begin` and errors are as in `requests_of_turn`."""
    transcript = begin
    for event in log.events(begin.head + 1):
        if event.seq >= seq:
            break
        transcript = advance(log, transcript, event)
    return transcript


def advance(log: StoredLog, transcript: Transcript, event: Recorded) -> Transcript:
    """Return the transcript after the next event of the journal; if that event restored messages to the view, the
    journal is read again."""
    return evolved(transcript, event, lambda unfolding: _unfolded(log, unfolding))


def evolved(transcript: Transcript, event: Recorded, unfold: Callable[[Unfolding], Transcript]) -> Transcript:
    """Return the transcript after the next event; `unfold` returns the one up to an event that restored messages."""
    after = evolve(transcript, event)
    return after if after.stale is None else unfold(after.stale)


def _unfolded(log: StoredLog, unfolding: Unfolding) -> Transcript:
    """Return the transcript up to an event that restored messages to the view."""
    transcript = Transcript(unfolding=unfolding)
    for event in log.events():
        transcript = evolve(transcript, event)
        if event.seq == unfolding.until:
            break
    return transcript
