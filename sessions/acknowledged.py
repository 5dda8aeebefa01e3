"""How far each session was acknowledged, by the catalog at rest: a journal that ends before has lost what was durable.

The journals alone cannot tell, for every prefix of one is a legal history.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from sessions.errors import StorageFailed
from sessions.lineage import SessionRow
from sessions.seals import unseal
from sessions.sqlite import Error, reading
from sessions.store import Position

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


def _known(catalog: Path) -> Iterator[tuple[str, int]]:
    """From the rows and from the checkpoints: a start in between brings the rows, but not the checkpoints, in line with a
    journal that was cut."""
    with closing(reading(catalog)) as db:
        for session, sealed in db.execute("SELECT session, sealed FROM sessions"):
            if (row := _value(session, sealed, SessionRow)) is not None:
                yield session, row.head
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
