"""The source `sessions`: the messages in the journals of a home, which are only read.

A document is named `sessions/<id>.jsonl`, and its lines are numbered by the sequence numbers of the events. It belongs to
the person of the session; messages of a private chat are found in private chats only. A growing journal is read from where
its last chunk began, once enough was added.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, tzinfo

import msgspec

from plugins.api.memory.scope import Scope
from plugins.api.memory.source import Listing, Reading, WatchedFolders
from plugins.memory.sources.dialogue import ASSISTANT, EVENT_KINDS, Conversation, Utterance, chunks_of_dialogue, messages_in
from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import JournalDamaged, SessionsError, StorageFailed
from sessions.events.events import (
    ContextCompacted,
    MessageImported,
    MessageReceived,
    ModelReplied,
    Recorded,
    ReplyImported,
    SessionClosed,
    kind_of,
)
from sessions.state.truncation import head_and_tail
from sessions.store.header import read_header
from sessions.store.protocols import START, Lines, LogReader, Position, Stamp
from sessions.store.reading import StoredLog, verify_lines, verify_position

NEW_BYTES = 100_000
"""Bytes of growth after which a journal is read again."""

NEW_MESSAGES = 50
"""Messages after which a journal is read again."""

IDLE_SECONDS = 60.0
"""Seconds without a new event after which a journal is read again."""

READ_BYTES = 4 * 1024 * 1024
"""Bytes of a journal that are read at once: twice the longest line."""

EXCERPT_PAGE = 256 * 1024
"""Bytes of a log that are read at once for an excerpt."""

LONGEST_EXCERPT, LONGEST_TEXT = 24_000, 4_000
"""Characters of an excerpt, and bytes of one message in it, at most."""

_NAME = re.compile(r"([A-Za-z0-9-]{1,64})\.jsonl")
_KIND = re.compile(rb'"kind":"([a-z_]+)"')
_STAMP = re.compile(r"([0-9]+)\.([0-9]+)")


def _mark(
    kind: type[MessageReceived | ModelReplied | SessionClosed | ContextCompacted | MessageImported | ReplyImported],
) -> bytes:
    """Return the kind field of an event as on its line. Inside a text the quotation marks would be escaped."""
    return b'"kind":"%s"' % kind_of(kind).encode()


_MESSAGES = (_mark(MessageReceived), _mark(ModelReplied))
_ENDS = (_mark(SessionClosed), _mark(ContextCompacted))
"""After these events, earlier messages are no longer shown to the model."""
_IMPORTED = (_mark(MessageImported), _mark(ReplyImported))
"""Imported messages are found at once: their conversation may never be continued."""


class _ReadPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The position up to which a journal was read.

    The lines from `start` on are read again with those after `end` (bytes). Events up to `skip` belong to the parent of a
    fork.
    """

    person: str
    key: str
    skip: int
    start: Position = START
    end: int = 0


class Transcripts:
    """The sessions of a home.

    Args:
        logs: Their logs.
        zone: Returns the time zone of days, None for the system's.
        now: Returns the time in seconds.
    """

    name = "sessions"

    def __init__(self, logs: LogReader, zone: Callable[[], tzinfo | None], now: Callable[[], float] = time.time) -> None:
        self._logs = logs
        self._zone = zone
        self._now = now
        self._damaged: set[str] = set()

    # --- listing ------------------------------------------------------------------------------------------------------

    def watched(self) -> WatchedFolders:
        """Return nothing to watch: journals grow with each event, and searches check them."""
        return WatchedFolders()

    def list_documents(self, known: Mapping[str, str]) -> Listing:
        """Implement `Source.list_documents`. A journal with too little new text keeps its previous stamp."""
        stamps: dict[str, str] = {}
        for session, found in self._listed():
            path = document_of(session)
            if stamp := self._stamp(session, known.get(path, ""), found):
                stamps[path] = stamp
        self._damaged &= stamps.keys()
        return Listing(stamps=stamps, remarks=self._remarks())

    def _remarks(self) -> tuple[str, ...]:
        """Return a remark without names, since others' sessions may be affected."""
        if not (count := len(self._damaged)):
            return ()
        which = "One session is" if count == 1 else f"{count} sessions are"
        how = "damaged and searched only as far as the journal is whole"
        return (f"{which} {how}; `exuvia sessions verify` says more.",)

    def _listed(self) -> list[tuple[str, Stamp]]:
        try:
            return [(session, found) for session, found in self._logs.listed() if _session(document_of(session))]
        except StorageFailed:
            return []

    def _stamp(self, session: str, before: str, found: Stamp) -> str:
        now = f"{found.size}.{found.identity}"
        if now == before or not found.size:
            return before
        last = _STAMP.fullmatch(before)
        size, number = (int(last[1]), int(last[2])) if last else (0, found.identity)
        grown = found.size - size
        rested = self._now() - found.changed / 1e9 >= IDLE_SECONDS
        if number != found.identity or grown < 0 or rested or grown >= NEW_BYTES:
            return now
        return now if self._has_enough_new(session, size) else before

    def _has_enough_new(self, session: str, start: int) -> bool:
        """Return True if the lines after an offset contain enough messages, an imported one, or an event after which
        messages left the view."""
        messages = 0
        with suppress(SessionsError), self._logs.read(session) as lines:
            for line, end in lines.backward():
                if end <= start:
                    break
                messages += any(mark in line for mark in _MESSAGES)
                if messages >= NEW_MESSAGES or any(mark in line for mark in (*_ENDS, *_IMPORTED)):
                    return True
        return False

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, path: str, state: str) -> Reading | None:
        """Implement `Source.read`. A damaged journal is read up to the damage."""
        session = _session(path)
        if session is None:
            return None
        self._damaged.discard(path)
        try:
            with self._logs.read(session) as lines:
                return self._read(lines, path, _stored_position(lines, state) or self._start(lines))
        except (SessionsError, InvalidLine):
            self._damaged.add(path)
            return None

    def _start(self, lines: Lines) -> _ReadPosition:
        began = read_header(lines)
        has_parent = self._logs.stamp(began.parent) is not None if began.parent else False
        return _ReadPosition(person=began.person, key=began.key, skip=began.seq if has_parent else 0)

    def _read(self, lines: Lines, path: str, before: _ReadPosition) -> Reading:
        read = _EventCollector(before)
        end = min(lines.size, max(before.start.offset, before.end) + READ_BYTES)
        damaged = False
        try:
            verify_lines(lines, before.start, read, end)
        except JournalDamaged:
            damaged = True
            self._damaged.add(path)
        said, waits = messages_in(read.events)
        conversation = Conversation(path=path, owner=before.person, key=before.key)
        chunks, last = chunks_of_dialogue(said, conversation, self._day)
        start = read.before[last] if last else before.start if waits else read.here
        return Reading(
            chunks=chunks,
            since=before.start.seq + 1,
            state=msgspec.json.encode(msgspec.structs.replace(before, start=start, end=end)).decode(),
            more=end < lines.size and not damaged,
        )

    def _day(self, moment: datetime) -> str:
        return moment.astimezone(self._zone()).date().isoformat()

    # --- excerpts -----------------------------------------------------------------------------------------------------

    def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        """Implement `Source.excerpt` with the messages, their speakers and times."""
        session = _session(path)
        if session is None:
            return None
        try:
            return _excerpt(StoredLog(self._logs, session), first, lines, scope, self._zone())
        except (SessionsError, InvalidLine):
            return ""


