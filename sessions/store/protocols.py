"""Protocols of a store of logs: lines in, lines out.

Numbering, chaining and encoding are done by the layer above (`recorder`, `codec`); a store does not interpret events. So
another store (a database, a remote log) only handles bytes that end in a newline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from sessions.events.codec import FIRST
from sessions.events.errors import StorageFailed

LONGEST_LINE = 2 * 1024 * 1024
"""Maximum length in bytes of a line in a log."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a whole line: its `seq`, the `offset` in bytes just after its newline, and its `sum`."""

    seq: int = 0
    offset: int = 0
    sum: bytes = FIRST


START = Position()
"""The position before the first line."""


class Log(Protocol):
    """An append-only sequence of lines with a single writer. All methods are called on the event loop."""

    @property
    def end(self) -> int:
        """The offset in bytes after the last appended line, durable or not."""
        ...

    @property
    def durable(self) -> int:
        """The offset in bytes up to which lines survive a power failure."""
        ...

    def append(self, line: bytes, *, urgent: bool) -> None:
        """Queue one line, newline included.

        Args:
            line: The bytes of the line.
            urgent: Whether to commit it, and all lines before it, in the next round. Otherwise it is committed with the next
                urgent line, or after 50 ms.

        Raises:
            StorageFailed: The log has failed.
        """
        ...

    def on_commit(self, durable: Callable[[int], None], failed: Callable[[StorageFailed], None]) -> None:
        """Set the callbacks of the log, called on the event loop.

        Args:
            durable: Called with each new durable offset.
            failed: Called once with the failure. Everything appended beyond `durable` is lost then, and the log must be
                opened again.
        """
        ...

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        """Return the durable lines from seq `first` on, about `limit` bytes of them and at least one if there is one."""
        ...

    async def close(self) -> None:
        """Commit what was appended, then close the file. A failure is reported to the `on_commit` callback, not raised."""
        ...


class Store(Protocol):
    """All logs of one home."""

    @property
    def pending(self) -> int:
        """Bytes of all logs that are waiting for the disk."""
        ...

    async def create(self, session: str) -> Log:
        """Create an empty log. Raises StorageFailed if it exists or cannot be created."""
        ...

    async def open(self, session: str, *, after: Position, fold: Callable[[bytes], None]) -> tuple[Log, Position]:
        """Open an existing log for appending, and sync it. A torn tail is moved to quarantine.

        Args:
            session: The session's id.
            after: The position after which lines are verified.
            fold: Called with each of those lines, in order and off the event loop.

        Returns:
            The log and its last position.

        Raises:
            UnknownSession: There is no such log.
            StorageFailed: The log cannot be opened.
            JournalDamaged: The log does not verify and is left unchanged. If `after` is beyond its end, or has another sum,
                `line` is 0 unless more is known.
        """
        ...
