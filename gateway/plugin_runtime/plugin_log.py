"""The logs of plugins: one file each, with checksums and synced like the journals."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from plugins.api.services import LogEntry, LogUnusable
from sessions.events.codec import encode_line
from sessions.events.errors import JournalDamaged, SessionsError, StorageFailed
from sessions.files.journal import Journals
from sessions.store.protocols import START, Log, Position
from sessions.store.recorder import stamp

NAME = "log"
"""The name of the file, without its suffix."""

ENTRY = 64 * 1024
"""Bytes of one entry as JSON."""

FULL = 64 * 1024 * 1024
"""Bytes of a whole log; further entries are refused."""


class _Logged(msgspec.Struct, frozen=True, tag_field="kind", tag="plugin_logged"):
    entry: msgspec.Raw


class _Line(msgspec.Struct, frozen=True):
    seq: int
    at: str
    entry: Any


class DurablePluginLog:
    """A `PluginLog` in a file. `journals` opens files in the plugin's folder; `now` returns the time in UTC."""

    def __init__(self, journals: Journals, now: Callable[[], datetime]) -> None:
        self._journals = journals
        self._now = now
        self._opening = asyncio.Lock()
        self._log: Log | None = None
        self._end = START
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def append(self, entry: Any) -> int:
        """Append an entry and wait until it is durable, see `PluginLog.append`. A cancelled wait does not remove the
        entry."""
        raw = _encoded(entry)
        log = await self._opened()
        if log.end + len(raw) > FULL:
            raise LogUnusable(f"The plugin's log is full: it has {log.end:,} bytes, and {FULL:,} at most.")
        seq = self._end.seq + 1
        line, digest = encode_line(seq, stamp(self._now()), None, _Logged(msgspec.Raw(raw)), self._end.sum)
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            log.append(line, urgent=True)
            self._end = Position(seq=seq, offset=log.end, sum=digest)
            self._waiting.append((log.end, durable))
            await durable
        except StorageFailed as error:
            raise LogUnusable(f"The entry could not be written: {error}") from error
        return seq

    async def entries(self, after: int = 0, limit: int = 1000) -> Sequence[LogEntry]:
        """Return entries in order, see `PluginLog.entries`."""
        log, found = await self._opened(), list[LogEntry]()
        try:
            while len(found) < limit and (lines := await log.lines(after + len(found) + 1, limit=ENTRY)):
                found += [_decoded(line) for line in lines]
        except (SessionsError, msgspec.MsgspecError) as error:
            raise LogUnusable(f"The plugin's log cannot be read: {error}") from error
        return found[:limit]

    async def close(self) -> None:
        """Commit all entries and close the file."""
        if self._log is not None:
            await self._log.close()

    async def _opened(self) -> Log:
        async with self._opening:
            if self._log is None:
                try:
                    self._log, self._end = await self._open()
                except (JournalDamaged, StorageFailed) as error:
                    raise LogUnusable(f"The plugin's log cannot be used: {error}") from error
                self._log.on_commit(self._settle, self._fail)
            return self._log

    async def _open(self) -> tuple[Log, Position]:
        path = self._journals.path(NAME)
        if not await asyncio.to_thread(path.exists):
            await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True, mode=0o700)
            return await self._journals.create(NAME), START
        return await self._journals.open(NAME, fold=lambda _: None)

    def _settle(self, durable: int) -> None:
        while self._waiting and self._waiting[0][0] <= durable:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, failure: StorageFailed) -> None:
        self._log = None  # entries that were not durable are lost; the next call opens the log again
        while self._waiting:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(failure)


def _encoded(entry: Any) -> bytes:
    try:
        raw = msgspec.json.encode(entry)
    except (TypeError, ValueError, RecursionError) as error:
        raise LogUnusable(f"The entry cannot be encoded as JSON: {error}.") from error
    if len(raw) > ENTRY:
        raise LogUnusable(f"The entry has {len(raw):,} bytes as JSON, and {ENTRY:,} at most are kept.")
    return raw


_decode = msgspec.json.Decoder(_Line).decode


def _decoded(line: bytes) -> LogEntry:
    read = _decode(line)
    return LogEntry(seq=read.seq, at=read.at, entry=read.entry)
