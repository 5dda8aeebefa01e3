"""Services of the gateway for plugins: model requests, embeddings and logs, with time limits and accounting."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import msgspec

from gateway.models.call import ModelCaller, TextRequest, text_context
from gateway.models.registry import ChosenModel
from gateway.support.errors import GatewayError
from plugins.api.embedding import EmbeddingProvider
from plugins.api.plugin_services import (
    LogEntry,
    LogUnusable,
    ModelAnswer,
    PluginServices,
    Purpose,
    WorkspaceFacts,
    WorkspaceMemory,
)
from plugins.support.errors import BadRequest, Unreachable
from sessions.events.errors import JournalDamaged, SessionsError, StorageFailed
from sessions.events.messages import Usage
from sessions.events.tokens import estimate
from sessions.store.log_writer import LogWriter
from sessions.store.protocols import START, Lines, Log, Position, Store

ANSWER_SECONDS = 120.0
"""Seconds that one answer of a model may take."""

VECTORS_SECONDS = 60.0
"""Seconds that embedding may take."""

TEXTS = 256
"""Maximum number of texts that are embedded at once."""

NAME = "log"
"""The id of the log in its store."""

ENTRY = 64 * 1024
"""Bytes of one entry as JSON."""

FULL = 64 * 1024 * 1024
"""Bytes of a whole log; further entries are refused."""


class PluginServiceFactory:
    """Creates the services of each plugin.

    `choose` returns the model that is asked, `embedding` the provider of embeddings, which is not closed while
    `vectors_in_use` is held; `charge` charges the texts that it embedded, by their estimated tokens. `store_of` returns the
    store of a plugin's log. Use as an async context manager, which closes the logs.
    """

    def __init__(
        self,
        *,
        choose: Callable[[], ChosenModel],
        caller: ModelCaller,
        embedding: Callable[[], EmbeddingProvider | None],
        vectors_in_use: Callable[[], AbstractContextManager[None]],
        store_of: Callable[[str], Store],
        charge: Callable[[EmbeddingProvider, int], None],
        now: Callable[[], datetime],
    ) -> None:
        self._charge = charge
        self._choose = choose
        self._caller = caller
        self._embedding = embedding
        self._vectors_in_use = vectors_in_use
        self._store_of = store_of
        self._now = now
        self._logs: dict[str, DurablePluginLog] = {}
        self._spent: dict[str, dict[str, Usage]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for log in self._logs.values():
            await log.close()

    def of(self, plugin: str, memory: WorkspaceMemory, facts: WorkspaceFacts) -> PluginServices:
        """Return the services of one plugin."""
        ask = functools.partial(self.answer, plugin)
        return PluginServices(memory=memory, facts=facts, ask=ask, embed=self.embed, log=self._log(plugin))

    async def rewrite_log(self, plugin: str, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        """Replace the lines of a plugin's log, which is closed meanwhile. Raises StorageFailed, JournalDamaged."""
        await self._log(plugin).rewrite(rewritten)

    def _log(self, plugin: str) -> DurablePluginLog:
        if plugin not in self._logs:
            self._logs[plugin] = DurablePluginLog(self._store_of(plugin), self._now)
        return self._logs[plugin]

    async def answer(self, plugin: str, *, system: str, text: str, limit: int) -> ModelAnswer:
        """Return one answer, accounted to the plugin. Raises ProviderError."""
        purpose = f"plugin:{plugin}"
        request = TextRequest(
            context=text_context(system, text),
            purpose=purpose,
            session=f"plugin-{plugin}",
            limit=limit,
            seconds=ANSWER_SECONDS,
        )
        try:
            answer = await self._caller.answer(self._choose(), request)
        except GatewayError as error:  # plugins see only provider errors
            raise Unreachable(str(error)) from error
        if answer.usage is not None:
            spent = self._spent.setdefault(purpose, {})
            spent[answer.model] = spent.get(answer.model, Usage()) + answer.usage
        return answer

    def spent(self) -> Mapping[str, Mapping[str, Usage]]:
        """Return the tokens that plugins have used since the start, by `plugin:NAME` and model."""
        return self._spent

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """Return the embeddings of texts by the memory's provider, see `EmbeddingProvider.embed`."""
        if len(texts) > TEXTS:
            raise BadRequest(f"At most {TEXTS} texts can be embedded at once, not {len(texts)}.")
        provider = self._embedding()
        if provider is None:
            raise Unreachable("No embedding provider is available; set memory.embedding.provider.")
        with self._vectors_in_use():
            try:
                async with asyncio.timeout(VECTORS_SECONDS):
                    vectors = await provider.embed(texts, purpose)
                self._charge(provider, sum(map(estimate, texts)))
                return vectors
            except TimeoutError as error:
                raise Unreachable(f"The embedding took longer than {VECTORS_SECONDS:.0f} seconds.") from error


# --- logs -------------------------------------------------------------------------------------------------------------


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
        try:
            async with self._store.exclusive(NAME):
                writer = await self._opened()
                if writer.log.end + len(raw) > FULL:
                    raise LogUnusable(f"The plugin's log is full: it has {writer.log.end:,} bytes, and {FULL:,} at most.")
                return await writer.append_durable(_Logged(msgspec.Raw(raw)))
        except StorageFailed as error:
            raise LogUnusable(f"The entry could not be written: {error}") from error

    async def entries(self, after: int = 0, limit: int = 1000) -> Sequence[LogEntry]:
        """Return entries in order, see `PluginLog.entries`."""
        found = list[LogEntry]()
        try:
            log = (await self._opened_to_read()).log
            while len(found) < limit and (lines := await log.lines(after + len(found) + 1, limit=ENTRY)):
                found += [_decoded(line) for line in lines]
        except (SessionsError, msgspec.MsgspecError) as error:
            raise LogUnusable(f"The plugin's log cannot be read: {error}") from error
        return found[:limit]

    async def rewrite(self, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        """Replace the lines of the log while it is closed. Raises StorageFailed, JournalDamaged."""
        async with self._opening:
            if self._writer is not None:
                await self._writer.close()
                self._writer = None
            await self._store.rewrite(NAME, rewritten)

    async def close(self) -> None:
        """Commit all entries and close the file."""
        if self._writer is not None:
            await self._writer.close()

    async def _opened_to_read(self) -> LogWriter[_Logged, None]:
        if self._writer is not None and self._writer.failure is None:
            return await self._opened()
        async with self._store.exclusive(NAME):  # which may create it
            return await self._opened()

    async def _opened(self) -> LogWriter[_Logged, None]:
        """Return the writer, which continues after what other processes have appended."""
        async with self._opening:  # by one at a time
            if self._writer is None or self._writer.failure is not None:  # entries that were not durable are lost
                try:
                    self._writer = LogWriter(*await self._open(), None, self._now, _ignore)
                except (JournalDamaged, StorageFailed) as error:
                    raise LogUnusable(f"The plugin's log cannot be used: {error}") from error
            await self._writer.catch_up(_ignore_line)
            return self._writer

    async def _open(self) -> tuple[Log, Position]:
        if await asyncio.to_thread(self._store.stamp, NAME) is None:
            return await self._store.create(NAME), START
        return await self._store.open(NAME, fold=lambda _: None)


def _ignore(state: None, event: _Logged, *, seq: int, at: str, turn: int | None, size: int) -> None:
    """Fold nothing: the gateway does not interpret entries."""


def _ignore_line(state: None, line: bytes) -> None:
    """Fold nothing, as `_ignore` does."""


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
