"""The acknowledged length of each session, from the catalog's file: a shorter journal has lost durable events.

The journals alone cannot show this: every prefix of a journal is valid, and so is a missing journal. The catalog keeps its
record until an operator accepts the loss with `forget`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from sessions.catalog.catalog_file import PATIENCE, TABLES, verify_checksum
from sessions.catalog.sqlite import Error, connect_blocking, connect_readonly
from sessions.events.errors import StorageFailed
from sessions.store.catalog import SessionRow
from sessions.store.protocols import Position

T = TypeVar("T")

_UNREADABLE: tuple[type[Exception], ...] = (*Error, OSError)


class _Checkpoint(msgspec.Struct):
    position: Position


def acknowledged_heads(catalog: Path) -> dict[str, int]:
    """Return the highest durable seq of each session in the catalog; empty if there is no catalog. Blocks; reads only, also
    while a gateway writes. Raises StorageFailed if the file cannot be read."""
    found: dict[str, int] = {}
    if not catalog.exists():
        return found
    try:
        for session, seq in _known(catalog):
            found[session] = max(seq, found.get(session, 0))
    except _UNREADABLE as error:
        raise StorageFailed(f"{catalog.name} cannot be read: {error}.") from error
    return found


def describe_loss(events: int, head: int) -> str:
    """Describe the events missing from a journal that verifies, as a sentence without its end; empty if there are none.

    Args:
        events: The number of events in the journal, 0 if it is missing.
        head: The highest seq that was durable.
    """
    if events >= head:
        return ""
    ends = f"it ends with event {events}, but event {head} was on the disk" if events else "it is missing or empty"
    goes_on = "continues it from there" if events else "removes the session"
    return (
        f"acknowledged events are missing: {ends}. Restore a newer copy of the file; without one, stop the gateway:"
        f" `exuvia sessions forget` {goes_on}"
    )


def forget(catalog: Path, session: str) -> None:
    """Remove everything the catalog holds about a session, so that the next start uses its journal alone, if there is one.
    Blocks; the home must be locked. Raises StorageFailed if the file cannot be changed."""
    try:
        with closing(connect_blocking(catalog, patience=PATIENCE)) as db:
            db.execute("PRAGMA secure_delete = ON")
            db.execute("BEGIN IMMEDIATE")
            for table in TABLES:
                db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))  # noqa: S608 - a name of ours
            db.execute("COMMIT")
    except _UNREADABLE as error:
        raise StorageFailed(f"{catalog.name} cannot be changed: {error}.") from error


def _known(catalog: Path) -> Iterator[tuple[str, int]]:
    """Yield seqs from the rows and from the checkpoints. A start after a journal was truncated updates the rows, but not the
    checkpoints."""
    with closing(connect_readonly(catalog)) as db:
        for session, sealed in db.execute("SELECT session, sealed FROM sessions"):
            if (row := _value(session, sealed, SessionRow)) is not None:
                yield session, row.acknowledged
        for session, sealed in db.execute("SELECT session, sealed FROM checkpoints"):
            if (checkpoint := _value(session, sealed, _Checkpoint)) is not None:
                yield session, checkpoint.position.seq


def _value(session: str, sealed: object, form: type[T]) -> T | None:
    """Decode a value with a checksum; None if it is invalid."""
    value = verify_checksum(session, sealed)
    try:
        return None if value is None else msgspec.msgpack.decode(value, type=form)
    except msgspec.MsgspecError:
        return None
