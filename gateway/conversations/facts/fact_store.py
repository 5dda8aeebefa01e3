"""The facts of a home: their log, opened by the gateway or only read by the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache

from gateway.config.settings import Settings
from gateway.support.home import Home
from plugins.api.context import Clock
from plugins.facts.fact_book import FactBook
from plugins.facts.fact_log import decode
from plugins.facts.facts import Facts
from sessions.events.errors import UnknownSession
from sessions.store.protocols import START, Log, LogReader, Position, Store
from sessions.store.reading import verify_lines

LOG = "facts"
"""The id of the log in its store."""


def facts_of(store: Store, home: Home, settings: Settings, clock: Clock) -> Facts:
    """Return the facts of a home that this process may change; they follow changes of the settings. The log is opened on
    first use."""

    @cache  # every turn asks, and only this process creates it
    def exists() -> bool:
        return store.stamp(LOG) is not None

    async def opened(fold: Callable[[bytes], None]) -> tuple[Log, Position]:
        try:
            async with store.exclusive(LOG):
                if await asyncio.to_thread(store.stamp, LOG) is None:
                    return await store.create(LOG), START
                return await store.open(LOG, fold=fold)
        finally:
            exists.cache_clear()

    return Facts(
        opened,
        keys=lambda: settings.current.memory.facts,
        workspace=lambda: home.workspace(settings.current.agent.workspace),
        now=clock.now,
        exists=exists,
        shared=store.shared,
        exclusive=lambda: store.exclusive(LOG),
    )


def read_facts(logs: LogReader) -> FactBook:
    """Return the durable facts, even while another process writes them. Raises JournalDamaged, StorageFailed and
    InvalidLine."""
    book = FactBook()
    try:
        with logs.read(LOG) as lines:
            verify_lines(lines, START, lambda line: book.apply(decode(line)))
    except UnknownSession:
        return book
    return book
