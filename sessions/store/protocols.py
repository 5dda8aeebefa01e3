"""Protocols of a store of logs (lines in, lines out) and of a store of attachments.

Numbering, chaining and encoding are done by the layer above (`log_writer`, `codec`), and so is verification (`reading`); a
store does not interpret events. So another store (a database, a remote log) only handles bytes that end in a newline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from sessions.events.codec import FIRST
from sessions.events.errors import StorageFailed
from sessions.events.file_types import PLAIN
from sessions.events.messages import Attachment

if TYPE_CHECKING:
    import asyncio

LONGEST_LINE = 2 * 1024 * 1024
"""Maximum length in bytes of a line in a log."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a whole line: its `seq`, the `offset` in bytes just after its newline, and its `sum`."""

    seq: int = 0
    offset: int = 0
    sum: bytes = FIRST

    def after(self, line: bytes) -> Position:
        """Return the position after the line that follows this one."""
        return Position(seq=self.seq + 1, offset=self.offset + len(line), sum=line[-19:-3])


START = Position()
"""The position before the first line."""


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a log, as cheaply as the store can determine it: a log whose stamp has not changed has not changed.

    `size` is in bytes, `changed` in nanoseconds since the epoch. `identity` differs if the log was replaced by another one,
    for example by a copy.
    """

    size: int
    changed: int
    identity: int = 0


class Lines(Protocol):
    """The lines of one log, for reading on threads. What is appended after it was opened is not included, and if the log is
    rewritten or removed meanwhile, they remain those of before.

    Lines are returned as they are stored, unverified. Where the log is damaged, a piece need not be a line, and a line may
    be missing; the last piece has no newline if the last line is incomplete.
    """

    @property
    def session(self) -> str:
        """The id of the log."""
        ...

    @property
    def size(self) -> int:
        """The length of the log in bytes, an incomplete line included."""
        ...

    def position_before(self, seq: int) -> Position | None:
        """Return the position before the line `seq`; None if the log ends before it. Raises JournalDamaged if the line
        cannot be found."""
        ...

    def forward(self, after: Position, upto: int | None = None) -> Iterator[bytes]:
        """Yield the lines after a position, up to the offset `upto` (default: the end), in order."""
        ...

    def backward(self, upto: int | None = None) -> Iterator[tuple[bytes, int]]:
        """Yield each line that ends at or before the offset `upto` (default: the end), with the offset just after it, last
        line first. An incomplete last line and lines longer than LONGEST_LINE are skipped."""
        ...


class LogReader(Protocol):
    """Read-only access to all logs of one home, also while another process writes them. All methods block."""

    def read(self, session: str) -> AbstractContextManager[Lines]:
        """Open a log for reading. Raises UnknownSession, StorageFailed; leaving the context raises StorageFailed if reading
        has failed."""
        ...

    def stamp(self, session: str) -> Stamp | None:
        """Return the stamp of a log, or None if there is none or it cannot be determined."""
        ...

    def listed(self) -> Iterator[tuple[str, Stamp]]:
        """Yield the id and the stamp of every log, in the order of the ids. Raises StorageFailed."""
        ...

    def location(self, session: str) -> str:
        """Return where a person finds a log, for messages."""
        ...


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

    def stamp(self) -> Stamp | None:
        """Return the stamp of the log as of its last commit, or None if it cannot be determined. Does not wait; works after
        closing and after a failure too."""
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
            failed: Called once with the failure. What was appended beyond `durable` is lost then, or was stored without an
                answer; the log must be opened again, which decides it.
        """
        ...

    async def until_written(self) -> None:
        """Wait until all lines that were appended survive the end of this process, also if it is killed; a power failure may
        still take them. Raises StorageFailed if the log has failed."""
        ...

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        """Return the durable lines from seq `first` on, about `limit` bytes of them and at least one if there is one."""
        ...

    async def catch_up(self, after: Position) -> list[bytes]:
        """Return the next lines that other processes have appended after the position, which is the last one known here, and
        continue after them. Empty if there are none, while a line of ours is not durable, and in a store that is not shared.
        Raises StorageFailed."""
        ...

    async def close(self) -> None:
        """Commit what was appended, then release the log. A failure is reported to the `on_commit` callback, not raised."""
        ...


