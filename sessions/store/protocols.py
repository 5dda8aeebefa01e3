"""The protocols of what keeps the lines: lines in, lines out.

Numbering, the chain and the encoding stand above (`recorder`, `wire`); a store neither makes nor understands an event. So
another store (a database, a remote log) needs to know nothing but bytes that end in a newline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from sessions.events.codec import FIRST
from sessions.events.errors import StorageFailed


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a whole line: its `seq`, the `offset` in bytes just after its newline, and its `sum`."""

    seq: int = 0
    offset: int = 0
    sum: bytes = FIRST


START = Position()
"""Before the first line."""


class Log(Protocol):
    """One append-only sequence of lines with one writer. All methods are called on the event loop."""

    @property
    def end(self) -> int:
        """The offset in bytes after the last appended line, durable or not."""
        ...

    @property
    def durable(self) -> int:
        """The offset in bytes up to which lines survive a power cut."""
        ...

    def append(self, line: bytes, *, urgent: bool) -> None:
        """Queue one line, newline included. An urgent one is committed in the next round, with all before it; another
        rides along, or goes after 50 ms. Raises StorageFailed once the log has failed."""
        ...

    def on_commit(self, durable: Callable[[int], None], failed: Callable[[StorageFailed], None]) -> None:
        """Name what is called, on the event loop, with each new durable offset, or once with the failure, after which
        everything that was appended beyond `durable` is gone and the log must be opened again."""
        ...

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        """The durable lines from seq `first` on, about `limit` bytes of them and at least one where there is one."""
        ...

    async def close(self) -> None:
        """Commit what was appended, then let go of the file. Never raises StorageFailed: the listener was told."""
        ...


class Store(Protocol):
    """All the logs of one home."""

    @property
    def pending(self) -> int:
        """Bytes of all logs together that wait for the disk."""
        ...

    async def create(self, session: str) -> Log:
        """A new and empty log; StorageFailed if it exists or cannot be made."""
        ...

    async def open(self, session: str, *, after: Position, fold: Callable[[bytes], None]) -> tuple[Log, Position]:
        """Open an existing log for appending: a torn tail is set aside and cut, every line after `after` is verified and
        given to `fold`, in order and off the event loop, and the whole is synced. Returns the log and its last position.

        Raises UnknownSession, StorageFailed, or JournalDamaged, which leaves the log untouched. `after` beyond the log's
        end, or whose sum does not fit, raises JournalDamaged too, with `line` 0 if nothing else is known.
        """
        ...
