"""Applies deletions that happened after a backup to a home that was restored from it, before anybody can use it.

The ledger is the log of deletions: that of the backup, the newer one beside it, and any that an operator names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gateway.backup.manifest import BackupRefused
from gateway.conversations.deletion.deletion_log import (
    DELETIONS,
    Deletion,
    DeletionFinished,
    ErasureFinished,
    ErasureOrdered,
    SessionDeleted,
    was_continued,
)
from gateway.support.home import Home
from gateway.support.storage import journals_in
from sessions.events.codec import encode_line
from sessions.events.errors import SessionsError, UnknownSession
from sessions.files.fsync import replace_file, sync_folder
from sessions.store.log_writer import stamp
from sessions.store.protocols import START, Position
from sessions.store.reading import verify_lines

_DECODERS: dict[str, msgspec.json.Decoder[Deletion]] = {
    str(kind.__struct_config__.tag): msgspec.json.Decoder(kind) for kind in DELETIONS.events
}


class _Envelope(msgspec.Struct):
    kind: str
    at: str


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one log of deletions, the times at which erasures were finished, its bytes, and its last position."""

    events: tuple[Deletion, ...] = ()
    finished: Mapping[str, str] = {}
    content: bytes = b""
    last: Position = START


class Outstanding(msgspec.Struct, frozen=True, kw_only=True):
    """The erasures that are to be carried out again, then the deletions whose journals are to be removed again, and the log
    that the home has after that."""

    erasures: tuple[ErasureOrdered, ...]
    deletions: tuple[SessionDeleted, ...]
    newest: Ledger


def outstanding(home: Home, paths: Iterable[Path], began: str) -> Outstanding:
    """Return what a home that was restored still has of what its own log of deletions, or one of `paths`, says was erased
    or deleted. Raises BackupRefused, OSError, SessionsError.

    A person who was erased before the backup `began` (RFC 3339, UTC) is not erased again: their id may be somebody else's
    since then.
    """
    ledgers = [_read(path) for path in (home.deletions, *paths)]
    events = [each for ledger in ledgers for each in ledger.events]
    kept = {each.deletion for each in events if isinstance(each, DeletionFinished) and each.kept}
    deleted = {each.deletion: each for each in events if isinstance(each, SessionDeleted) and each.deletion not in kept}
    before = {erasure for erasure, at in ledgers[0].finished.items() if at < began}
    orders = {
        each.erasure: each
        for each in events
        if isinstance(each, ErasureOrdered) and not (each.everything and each.erasure in before)
    }
    journals = journals_in(home.sessions)
    return Outstanding(
        erasures=tuple(orders.values()),
        deletions=tuple(
            each
            for each in deleted.values()
            if any(path.exists() for path in _files_of(home, each)) and not was_continued(journals, each)
        ),
        newest=max(ledgers, key=_length),
    )


def delete_again(home: Home, found: Outstanding) -> None:
    """Remove the journals of deletions from a home that nobody uses, after the erasures, which find in them what others
    quote; and write the newest log.

    What is derived from it, and what the removal of files does not reach, is removed by the next start before it serves.
    Raises OSError.
    """
    for deletion in found.deletions:
        for path in _files_of(home, deletion):
            path.unlink(missing_ok=True)
    for path in home.root.glob(f"{home.catalog.name}*"):  # derived, and built while they were there
        path.unlink()
    for folder in (home.sessions, home.quarantine):
        if folder.is_dir():
            sync_folder(folder)
    if found.newest.content:
        replace_file(home.deletions, found.newest.content + _again(found.newest.last, found.deletions))


def _length(ledger: Ledger) -> int:
    return ledger.last.seq


def _read(path: Path) -> Ledger:
    lines = list[bytes]()
    try:
        with journals_in(path.parent).read(path.name.removesuffix(".jsonl")) as log:
            last = verify_lines(log, START, lines.append)
    except UnknownSession:
        if path.exists():  # it is not named like a log
            raise BackupRefused(f"The log of deletions {path} cannot be read; name a copy of it deletions.jsonl.") from None
        return Ledger()
    except SessionsError as error:
        raise type(error)(f"The log of deletions {path} cannot be read: {error}") from error
    known = [(line, decoder.decode(line)) for line in lines if (decoder := _decoder(line)) is not None]
    finished = {
        each.erasure: msgspec.json.decode(line, type=_Envelope).at
        for line, each in known
        if isinstance(each, ErasureFinished)
    }
    return Ledger(events=tuple(each for _, each in known), finished=finished, content=b"".join(lines), last=last)


def _decoder(line: bytes) -> msgspec.json.Decoder[Deletion] | None:
    return _DECODERS.get(msgspec.json.decode(line, type=_Envelope).kind)


def _files_of(home: Home, deletion: SessionDeleted) -> Iterator[Path]:
    for session in deletion.ids:
        yield home.sessions / f"{session}.jsonl"
        yield from home.quarantine.glob(f"{session}-*")


def _again(last: Position, applied: Iterable[SessionDeleted]) -> bytes:
    """Return lines that order these deletions again, so that the next start finishes them."""
    lines, at = [], stamp(datetime.now(UTC))
    for deletion in applied:
        line, _ = encode_line(last.seq + 1, at, None, deletion, last.sum)
        lines.append(line)
        last = last.after(line)
    return b"".join(lines)