class Store(LogReader, Protocol):
    """All logs of one home, with the right to write them."""

    shared: bool
    """True if other processes may append to the same logs. Then append only inside `exclusive`, after `Log.catch_up`, and
    wait there until it is durable."""

    @property
    def pending(self) -> int:
        """Bytes of all logs that are waiting to become durable."""
        ...

    def exclusive(self, session: str) -> AbstractAsyncContextManager[None]:
        """Exclude other processes from appending to a log. Entering raises StorageFailed. It does nothing in a store that is
        not shared."""
        ...

    @property
    def commits(self) -> int:
        """The number of commits so far."""
        ...

    @property
    def failure(self) -> asyncio.Future[StorageFailed]:
        """Done when the storage has failed permanently; the result is the failure."""
        ...

    async def create(self, session: str) -> Log:
        """Create an empty log. Raises StorageFailed if it exists or cannot be created."""
        ...

    async def open(
        self,
        session: str,
        *,
        after: Position = START,
        fold: Callable[[bytes], None],
        unchanged: bool = False,
        least: int = 0,
    ) -> tuple[Log, Position]:
        """Open an existing log for appending, and make what it holds durable. An incomplete last line is set aside.

        Args:
            session: The session's id.
            after: The position after which lines are verified.
            fold: Called with each of those lines, in order and off the event loop.
            unchanged: Whether the log still has the stamp with which it was last known to be durable.
            least: The seq up to which it was acknowledged, 0 if nothing is known of it.

        Returns:
            The log and its last position.

        Raises:
            UnknownSession: There is no such log, and `least` is 0.
            StorageFailed: The log cannot be opened, or is open already.
            JournalDamaged: The log does not verify, ends before `least` or is missing; it is left unchanged. If `after` is
                beyond its end, or has another sum, `line` is 0 unless more is known.
        """
        ...

    async def verify(self, session: str) -> None:
        """Verify a whole log, and report damage to the operator. Raises UnknownSession, StorageFailed, JournalDamaged."""
        ...

    async def copy(self, parent: str, upto: Position, line: bytes, session: str) -> None:
        """Create the log of `session` durably and at once: the lines of `parent` up to a position, and another line.

        Raises StorageFailed; then there is no such log.
        """
        ...

    async def rewrite(self, session: str, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        """Replace all lines of a log that is not open by others, durably and at once.

        Args:
            session: The log.
            rewritten: Given its lines, yields the new ones. Called on a thread.

        Raises:
            UnknownSession: There is no such log.
            StorageFailed: It is open, or cannot be written; then it is unchanged.
        """
        ...

    async def remove(self, session: str, *, upto: int = 0) -> bool:
        """Remove a log, if there is one, with all that was set aside of it, durably.

        Args:
            session: The log.
            upto: The seq of the last line that it may have; 0 if it does not matter.

        Returns:
            False if the log has later lines. Then it is unchanged.

        Raises:
            StorageFailed: It cannot be removed, or is open.
        """
        ...

    async def discard_empty(self, session: str) -> None:
        """Remove a log without a complete line, if it is one. Raises StorageFailed."""
        ...


class BlobDraft(Protocol):
    """A content that is being written. All methods block and raise StorageFailed."""

    @property
    def size(self) -> int:
        """The bytes written so far."""
        ...

    @property
    def path(self) -> Path:
        """The file with the bytes written so far. It exists until `keep` or `close`."""
        ...

    def write(self, piece: bytes) -> None:
        """Append bytes."""
        ...

    def keep(self, person: str, *, claimed: str, name: str) -> Attachment:
        """Turn the content into an attachment of this person, durably. `claimed` is the media type stated by the sender."""
        ...

    def close(self) -> None:
        """Discard the content unless it was kept. May be called repeatedly."""
        ...


class Blobs(Protocol):
    """All attachments of a home. A content is durable before its hash is returned; for a person who has not sent it, it does
    not exist."""

    async def keep(self, content: bytes, person: str, *, media: str = PLAIN, name: str = "") -> Attachment:
        """Store a tool's output or file for a person, with its stated media type and name. Raises StorageFailed."""
        ...

    async def store(self, content: bytes, person: str, *, claimed: str, name: str) -> Attachment:
        """Store a file that a person sent, with its stated media type and name, each or both empty. Raises StorageFailed."""
        ...

    def draft(self) -> BlobDraft:
        """Begin a content that arrives in pieces. Blocks; raises StorageFailed."""
        ...

    async def find(self, person: str, digest: str) -> Attachment | None:
        """Return the attachment that this person sent with a hash, or None. Raises StorageFailed."""
        ...

    async def settle(self, person: str, attachments: tuple[Attachment, ...]) -> None:
        """Mark attachments as used by a durable event, so that they are kept. Raises StorageFailed."""
        ...

    async def read(self, digest: str, convert: Callable[[bytes], bytes] = bytes) -> bytes:
        """Return the content of a hash, converted on a thread. Raises FileNotFoundError if it is missing or altered, or
        another OSError."""
        ...

    async def file(self, digest: str) -> Path | None:
        """Return a file with the content of a hash, which is sent as it is, or None. A store without files keeps a copy in
        one."""
        ...

    def fault(self, digest: str) -> str:
        """Return what is wrong with the content of a hash, to follow "it"; empty if nothing is. Blocks."""
        ...

    def records(self) -> Iterator[tuple[str, Attachment, bool]]:
        """Yield each person with an attachment that the person has, and True if it was marked as used. Blocks; raises
        OSError or a SessionsError."""
        ...

    def release(self, person: str, digests: Collection[str], logs: LogReader, sessions: Iterable[str]) -> tuple[int, int]:
        """Remove those attachments of a person that none of the person's other `sessions` refers to.

        Return the number of contents that nobody has any more, and their bytes. Blocks; raises OSError or a SessionsError.
        """
        ...

    def remove_orphans(self, logs: LogReader, before: float) -> int:
        """Remove attachments from before a time, in seconds since the epoch, that no log refers to, and restore lost records
        of those that one does. Return the number of removed contents. Blocks; raises OSError or a SessionsError."""
        ...
