"""Applies deletions that happened after a backup to a home that was restored from it, before anybody can use it.

The ledger is the log of deletions: that of the backup, the newer one beside it, and any that an operator names.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gateway.conversations.deletion.deletion_log import DELETIONS, Deletion, ErasureOrdered, SessionDeleted
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


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one log of deletions, its bytes, and its last position."""

    events: tuple[Deletion, ...] = ()
    content: bytes = b""
    last: Position = START


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The number of deletions that were applied, and the erasures that are to be carried out again."""

    deletions: int
    erasures: tuple[ErasureOrdered, ...]


def apply_ledgers(home: Home, paths: Iterable[Path]) -> Applied:
    """Remove from a home that nobody uses what its own log of deletions, or one of `paths`, says was deleted.

    What is derived from it, and what the removal of files does not reach, is removed by the next start before it serves.
    Raises OSError, SessionsError.
    """
    ledgers = [_read(path) for path in (home.deletions, *paths)]
    newest = max(ledgers, key=_length)
    deleted = {each.deletion: each for ledger in ledgers for each in ledger.events if isinstance(each, SessionDeleted)}
    applied = [each for each in deleted.values() if _remove(home, each)]
    if newest.content:
        replace_file(home.deletions, newest.content + _again(newest.last, applied))
    orders = {each.erasure: each for ledger in ledgers for each in ledger.events if isinstance(each, ErasureOrdered)}
    return Applied(deletions=len(applied), erasures=tuple(orders.values()))


def _length(ledger: Ledger) -> int:
    return ledger.last.seq


def _read(path: Path) -> Ledger:
    lines = list[bytes]()
    try:
        with journals_in(path.parent).read(path.name.removesuffix(".jsonl")) as log:
            last = verify_lines(log, START, lines.append)
    except UnknownSession:
        return Ledger()
    except SessionsError as error:
        raise type(error)(f"The log of deletions {path} cannot be read: {error}") from error
    events = [decoder.decode(line) for line in lines if (decoder := _decoder(line)) is not None]
    return Ledger(events=tuple(events), content=b"".join(lines), last=last)


def _decoder(line: bytes) -> msgspec.json.Decoder[Deletion] | None:
    return _DECODERS.get(msgspec.json.decode(line, type=_Envelope).kind)


def _remove(home: Home, deletion: SessionDeleted) -> bool:
    """Remove the journals of a deletion, and what was set aside of them; return True if there were any."""
    found = False
    for session in deletion.ids:
        journal = home.sessions / f"{session}.jsonl"
        for path in (journal, *home.quarantine.glob(f"{session}-*")):
            with suppress(FileNotFoundError):
                path.unlink()
                found = True
    for folder in (home.sessions, home.quarantine):
        if found and folder.is_dir():
            sync_folder(folder)
    return found


def _again(last: Position, applied: Iterable[SessionDeleted]) -> bytes:
    """Return lines that order these deletions again, so that the next start finishes them."""
    lines, at = [], stamp(datetime.now(UTC))
    for deletion in applied:
        line, _ = encode_line(last.seq + 1, at, None, deletion, last.sum)
        lines.append(line)
        last = last.after(line)
    return b"".join(lines)
