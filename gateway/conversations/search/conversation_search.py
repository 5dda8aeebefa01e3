"""Searches of a person's conversations.

The first search builds the index, and each brings it up to date: it costs nothing where nobody searches, and never delays a
turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
import structlog

from gateway.conversations.search.message_index import IndexedMessage, MessageHit, MessageIndex
from gateway.protocol.slash_commands import parse_command
from gateway.support.errors import GatewayError, sentence_of
from sessions.catalog.sqlite import Error, lacks_full_text
from sessions.events.codec import InvalidLine, decode, seq_of
from sessions.events.errors import SessionsError
from sessions.events.events import MessageImported, MessageReceived, ModelReplied, Recorded, ReplyImported, kind_of
from sessions.store.catalog import SessionRow
from sessions.store.protocols import LogReader
from sessions.store.reading import StoredLog

STEP_SECONDS = 0.2
"""Seconds for which journals are read before the index is searched, or searched again."""

PAGE_BYTES = 1024 * 1024
"""Bytes of a journal that are read at once."""

_KINDS = (MessageReceived, ModelReplied, MessageImported, ReplyImported)
_MARKS = tuple(b'"kind":"%s"' % kind_of(kind).encode() for kind in _KINDS)
_HEAD = 128
"""Bytes at the start of a line that contain its kind."""

_FAILURES: tuple[type[Exception], ...] = (*Error, OSError)

T = TypeVar("T")

log = structlog.get_logger("exuvia.search")


class SearchUnavailable(GatewayError):
    """Conversations cannot be searched."""


class FoundMessages(msgspec.Struct, frozen=True, kw_only=True):
    """A page of hits, whether there are more, and the number of sessions that are not indexed yet."""

    hits: Sequence[MessageHit]
    more: bool
    pending: int


class ConversationSearch:
    """The search of a home, as an async context manager.

    Args:
        path: The file of the index.
        logs: The logs of the sessions.
    """

    def __init__(self, path: Path, logs: LogReader) -> None:
        self._logs = logs
        self._index = MessageIndex(path)
        self._thread = ThreadPoolExecutor(1, "search")
        self._heads: dict[str, int] | None = None
        """The seq up to which each session is indexed; None before the first search."""
        self._due: dict[str, SessionRow] = {}
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._index.is_open:
            await self._run(self._index.close)
        self._thread.shutdown(wait=False)

    async def find(self, person: str, query: str, rows: Collection[SessionRow], *, limit: int, offset: int) -> FoundMessages:
        """Return the messages and answers of a person with all words of a query, also as beginnings of words, newest first.

        Args:
            person: The person.
            query: The words.
            rows: The person's sessions, up to their last durable events.
            limit: The number of hits in a page.
            offset: The number of hits before it.

        Raises:
            SearchUnavailable: SQLite has no full-text search, or the disk fails.
        """
        if why := lacks_full_text():
            raise SearchUnavailable(f"Conversations cannot be searched: {why}.")

        def work() -> list[MessageHit]:
            self._note(rows)
            self._read_due(STEP_SECONDS)
            return self._index.find(query, person, limit + 1, offset)

        hits = await self._guarded(work)
        if self._due and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read_rest())
        return FoundMessages(hits=hits[:limit], more=len(hits) > limit, pending=len(self._due))

    async def remove(self, sessions: Collection[str]) -> None:
        """Remove deleted sessions, so that nothing of them remains in the file. Raises SearchUnavailable."""

        def work() -> None:
            for session in sessions:
                self._due.pop(session, None)
            self._index.remove(sessions)
            self._heads = None

        await self._guarded(work)

    async def _guarded(self, work: Callable[[], T]) -> T:
        """Run a function in the thread; if the index is damaged, again with a new one."""

        def attempt() -> T:
            try:
                return work()
            except Error as error:
                log.warning("search_index_rebuilt", reason=sentence_of(error))
                self._index.reset()
                self._heads = None
                return work()

        try:
            return await self._run(attempt)
        except _FAILURES as error:
            raise SearchUnavailable(f"Conversations cannot be searched: {sentence_of(error)}") from error

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _read_rest(self) -> None:
        """Read the remaining journals in steps, between which searches are answered."""
        with suppress(SearchUnavailable):  # the next search says so
            while self._due:
                await self._guarded(lambda: self._read_due(STEP_SECONDS))

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _note(self, rows: Collection[SessionRow]) -> None:
        """Note the sessions that have grown since they were indexed, the most recent first."""
        if self._heads is None:
            self._heads = self._index.heads()
            self._due.clear()
        heads = self._heads
        grown = [row for row in rows if row.head > heads.get(row.session, 0)]
        for row in sorted(grown, key=lambda row: row.at, reverse=True):
            self._due[row.session] = row

    def _read_due(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._due and time.monotonic() < until:
            session, row = next(iter(self._due.items()))
            if self._read_page(row):
                del self._due[session]

    def _read_page(self, row: SessionRow) -> bool:
        """Index the next part of a session; return True if that was the last one. Damaged parts are skipped."""
        if self._heads is None:
            self._heads = self._index.heads()
        head = self._heads.get(row.session, 0)
        parent = row.origin.session if row.origin and self._logs.stamp(row.origin.session) is not None else ""
        if not head and row.origin is not None and parent:
            head = row.origin.seq
        try:
            lines = StoredLog(self._logs, row.session).lines(head + 1, PAGE_BYTES)
        except SessionsError:
            lines = []
        upto = seq_of(lines[-1]) if lines else row.head
        self._index.add(row.session, row.person, upto, _messages(lines), parent)
        self._heads[row.session] = upto
        return upto >= row.head


def _messages(lines: Sequence[bytes]) -> Iterator[IndexedMessage]:
    """Yield the messages and answers in these lines, without commands."""
    for line in lines:
        if any(line.find(mark, 0, _HEAD) >= 0 for mark in _MARKS):
            with suppress(InvalidLine):
                if (message := _message(decode(line))) is not None:
                    yield message


def _message(recorded: Recorded) -> IndexedMessage | None:
    match recorded.event:
        case MessageReceived(text=text) if text.strip() and parse_command(text) is None:
            return IndexedMessage(seq=recorded.seq, at=recorded.at, role="person", text=text)
        case MessageImported(text=text) if text.strip():
            return IndexedMessage(seq=recorded.seq, at=recorded.at, role="person", text=text)
        case ModelReplied(text=text) | ReplyImported(text=text) if text.strip():
            return IndexedMessage(seq=recorded.seq, at=recorded.at, role="assistant", text=text)
        case _:
            return None
