"""Read-only access to the journals of a home: list sessions, find one by id or key, and read its events.

Nothing here writes or locks, so it works while the gateway runs and while it does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gateway.support.errors import GatewayError
from gateway.support.sentences import call_line, ending_sentence
from plugins.support.workspace import OWNER
from sessions.events.codec import InvalidLine, decode, is_complete_line
from sessions.events.errors import JournalDamaged
from sessions.events.events import (
    AttachmentsWithheld,
    CommandAnswered,
    MessageReceived,
    ModelReplied,
    Recorded,
    SessionForked,
    ToolReturned,
    TurnEnded,
)
from sessions.events.vision import text_with_attachments
from sessions.files.header import JournalHeader, read_header
from sessions.files.reader import read_lines
from sessions.store.protocols import LONGEST_LINE

SUFFIX = ".jsonl"
PAGE_BYTES = 1024 * 1024
"""Bytes of lines that are read at a time."""

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


def journals(folder: Path) -> list[Path]:
    """Return the journals in a home's session folder, sorted by name; empty if there is no folder."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file())


def session_listings(folder: Path) -> list[SessionListing]:
    """Return all sessions, the most recently used last."""
    return sorted((_listing(path) for path in journals(folder)), key=lambda listing: (listing.at, listing.session))


def find_journal(folder: Path, name: str, person: str | None = None) -> Path:
    """Return the journal of a session id, or of the newest session of a key.

    A key is looked up for `person`, by default for the owner, or for anybody if the owner does not use it. Raises
    SessionUnknown.
    """
    if _ID.match(name) and (path := folder / f"{name}{SUFFIX}").is_file():
        return path
    every = [listing for listing in session_listings(folder) if listing.key == name]
    of_key = [listing for listing in every if listing.person == (person or OWNER)] or ([] if person else every)
    if not of_key:
        whose = f" of {person}" if person else ""
        raise SessionUnknown(f"There is no session {name!r}{whose} in {folder}; `exuvia sessions list` lists all sessions.")
    newest = max(of_key, key=lambda listing: (listing.opened, listing.session))
    return folder / f"{newest.session}{SUFFIX}"


def recorded(path: Path, first: int = 1) -> Iterator[Recorded]:
    """Yield a journal's events from seq `first` on, in order. Raises JournalDamaged, UnknownSession, StorageFailed."""
    seq = first
    while lines := read_lines(path, seq, PAGE_BYTES):
        for line in lines:
            try:
                yield decode(line)
            except InvalidLine as error:
                raise JournalDamaged(path, seq, str(error), good_seq=seq - 1) from error
            seq += 1


def entry_of(event: Recorded) -> Entry | None:  # noqa: PLR0911 - one arm for each kind
    """Return an event as an entry for display; None for events that are internal to the gateway."""
    match event.event:
        case MessageReceived(text=text, client=client, attachments=attachments):
            return _entry(event, "person", text_with_attachments(text, attachments), client)
        case ModelReplied(text=text, calls=calls) if text or calls:
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


def _listing(path: Path) -> SessionListing:
    began, last = _beginning(path), _decoded(_last_line(path))
    return SessionListing(
        key=began.key if began else "?",
        session=path.name.removesuffix(SUFFIX),
        opened=began.at if began else "",
        at=last.at if last else "",
        events=last.seq if last else 0,
        bytes=path.stat().st_size,
        readable=began is not None and last is not None,
        person=began.person if began else "",
        parent=began.parent if began else "",
    )


def _decoded(line: bytes) -> Recorded | None:
    try:
        return decode(line)
    except InvalidLine:
        return None


def _beginning(path: Path) -> JournalHeader | None:
    """Return the header of a journal; None if it is invalid."""
    with path.open("rb") as file:
        try:
            return read_header(file.fileno(), path.name.removesuffix(SUFFIX))
        except InvalidLine:
            return None


def _last_line(path: Path) -> bytes:
    """Return the last complete line; empty if there is none. A line that is still being written is skipped."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        window = min(size, 16 * 1024)
        while True:
            file.seek(size - window)
            # Split only at line feeds: `splitlines` would also split at others that may stand inside a text.
            lines = file.read(window).split(b"\n")[:-1]
            if window < size:
                lines = lines[1:]
            if lines:
                return lines[-1] + b"\n" if is_complete_line(lines[-1] + b"\n") else b""
            if window >= min(size, 2 * LONGEST_LINE):
                return b""
            window = min(size, 4 * window)
