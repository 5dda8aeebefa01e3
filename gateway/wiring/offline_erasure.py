"""Erasures in a home on which no gateway runs: the same steps, and the indexes are removed, since they are derived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from gateway.auth.sign_ins import forget_in_file
from gateway.conversations.deletion.deletion_log import DELETIONS, Deletion, ErasureOrdered, Unfinished, record_end
from gateway.conversations.erasure.derived_data import ClosedIndexes
from gateway.conversations.erasure.erasure_plan import Chosen
from gateway.conversations.erasure.erasures import Erased, Erasures, FactLogPlace
from gateway.conversations.erasure.other_logs import other_logs
from gateway.support.home import Home
from gateway.support.storage import agents_with_logs, attachments_of
from gateway.wiring.open_stores import LogStores, open_catalog, open_log_stores
from sessions.events.events import MAIN_AGENT
from sessions.store.lazy_log import LazyLog


def now() -> datetime:
    return datetime.now(UTC)


class OfflineErasures:
    """The erasures of a home that this process has locked."""

    def __init__(self, home: Home, erasures: Erasures, log: LazyLog[Deletion, Unfinished]) -> None:
        self._home = home
        self._erasures = erasures
        self._log = log

    async def erase(self, person: str, chosen: Mapping[str, Chosen], by: str) -> Erased:
        """Erase something of some sessions. Raises SessionsError, OSError."""
        order = await self._erasures.order(person, chosen, by)
        async with self._log.writing() as writer:
            await writer.append_durable(order)
        return await self.carry_out(order)

    async def begin_person(self, order: ErasureOrdered) -> Erased:
        """Record the order to erase a person, and erase what they have left outside of conversations. Raises SessionsError,
        OSError."""
        async with self._log.writing() as writer:
            await writer.append_durable(order)
        return await self.erase_entries(order)

    async def erase_entries(self, order: ErasureOrdered) -> Erased:
        """Erase what a person has left outside of conversations. Raises SessionsError, OSError."""
        erased = await self._erasures.erase_entries(order)
        await forget_in_file(self._home.sign_ins, order.person)
        return erased

    async def finish_person(self, order: ErasureOrdered) -> Erased:
        """Erase what is left of a person whose conversations are gone. Raises SessionsError, OSError."""
        erased = await self.erase_entries(order)
        await record_end(self._log, order)
        return erased

    async def carry_out_again(self, order: ErasureOrdered) -> bool:
        """Carry out an order in a restored home; return True if it found something. Raises SessionsError, OSError."""
        if not order.everything:
            return (await self.carry_out(order)).events > 0
        erased = await self.finish_person(order)
        return bool(erased.logs or erased.notes or erased.facts or erased.attachments)

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
            catalog,
            attachments=attachments_of(home),
            derived=ClosedIndexes(home),
            facts=partial(_fact_logs, home, stores),
            others=partial(other_logs, home, stores.facts, stores.of_plugin),
            workspaces=lambda: workspaces,
            quarantine=home.quarantine,
            unexamined=(home.channels, home.mcp_logins),
            now=now,
        )
        log = LazyLog(DELETIONS, stores.facts, now, unusable="Nothing can be erased")
        try:
            yield OfflineErasures(home, erasures, log)
        finally:
            await log.close()


async def _fact_logs(home: Home, stores: LogStores) -> list[FactLogPlace]:
    agents = [MAIN_AGENT, *await asyncio.to_thread(agents_with_logs, home)]
    return [FactLogPlace(store=stores.of_agent(agent), closed=_nothing_open) for agent in dict.fromkeys(agents)]


@asynccontextmanager
async def _nothing_open() -> AsyncIterator[None]:
    yield
