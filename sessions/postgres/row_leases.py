"""The leases of one gateway among several: rows of the table `lease`, each with the incarnation of a gateway as its holder.

A lease is free when its holder is dead or gone. A gateway considers its leases lost as soon as it was declared dead, and
while it has no contact with the database, because the others may be about to declare it dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType

from sessions.events.errors import StorageFailed
from sessions.postgres.connections import Database
from sessions.postgres.membership import DEAD_SECONDS, FENCE, Membership

LOOK_SECONDS = 0.5
"""Seconds between two looks at the leases, if any is wanted."""

LOST_SECONDS = DEAD_SECONDS - LOOK_SECONDS
"""Seconds without contact with the database after which leases count as lost: the work is cancelled at the next look, before
another gateway may begin it."""

_TAKE = f"""
    WITH fence AS {FENCE}
    INSERT INTO lease AS held (name, holder)
    SELECT wanted.name, fence.id FROM fence, unnest(%(names)s::text[]) AS wanted (name)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder
        WHERE NOT EXISTS (SELECT FROM gateway WHERE gateway.id = held.holder AND NOT gateway.dead)
"""  # noqa: S608 - a fragment of ours

_HELD = """
    SELECT lease.name, lease.holder FROM lease JOIN gateway ON gateway.id = lease.holder AND NOT gateway.dead
    WHERE lease.name = ANY(%s)
"""

_RELEASE = "DELETE FROM lease WHERE holder = %s AND name = ANY(%s)"


class RowLeases:
    """The `Leases` of a gateway, used as an async context manager inside that of its membership. Leaving it gives all up."""

    def __init__(self, database: Database, membership: Membership) -> None:
        self._database = database
        self._membership = membership
        self._wanted: dict[str, int] = {}
        """The names that are wanted, each as often as `hold` runs for it."""
        self._held: dict[str, str] = {}
        """The incarnation under which each lease is held."""
        self._holders: dict[str, str] = {}
        """The holder of each wanted lease at the last look."""
        self._changed = asyncio.Condition()
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> RowLeases:
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._release(tuple(self._held))

    def holds(self, name: str) -> bool:
        """Return True if this gateway has a lease; see `Leases.holds`."""
        membership = self._membership
        return self._held.get(name) == membership.id and membership.silent_seconds < LOST_SECONDS

    def holder(self, name: str) -> str:
        """Return the gateway that has a lease; see `Leases.holder`."""
        return self._holders.get(name, "")

    async def hold(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run some work whenever this gateway has a lease; see `Leases.hold`."""
        self._wanted[name] = self._wanted.get(name, 0) + 1
        self._asked.set()
        try:
            while not await self._run(name, work):
                pass
        finally:
            self._wanted[name] -= 1
            if not self._wanted[name]:
                del self._wanted[name]
                await asyncio.shield(self._release((name,)))

    async def _run(self, name: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Wait for a lease and run the work; return True if it has ended, False if the lease was lost before."""
        await self._until(name, held=True)
        running = asyncio.ensure_future(work())
        lost = asyncio.create_task(self._until(name, held=False))
        try:
            await asyncio.wait([running, lost], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                return False
            await running
            return True
        finally:
            for task in (running, lost):
                task.cancel()
            await asyncio.wait([running, lost])

    async def _until(self, name: str, *, held: bool) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.holds(name) == held)

    async def _look(self) -> None:
        looking: asyncio.Task[None] | None = None
        try:
            while True:
                self._asked.clear()
                if not self._wanted:
                    await self._asked.wait()
                if looking is None or looking.done():
                    looking = asyncio.create_task(self._look_once())
                await asyncio.wait([looking], timeout=LOOK_SECONDS)  # a loss must be noticed even if this takes longer
                async with self._changed:
                    self._changed.notify_all()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._asked.wait()
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.wait([looking])

    async def _look_once(self) -> None:
        gateway, names = self._membership.id, tuple(self._wanted)
        if self._membership.draining:
            await self._release(tuple(self._held))
        elif gateway:
            with suppress(StorageFailed):  # `holds` notices that the contact is lost
                self._holders = await asyncio.to_thread(self._taken, gateway, names)
                held = [name for name, holder in self._holders.items() if holder == gateway]
                self._held = {name: gateway for name in held if name in self._wanted}

    async def _release(self, names: tuple[str, ...]) -> None:
        held = [name for name in names if name in self._held]
        for name in held:
            del self._held[name]
        if held:
            with suppress(StorageFailed):  # then they end with this gateway
                await asyncio.to_thread(self._give_up, self._membership.id, held)

    # --- on threads ---------------------------------------------------------------------------------------------------

    def _taken(self, gateway: str, names: tuple[str, ...]) -> dict[str, str]:
        """Take what is free, and return the holder of each lease."""
        with self._database.connection() as connection:
            holders: dict[str, str] = dict(connection.execute(_HELD, (list(names),)).fetchall())
            free = [name for name in names if name not in holders]
            if free:
                connection.execute(_TAKE, {"gateways": [gateway], "names": sorted(free)})
                holders = dict(connection.execute(_HELD, (list(names),)).fetchall())
        return holders

    def _give_up(self, gateway: str, names: list[str]) -> None:
        with self._database.connection() as connection:
            connection.execute(_RELEASE, (gateway, names))
