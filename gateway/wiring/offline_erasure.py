"""Erasures in a home on which no gateway runs: the same steps, and the indexes are removed, since they are derived."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from gateway.conversations.deletion.deletion_log import DELETIONS, Deletion, ErasureOrdered, Unfinished, record_end
from gateway.conversations.erasure.derived_data import ClosedIndexes
from gateway.conversations.erasure.erasure_plan import Chosen
from gateway.conversations.erasure.erasures import Erased, Erasures
from gateway.support.home import Home
from gateway.support.storage import attachments_of
from gateway.wiring.open_stores import open_catalog, open_log_stores
from sessions.store.lazy_log import LazyLog


def now() -> datetime:
    return datetime.now(UTC)


class OfflineErasures:
    """The erasures of a home that this process has locked."""

    def __init__(self, erasures: Erasures, log: LazyLog[Deletion, Unfinished]) -> None:
        self._erasures = erasures
        self._log = log

    async def erase(self, person: str, session: str, chosen: Chosen, by: str) -> Erased:
        """Erase something of a session. Raises SessionsError, OSError."""
        order = await self._erasures.order(person, session, chosen, by)
        async with self._log.writing() as writer:
            await writer.append_durable(order)
        return await self.carry_out(order)

    async def carry_out(self, order: ErasureOrdered) -> Erased:
        """Carry out an order that is recorded. Raises SessionsError, OSError."""
        erased = await self._erasures.carry_out(await self._erasures.plan(order))
        await record_end(self._log, order)
        return erased


@asynccontextmanager
async def open_erasures(home: Home, workspaces: Sequence[Path]) -> AsyncIterator[OfflineErasures]:
    """Open the stores of a home for erasures. Raises StorageFailed."""
    async with open_log_stores(home) as stores, open_catalog(home, stores.sessions) as catalog:
        erasures = Erasures(
            stores.sessions,
            stores.facts,
            catalog,
            attachments=attachments_of(home),
            derived=ClosedIndexes(home),
            facts_closed=_nothing_open,
            workspaces=lambda: workspaces,
            quarantine=home.quarantine,
            now=now,
        )
        log = LazyLog(DELETIONS, stores.facts, now, unusable="Nothing can be erased")
        try:
            yield OfflineErasures(erasures, log)
        finally:
            await log.close()


@asynccontextmanager
async def _nothing_open() -> AsyncIterator[None]:
    yield
