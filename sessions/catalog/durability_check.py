"""How far each session was acknowledged, by the catalog at rest: a journal that ends before has lost what was durable.

The journals alone cannot tell, for every prefix of one is a legal history, and so is none. What the catalog knows stays
until a person says that a loss is meant: `forget`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from sessions.catalog.catalog_file import PATIENCE, TABLES
from sessions.catalog.checksums import unseal
from sessions.catalog.lineage import SessionRow
from sessions.catalog.sqlite import Error, reading, writing
from sessions.events.errors import StorageFailed
from sessions.store.protocols import Position

T = TypeVar("T")

_UNREADABLE: tuple[type[Exception], ...] = (*Error, OSError)


class _Checkpoint(msgspec.Struct):
    position: Position


def acknowledged(catalog: Path) -> dict[str, int]:
    """The highest seq that was durable in each session, as far as the catalog knows it; empty where there is no catalog.
    Blocks; reads only, also while a gateway writes. StorageFailed if the file cannot be read."""
    found: dict[str, int] = {}
    if not catalog.exists():
        return found
    try:
        for session, seq in _known(catalog):
            found[session] = max(seq, found.get(session, 0))
    except _UNREADABLE as error:
        raise StorageFailed(f"{catalog.name} cannot be read: {error}.") from error
    return found


def shortfall(events: int, head: int) -> str:
    """What is missing of a journal that verifies, as a sentence without its end; empty if nothing is. `events` is how many
    it has, 0 if it is gone, and `head` the highest seq that was durable."""
    if events >= head:
        return ""
    ends = f"it ends with event {events}, and event {head} was on the disk" if events else "it is gone or empty"
    goes_on = "lets it go on from there" if events else "lets the session go"
    return (
        f"acknowledged events are missing: {ends}. Put back a newer copy of the file; without one, stop the gateway, and"
        f" `exuvia sessions forget` {goes_on}"
    )


def forget(catalog: Path, session: str) -> None:
    """Remove all that the catalog knows of a session, so that the next start goes by its journal alone, if there is one.
    Blocks; the home must be locked. StorageFailed if the file cannot be changed."""
    try:
        with closing(writing(catalog, patience=PATIENCE)) as db:
            db.execute("BEGIN IMMEDIATE")
            for table in TABLES:
                db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))  # noqa: S608 - a name of ours
            db.execute("COMMIT")
    except _UNREADABLE as error:
        raise StorageFailed(f"{catalog.name} cannot be changed: {error}.") from error


def _known(catalog: Path) -> Iterator[tuple[str, int]]:
    """From the rows and from the checkpoints: a start in between brings the rows, but not the checkpoints, in line with a
    journal that was cut."""
    with closing(reading(catalog)) as db:
        for session, sealed in db.execute("SELECT session, sealed FROM sessions"):
            if (row := _value(session, sealed, SessionRow)) is not None:
                yield session, row.acknowledged
        for session, sealed in db.execute("SELECT session, sealed FROM checkpoints"):
            if (checkpoint := _value(session, sealed, _Checkpoint)) is not None:
                yield session, checkpoint.position.seq


def _value(session: str, sealed: object, form: type[T]) -> T | None:
    """What was sealed; None where it is not as it was written."""
    value = unseal(session, sealed)
    try:
        return None if value is None else msgspec.msgpack.decode(value, type=form)
    except msgspec.MsgspecError:
        return None
