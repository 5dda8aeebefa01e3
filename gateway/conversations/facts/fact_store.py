"""The facts of a home: their log, opened by the gateway or only read by the command line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from gateway.config.settings import Settings
from gateway.support.home import Home
from plugins.api.context import Clock
from plugins.facts.fact_book import FactBook
from plugins.facts.fact_log import decode
from plugins.facts.facts import Facts
from sessions.events.errors import UnknownSession
from sessions.store.lazy_log import FRESH_SECONDS
from sessions.store.protocols import START, Log, LogReader, Position, Store
from sessions.store.reading import verify_lines

LOG = "facts"
"""The id of the log in its store."""


class _Existence:
    """Whether there is a log, asked by every turn. In a shared store another process may create it: then it is looked for
    again in a thread, at most once in FRESH_SECONDS."""

    def __init__(self, store: Store) -> None:
        self.found: bool | None = None
        self._store = store
        self._as_of = 0.0

    def __call__(self) -> bool:
        if self.found is None:
            self._find()
        elif not self.found and self._store.shared and time.monotonic() - self._as_of >= FRESH_SECONDS:
            self._as_of = time.monotonic()
            asyncio.get_running_loop().run_in_executor(None, self._find)
        return self.found is True

    def _find(self) -> None:
        self.found = self._store.stamp(LOG) is not None
        self._as_of = time.monotonic()


def facts_of(store: Store, home: Home, settings: Settings, clock: Clock) -> Facts:
    """Return the facts of a home that this process may change; they follow changes of the settings. The log is opened on
    first use."""

    existence = _Existence(store)

    async def opened(fold: Callable[[bytes], None]) -> tuple[Log, Position]:
        async with store.exclusive(LOG):
            exists = await asyncio.to_thread(store.stamp, LOG) is not None
            opened = await store.open(LOG, fold=fold) if exists else (await store.create(LOG), START)
        existence.found = True
        return opened

    if store.shared:
        existence()  # before the event loop serves anybody
    return Facts(
        opened,
        keys=lambda: settings.current.memory.facts,
        workspace=lambda: home.workspace(settings.current.agent.workspace),
        now=clock.now,
        exists=existence,
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
