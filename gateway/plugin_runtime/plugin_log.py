"""The logs of plugins: one each, chained and durable like those of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from plugins.api.plugin_services import LogEntry, LogUnusable
from sessions.events.errors import JournalDamaged, SessionsError, StorageFailed
from sessions.store.log_writer import LogWriter
from sessions.store.protocols import START, Log, Position, Store

NAME = "log"
"""The id of the log in its store."""

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
    """A `PluginLog` in the plugin's own store. `now` returns the time in UTC."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._opening = asyncio.Lock()
        self._writer: LogWriter[_Logged, None] | None = None

    async def append(self, entry: Any) -> int:
        """Append an entry and wait until it is durable, see `PluginLog.append`. A cancelled wait does not remove the
        entry."""
        raw = _encoded(entry)
        writer = await self._opened()
        if writer.log.end + len(raw) > FULL:
            raise LogUnusable(f"The plugin's log is full: it has {writer.log.end:,} bytes, and {FULL:,} at most.")
        try:
            return await writer.append_durable(_Logged(msgspec.Raw(raw)))
        except StorageFailed as error:
            raise LogUnusable(f"The entry could not be written: {error}") from error

    async def entries(self, after: int = 0, limit: int = 1000) -> Sequence[LogEntry]:
        """Return entries in order, see `PluginLog.entries`."""
        log, found = (await self._opened()).log, list[LogEntry]()
        try:
            while len(found) < limit and (lines := await log.lines(after + len(found) + 1, limit=ENTRY)):
                found += [_decoded(line) for line in lines]
        except (SessionsError, msgspec.MsgspecError) as error:
            raise LogUnusable(f"The plugin's log cannot be read: {error}") from error
        return found[:limit]

    async def close(self) -> None:
        """Commit all entries and close the file."""
        if self._writer is not None:
            await self._writer.close()

    async def _opened(self) -> LogWriter[_Logged, None]:
        async with self._opening:
            if self._writer is None or self._writer.failure is not None:  # entries that were not durable are lost
                try:
                    self._writer = LogWriter(*await self._open(), None, self._now, _ignore)
                except (JournalDamaged, StorageFailed) as error:
                    raise LogUnusable(f"The plugin's log cannot be used: {error}") from error
            return self._writer

    async def _open(self) -> tuple[Log, Position]:
        if await asyncio.to_thread(self._store.stamp, NAME) is None:
            return await self._store.create(NAME), START
        return await self._store.open(NAME, fold=lambda _: None)


def _ignore(state: None, event: _Logged, *, seq: int, at: str, turn: int | None, size: int) -> None:
    """Fold nothing: the gateway does not interpret entries."""


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
