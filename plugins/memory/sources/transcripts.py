"""The source `sessions`: the messages in the journals of a home, which are only read.

A document is named `sessions/<id>.jsonl`, and its lines are numbered by the sequence numbers of the events. It belongs to
the person of the session; messages of a private chat are found in private chats only. A growing journal is read from where
its last chunk began, once enough was added.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, tzinfo
from pathlib import Path

import msgspec

from plugins.api.memory.scope import Scope
from plugins.api.memory.source import Listing, Reading, WatchedFolders
from plugins.memory.sources.dialogue import TELLING, Conversation, chunks_of_dialogue, said_in
from plugins.memory.sources.excerpts import excerpt
from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import JournalDamaged, SessionsError
from sessions.events.events import ContextCompacted, MessageReceived, ModelReplied, Recorded, SessionClosed, kind_of
from sessions.files.header import read_header
from sessions.files.verify import open_journal, verify_lines, verify_position
from sessions.store.protocols import START, Position

GROWN = 100_000
"""Bytes of growth after which a journal is read again."""

SAID = 50
"""Messages after which a journal is read again."""

RESTED = 60.0
"""Seconds without a new event after which a journal is read again."""

PART = 4 * 1024 * 1024
"""Bytes of a journal that are read at once: twice the longest line."""

_NAME = re.compile(r"([A-Za-z0-9-]{1,64})\.jsonl")
_KIND = re.compile(rb'"kind":"([a-z_]+)"')
_STAMP = re.compile(r"([0-9]+)\.([0-9]+)")


def _mark(kind: type[MessageReceived | ModelReplied | SessionClosed | ContextCompacted]) -> bytes:
    """Return the kind field of an event as on its line. Inside a text the quotation marks would be escaped."""
    return b'"kind":"%s"' % kind_of(kind).encode()


_MESSAGES = (_mark(MessageReceived), _mark(ModelReplied))
_ENDS = (_mark(SessionClosed), _mark(ContextCompacted))
"""After these events, earlier messages are no longer shown to the model."""


class _Place(msgspec.Struct, frozen=True, kw_only=True):
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
    """The journals in one folder.

    Args:
        folder: The folder.
        zone: Returns the time zone of days, None for the system's.
        now: Returns the time in seconds.
    """

    name = "sessions"

    def __init__(self, folder: Path, zone: Callable[[], tzinfo | None], now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._zone = zone
        self._now = now
        self._damaged: set[str] = set()

    # --- listing ------------------------------------------------------------------------------------------------------

    def watched(self) -> WatchedFolders:
        """Return nothing to watch: journals grow with each event, and searches check them."""
        return WatchedFolders()

    def there(self, known: Mapping[str, str]) -> Listing:
        """Implement `Source.there`. A journal with too little new text keeps its previous stamp."""
        stamps: dict[str, str] = {}
        for name, found in _journals(self._folder):
            path = document_of(name.removesuffix(".jsonl"))
            if stamp := self._stamp(name, known.get(path, ""), found):
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

    def _stamp(self, name: str, before: str, found: os.stat_result) -> str:
        now = f"{found.st_size}.{found.st_ino}"
        if now == before or not found.st_size:
            return before
        last = _STAMP.fullmatch(before)
        size, number = (int(last[1]), int(last[2])) if last else (0, found.st_ino)
        grown = found.st_size - size
        rested = self._now() - found.st_mtime >= RESTED
        if number != found.st_ino or grown < 0 or rested or grown >= GROWN:
            return now
        return now if _says_enough(self._folder / name, size, grown) else before

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, path: str, state: str) -> Reading | None:
        """Implement `Source.read`. A damaged journal is read up to the damage."""
        session = _session(path)
        if session is None:
            return None
        place = self._folder / f"{session}.jsonl"
        self._damaged.discard(path)
        try:
            with open_journal(place) as descriptor:
                before = _kept(descriptor, place, state) or self._at_the_beginning(descriptor, session)
                return self._read(descriptor, path, before)
        except (SessionsError, InvalidLine):
            self._damaged.add(path)
            return None

    def _at_the_beginning(self, descriptor: int, session: str) -> _Place:
        began = read_header(descriptor, session)
        has_parent = (self._folder / f"{began.parent}.jsonl").exists() if began.parent else False
        return _Place(person=began.person, key=began.key, skip=began.seq if has_parent else 0)

    def _read(self, descriptor: int, path: str, before: _Place) -> Reading:
        size = os.fstat(descriptor).st_size
        lines = _Lines(before)
        end = min(size, max(before.start.offset, before.end) + PART)
        damaged = False
        try:
            verify_lines(descriptor, self._folder / path.removeprefix("sessions/"), before.start, end, lines)
        except JournalDamaged:
            damaged = True
            self._damaged.add(path)
        said, waits = said_in(lines.events)
        conversation = Conversation(path=path, owner=before.person, key=before.key)
        chunks, last = chunks_of_dialogue(said, conversation, self._day)
        start = lines.before[last] if last else before.start if waits else lines.here
        return Reading(
            chunks=chunks,
            since=before.start.seq + 1,
            state=msgspec.json.encode(msgspec.structs.replace(before, start=start, end=end)).decode(),
            more=end < size and not damaged,
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
            return excerpt(self._folder / f"{session}.jsonl", first, lines, scope, self._zone())
        except (SessionsError, InvalidLine):
            return ""


class _Lines:
    """Collects relevant events from the lines of a journal, and the position before each message.

    `here` is the position after the last line.
    """

    def __init__(self, place: _Place) -> None:
        self.events: list[Recorded] = []
        self.before: dict[int, Position] = {}
        self.here = place.start
        self._skip = place.skip

    def __call__(self, line: bytes) -> None:
        here = self.here
        self.here = Position(seq=here.seq + 1, offset=here.offset + len(line), sum=line[-19:-3])
        kind = _KIND.search(line)
        if self.here.seq > self._skip and kind and kind[1].decode() in TELLING:
            self.events.append(decode(line))
            self.before[self.here.seq] = here


def document_of(session: str) -> str:
    """Return the document name of a session."""
    return f"sessions/{session}.jsonl"


def _session(path: str) -> str | None:
    folder, _, name = path.rpartition("/")
    found = _NAME.fullmatch(name)
    return found[1] if found and folder == "sessions" else None


def _journals(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the journals in a folder by name."""
    try:
        with os.scandir(folder) as entries:
            named = sorted((entry.name, entry) for entry in entries if _NAME.fullmatch(entry.name))
    except OSError:
        return
    for name, entry in named:
        with suppress(OSError):  # deleted meanwhile
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                yield name, found


def _says_enough(place: Path, start: int, length: int) -> bool:
    """Return True if these bytes contain enough messages, or an event after which messages left the model's view."""
    try:
        with place.open("rb") as file:
            file.seek(start)
            grown = file.read(length)
    except OSError:
        return False
    return any(mark in grown for mark in _ENDS) or sum(grown.count(mark) for mark in _MESSAGES) >= SAID


def _kept(descriptor: int, place: Path, state: str) -> _Place | None:
    """Return the stored position if the journal still has the same content up to it."""
    try:
        known = msgspec.json.decode(state, type=_Place)
        verify_position(descriptor, place, known.start, os.fstat(descriptor).st_size)
    except (msgspec.MsgspecError, JournalDamaged):
        return None
    return known