class _EventCollector:
    """Collects relevant events from the lines of a journal, and the position before each message.

    `here` is the position after the last line.
    """

    def __init__(self, place: _ReadPosition) -> None:
        self.events: list[Recorded] = []
        self.before: dict[int, Position] = {}
        self.here = place.start
        self._skip = place.skip

    def __call__(self, line: bytes) -> None:
        here = self.here
        self.here = here.after(line)
        kind = _KIND.search(line)
        if self.here.seq > self._skip and kind and kind[1].decode() in EVENT_KINDS:
            self.events.append(decode(line))
            self.before[self.here.seq] = here


def document_of(session: str) -> str:
    """Return the document name of a session."""
    return f"sessions/{session}.jsonl"


def _session(path: str) -> str | None:
    folder, _, name = path.rpartition("/")
    found = _NAME.fullmatch(name)
    return found[1] if found and folder == "sessions" else None


def _stored_position(lines: Lines, state: str) -> _ReadPosition | None:
    """Return the stored position if the log still has the same content up to it."""
    try:
        known = msgspec.json.decode(state, type=_ReadPosition)
        verify_position(lines, known.start)
    except (msgspec.MsgspecError, JournalDamaged):
        return None
    return known


# --- excerpts -----------------------------------------------------------------------------------------------------------


def _excerpt(log: StoredLog, first: int, count: int, scope: Scope, zone: tzinfo | None) -> str:
    """Return the messages among `count` events from `first` on, one per line.

    A truncated excerpt ends with the number to continue at.

    Args:
        log: The log of the session.
        first: Sequence number of the first event.
        count: Number of events.
        scope: Who may read: "" is returned for others, and in a group only messages of groups.
        zone: The time zone, None for the system's.

    Raises:
        UnknownSession: The session does not exist.
        StorageFailed: The journal cannot be read.
        InvalidLine: A line is damaged.
    """
    with log.read() as lines:
        whose = read_header(lines)
    if scope.owners is not None and whose.person not in scope.owners:
        return ""
    messages = _messages(_events_between(log, first, first + count))
    return _format_excerpt((each for each in messages if scope.private or each.group), zone)


def _format_excerpt(messages: Iterable[Utterance], zone: tzinfo | None) -> str:
    shown: list[str] = []
    room = LONGEST_EXCERPT
    for each in messages:
        when = each.at.astimezone(zone)
        text = head_and_tail(each.text.strip(), LONGEST_TEXT)
        entry = f"[{each.seq}] {when:%Y-%m-%d %H:%M} {each.speaker}: {text}"
        if shown and len(entry) > room:
            shown.append(f"[Continues at {each.seq}.]")
            break
        shown.append(entry)
        room -= len(entry)
    return "\n".join(shown)


def _events_between(log: StoredLog, first: int, end: int) -> Iterator[Recorded]:
    """Yield the events from `first` up to `end`, stopping at damage."""
    while first < end:
        try:
            lines = log.lines(first, EXCERPT_PAGE)[: end - first]
            events = [decode(line) for line in lines]
        except (JournalDamaged, InvalidLine):
            return
        if not events:
            return
        yield from events
        first += len(events)


def _messages(events: Iterable[Recorded]) -> Iterator[Utterance]:
    """Yield the messages among the events, including commands."""
    group = False
    for recorded in events:
        event = recorded.event
        if isinstance(event, MessageReceived):
            group = event.chat == "group"
        if isinstance(event, MessageReceived | MessageImported | ModelReplied | ReplyImported) and event.text.strip():
            speaker = event.sender if isinstance(event, MessageReceived | MessageImported) else ASSISTANT
            at = datetime.fromisoformat(recorded.at)
            yield Utterance(seq=recorded.seq, at=at, speaker=speaker, text=event.text, group=group)
