"""The source `sessions`: what was said in the journals of a home. They are read, never opened for writing.

A document is called `sessions/<id>.jsonl`, and its lines are numbered by the seq of their events. It belongs to the person
whose session it is; what was said in a private chat is found in private chats alone. A journal that grows is read on from
where the last of its chunks began, when enough was said for that to be worth it.
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
"""Bytes of growth after which a journal is read on, whatever is in them."""

SAID = 50
"""Messages after which it is."""

RESTED = 60.0
"""Seconds without a new event after which it is."""

PART = 4 * 1024 * 1024
"""Bytes of a journal that are read at once: twice the longest line."""

_NAME = re.compile(r"([A-Za-z0-9-]{1,64})\.jsonl")
_KIND = re.compile(rb'"kind":"([a-z_]+)"')
_STAMP = re.compile(r"([0-9]+)\.([0-9]+)")


def _mark(kind: type[MessageReceived | ModelReplied | SessionClosed | ContextCompacted]) -> bytes:
    """How an event stands on its line. In a text the quotation marks would be escaped."""
    return b'"kind":"%s"' % kind_of(kind).encode()


_MESSAGES = (_mark(MessageReceived), _mark(ModelReplied))
_ENDS = (_mark(SessionClosed), _mark(ContextCompacted))
"""After these, what was said is shown to no model any more."""


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """How far a journal was read: the lines behind `start` are to be read again, with what follows `end` (bytes). Those up
    to the seq `skip` are another's, of which this one is a fork."""

    person: str
    key: str
    skip: int
    start: Position = START
    end: int = 0


class Transcripts:
    """The journals in one folder. `zone` is the time zone in which a day is one, None for the system's."""

    name = "sessions"

    def __init__(self, folder: Path, zone: Callable[[], tzinfo | None], now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._zone = zone
        self._now = now
        self._damaged: set[str] = set()

    # --- what there is ------------------------------------------------------------------------------------------------

    def watched(self) -> WatchedFolders:
        """See `Source`. Journals grow with each event: whoever searches looks at them, and what happened may wake it."""
        return WatchedFolders()

    def there(self, known: Mapping[str, str]) -> Listing:
        """See `Source`. A journal of which too little is new keeps its stamp, and is none yet where it has none."""
        stamps: dict[str, str] = {}
        for name, found in _journals(self._folder):
            path = document_of(name.removesuffix(".jsonl"))
            if stamp := self._stamp(name, known.get(path, ""), found):
                stamps[path] = stamp
        self._damaged &= stamps.keys()
        return Listing(stamps=stamps, remarks=self._remarks())

    def _remarks(self) -> tuple[str, ...]:
        """Without their names: whoever searches may not know of others' sessions."""
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
        """See `Source`. Of a damaged journal what stands before the damage is read."""
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
        """See `Source`: what was said from the event `first` on, among as many events, with who said it and when."""
        session = _session(path)
        if session is None:
            return None
        try:
            return excerpt(self._folder / f"{session}.jsonl", first, lines, scope, self._zone())
        except (SessionsError, InvalidLine):
            return ""


class _Lines:
    """Takes in a journal's lines behind `place`: the events that tell what was said, and for each message the position
    before its line. `here` is the position behind the last line."""

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
    """What a session's journal is called among the documents."""
    return f"sessions/{session}.jsonl"


def _session(path: str) -> str | None:
    folder, _, name = path.rpartition("/")
    found = _NAME.fullmatch(name)
    return found[1] if found and folder == "sessions" else None


def _journals(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The journals in a folder by their names, in order."""
    try:
        with os.scandir(folder) as entries:
            named = sorted((entry.name, entry) for entry in entries if _NAME.fullmatch(entry.name))
    except OSError:
        return
    for name, entry in named:
        with suppress(OSError):  # one that went away meanwhile
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                yield name, found


def _says_enough(place: Path, start: int, length: int) -> bool:
    """Whether in so many bytes enough was said, or something left the view of the model, for them to be read now."""
    try:
        with place.open("rb") as file:
            file.seek(start)
            grown = file.read(length)
    except OSError:
        return False
    return any(mark in grown for mark in _ENDS) or sum(grown.count(mark) for mark in _MESSAGES) >= SAID


def _kept(descriptor: int, place: Path, state: str) -> _Place | None:
    """How far a journal was read, if it still is what was read."""
    try:
        known = msgspec.json.decode(state, type=_Place)
        verify_position(descriptor, place, known.start, os.fstat(descriptor).st_size)
    except (msgspec.MsgspecError, JournalDamaged):
        return None
    return known
