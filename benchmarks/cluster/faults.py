"""The faults of a history: each is made, lasts, and is taken back; then the cluster is as before.

- `kill`: a gateway is killed and started again.
- `freeze`: a gateway is stopped (SIGSTOP) until others must have declared it dead, and continues.
- `database`: no gateway can connect to the database, and connections are reset.
- `link`: all bytes between a gateway and the database are dropped.
- `failover`: the primary is killed with all its processes, the standby is promoted, and the former primary joins as standby.
- `restart`: a gateway is stopped as a service manager does, and started again.
- `sleep`: the same as `freeze` for 10 s.
- `upgrade`: the same as `rolling`, from another version to this one, which run side by side for some seconds.
- `rolling`: all gateways are restarted, each when the one before is ready.
- `door`: connections of clients to a gateway are reset, halved or paused.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psycopg

from benchmarks.cluster.gateways import Cluster, Gateway
from benchmarks.cluster.tcp_proxy import Passage
from benchmarks.process import ROOT

DEAD_SECONDS = (4.0, 10.0)
"""How long a gateway is frozen or cut off: long enough to be declared dead."""

SLEEP_SECONDS = (10.0, 10.0)
"""How long a gateway is frozen that wakes up and finds itself dead."""

BESIDE_SECONDS = 8.0
"""How long two versions run side by side before the next gateway is upgraded."""

DATABASE_SECONDS = (0.5, 2.0)
DOWN_SECONDS = (0.0, 2.0)
"""How long a killed gateway is down, and the database between the end of the primary and the promotion."""

SOME = 0.25
"""The share of faults that meet any gateway, and not the one with the most conversations."""

_BUSIEST = """
    SELECT gateway.url FROM chat JOIN gateway ON gateway.id = chat.holder GROUP BY gateway.url ORDER BY count(*) DESC LIMIT 1
"""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that was made: its kind, the gateway or server, and the times when it began and when all was as before.
    `at` is the beginning in seconds since the epoch, `promoted` the time of the promotion, of a failover."""

    kind: str
    of: str
    at: float
    began: float
    ended: float
    promoted: float = 0.0


class Faults:
    """Makes faults in a cluster, one at a time."""

    def __init__(self, cluster: Cluster, choice: random.Random) -> None:
        self.made: list[Fault] = []
        self._cluster = cluster
        self._choice = choice
        self._kinds: dict[str, Callable[[], Awaitable[tuple[str, float]]]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "database": self._database,
            "link": self._link,
            "failover": self._failover,
            "restart": self._restart,
            "door": self._door,
            "sleep": self._sleep,
            "rolling": self._rolling,
            "upgrade": self._upgrade,
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the kinds."""
        return tuple(self._kinds)

    async def make(self, kind: str) -> Fault:
        """Make a fault and wait until the cluster is as before."""
        at, began = time.time(), time.monotonic()
        of, promoted = await self._kinds[kind]()
        for gateway in self._cluster.gateways:
            if not gateway.running:  # a gateway may end itself when it has lost the database; a service manager restarts it
                await self._cluster.start(gateway)
            await gateway.ready()
        fault = Fault(kind=kind, of=of, at=at, began=began, ended=time.monotonic(), promoted=promoted)
        self.made.append(fault)
        return fault

    async def _gateway(self) -> Gateway:
        """Return the gateway that has the most conversations, or sometimes any."""
        gateways = self._cluster.gateways
        if self._choice.random() < SOME or (owner := await asyncio.to_thread(_busiest, self._cluster.url)) is None:
            return self._choice.choice(gateways)
        return next((each for each in gateways if owner.endswith(f":{each.port}")), gateways[0])

    async def _kill(self) -> tuple[str, float]:
        gateway = await self._gateway()
        await gateway.kill()
        await asyncio.sleep(self._choice.uniform(*DOWN_SECONDS))
        await self._cluster.start(gateway)
        return gateway.name, 0.0

    async def _freeze(self, seconds: tuple[float, float] = DEAD_SECONDS) -> tuple[str, float]:
        gateway = await self._gateway()
        gateway.freeze()
        try:
            await asyncio.sleep(self._choice.uniform(*seconds))
        finally:
            gateway.wake()
        return gateway.name, 0.0

    async def _database(self) -> tuple[str, float]:
        for gateway in self._cluster.gateways:
            gateway.link(Passage.REFUSED)
        try:
            await asyncio.sleep(self._choice.uniform(*DATABASE_SECONDS))
        finally:
            for gateway in self._cluster.gateways:
                gateway.link(Passage.OPEN)
        return "all", 0.0

    async def _link(self) -> tuple[str, float]:
        gateway = await self._gateway()
        gateway.link(Passage.SWALLOWED)
        try:
            await asyncio.sleep(self._choice.uniform(*DEAD_SECONDS))
        finally:
            gateway.link(Passage.OPEN)
        return gateway.name, 0.0

    async def _failover(self) -> tuple[str, float]:
        pair = self._cluster.pair
        pair.server(pair.primary).kill()
        await asyncio.sleep(self._choice.uniform(*DOWN_SECONDS))
        await asyncio.to_thread(pair.promote)
        promoted = time.monotonic()
        await asyncio.to_thread(pair.join)
        return pair.primary, promoted

    async def _sleep(self) -> tuple[str, float]:
        return await self._freeze(SLEEP_SECONDS)

    async def _rolling(self) -> tuple[str, float]:
        for gateway in self._cluster.gateways:
            await self._restarted(gateway)
            await gateway.ready()
        return "all", 0.0

    async def _upgrade(self) -> tuple[str, float]:
        for gateway in self._cluster.gateways:
            gateway.root = ROOT
            await self._restarted(gateway)
            await gateway.ready()
            await asyncio.sleep(BESIDE_SECONDS)
        return "all", 0.0

    async def _restart(self) -> tuple[str, float]:
        gateway = await self._gateway()
        await self._restarted(gateway)
        return gateway.name, 0.0

    async def _restarted(self, gateway: Gateway) -> None:
        if code := await gateway.stop():
            raise RuntimeError(f"{gateway.name} ended with {code}: {gateway.log.read_text()[-3000:]}")
        await self._cluster.start(gateway)

    async def _door(self) -> tuple[str, float]:
        gateway = await self._gateway()
        how = self._choice.choice(("reset", "halve", "pause"))
        if how == "reset":
            gateway.door.reset()
        elif how == "halve":
            gateway.door.halve()
        else:
            gateway.door.passage = Passage.PAUSED
            await asyncio.sleep(self._choice.uniform(*DATABASE_SECONDS))
            gateway.door.passage = Passage.OPEN
        return f"{gateway.name}: {how}", 0.0


def _busiest(url: str) -> str | None:
    """Return the address of the gateway that has the most conversations; None if none has any."""
    with psycopg.connect(url, options="-c search_path=exuvia", target_session_attrs="read-write") as connection:
        found = connection.execute(_BUSIEST).fetchone()
    return str(found[0]) if found else None
