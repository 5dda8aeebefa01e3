"""Membership: this process among the gateways that share a database.

Each incarnation of a gateway has a row whose beat it increments. The others declare it dead only after they have watched
the same beat through uninterrupted contact with the database. No clocks are compared, and an outage or a failover of the
database kills nobody. What a dead incarnation still writes is rejected (`FENCE`); its process continues as a new one.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

import msgspec
import psycopg
import structlog

from sessions.events.errors import StorageFailed
from sessions.postgres.connections import Connection, Database
from sessions.store.cluster import GatewayRow

BEAT_SECONDS = 0.5
"""Seconds between two beats."""

DEAD_SECONDS = 2.5
"""Seconds of contact through which an unchanged beat must be watched before its gateway is declared dead."""

GRACE_SECONDS = 5.0
"""Additional seconds after this process had lost the contact itself: the others may need longer to find a new primary. They
are no more than those without contact, which may have been a single statement that took long."""

CONTACT_SECONDS = 1.5
"""Seconds without a beat of our own after which the contact counts as interrupted."""

log = structlog.get_logger("exuvia.cluster")

FENCE = "(SELECT id FROM gateway WHERE id = ANY(%(gateways)s) AND NOT dead FOR KEY SHARE)"
"""A subquery with those of the incarnations that may write. It holds their rows until the end of the transaction: a death
waits for that, and what comes later finds the row dead."""

_JOIN = """
    WITH old AS (DELETE FROM gateway WHERE dead AND ended < now() - interval '1 day')
    INSERT INTO gateway (id, url, version, config_digest, draining) VALUES (%s, %s, %s, %s, %s)
"""

_NEW_KEY = "INSERT INTO cluster (secret) VALUES (%s) ON CONFLICT DO NOTHING"

_BEAT = "UPDATE gateway SET beat = beat + 1, at = clock_timestamp() WHERE id = %s AND NOT dead RETURNING beat"

_OTHERS = """
    SELECT coalesce(json_agg(json_build_array(id, beat)) FILTER (WHERE id <> %s), '[]')::text,
           EXISTS (SELECT FROM chat WHERE unsettled AND holder IS NULL)
    FROM gateway WHERE NOT dead
"""

_ALIVE = """
    SELECT id, url, beat, (extract(epoch FROM clock_timestamp() - at) * 1000)::bigint, draining, version, config_digest,
           to_char(began AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
           (SELECT count(*) FROM chat WHERE holder = gateway.id),
           (SELECT coalesce(max(epoch), 0) FROM chat WHERE holder = gateway.id)
    FROM gateway WHERE NOT dead ORDER BY began, id
"""

_DISCONNECT = """
    SELECT pg_terminate_backend(activity.pid) FROM pg_stat_activity AS activity, gateway
    WHERE gateway.id = %(id)s AND gateway.beat = %(beat)s AND NOT gateway.dead
          AND activity.application_name LIKE '%% ' || split_part(%(id)s, '.', 1)
"""
"""Ends the sessions of a gateway on the server: a stopped process may hold locks."""

_DIE = "UPDATE gateway SET dead = true, ended = now() WHERE id = %(id)s AND beat = %(beat)s AND NOT dead"

_FREE = "UPDATE chat SET epoch = epoch + 1, holder = NULL WHERE holder = %(id)s"
"""Frees the chats of a gateway that died. It is a statement of its own, after the death: one that began before would not see
a claim for which the death has waited."""


class Membership:
    """This process among the gateways of a database, a `Cluster`; used as an async context manager inside that of the
    committer. Entering raises StorageFailed."""

    def __init__(self, database: Database, *, version: str = "", config_digest: str = "") -> None:
        self.id = ""
        """The present incarnation. Empty after a death until all claims are dropped."""
        self.secret = b""
        """The secret that the gateways of this database share."""
        self.deaths = 0
        """How often this process was declared dead."""
        self.declared = 0
        """How many others it has declared dead."""
        self.adopted = 0
        """How many conversations it has adopted because their owner was gone."""
        self.on_death: Callable[[], None] = lambda: None
        """Called when this incarnation was declared dead, to drop its claims; the next one begins afterwards."""
        self.unowned = asyncio.Event()
        """Set while there is unfinished work without an owner."""
        self.doubtful = False
        """True if the database may have claims of this gateway that it does not know of, because an answer was lost."""
        self.regained = 0
        """How often the contact with the database was lost and came back."""
        self._back = asyncio.Event()
        """Set when it has come back, for those who wait."""
        self._database = database
        self._version, self._config_digest = version, config_digest
        self._url, self._draining = "", False
        self._contact = time.monotonic()
        self._watched: dict[str, tuple[int, float]] = {}
        """The beats of the others, and when each was first seen on the monotonic clock."""
        self._had_failed = False
        self._grace_until = 0.0
        self._others: frozenset[str] | None = None
        """The others that are alive; None before the first round."""
        self._gone: dict[str, asyncio.Future[None]] = {}
        """Done once a gateway is no more."""
        self._connection: Connection | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Membership:
        self._loop = asyncio.get_running_loop()
        self.id = await asyncio.to_thread(self._join)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave: the others need not wait for a death. The owners close their logs before."""
        self._ending.set()
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._leave)

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last contact with the database."""
        return time.monotonic() - self._contact

    @property
    def alive(self) -> int:
        """The number of gateways that are alive, this one included."""
        return 1 + len(self._watched)

    @property
    def draining(self) -> bool:
        """True if this gateway is stopping, and takes no further claims."""
        return self._draining

    async def announce(self, url: str) -> None:
        """Tell the others where this gateway listens. Raises StorageFailed."""
        self._url = url
        await asyncio.to_thread(self._update)

    async def drain(self) -> None:
        """Tell the others that this gateway is stopping. Raises StorageFailed."""
        self._draining = True
        await asyncio.to_thread(self._update)

    async def until_gone(self, gateway: str) -> None:
        """Return once another gateway is dead or has left."""
        await asyncio.shield(self._gone.setdefault(gateway, self._loop.create_future()))

    async def until_regained(self, before: int) -> None:
        """Return once the contact with the database has come back more often than `before`."""
        while self.regained <= before:
            self._back.clear()
            await self._back.wait()

    def is_gone(self, gateway: str) -> bool:
        """Return True if another gateway is dead or has left; see `Cluster.is_gone`. What a former incarnation of this
        process has begun may still run in it."""
        if not gateway or not self.id or self._others is None or self.silent_seconds > CONTACT_SECONDS:
            return False
        return gateway.partition(".")[0] != self._database.process and gateway not in self._others

    def rows(self) -> list[GatewayRow]:
        """Return the gateways that are alive, in the order of their start. Blocks; raises StorageFailed."""
        return gateway_rows(self._database)

    def _update(self) -> None:
        with self._database.connection() as connection:
            connection.execute(
                "UPDATE gateway SET url = %s, draining = %s WHERE id = %s", (self._url, self._draining, self.id)
            )

    # --- on the thread ------------------------------------------------------------------------------------------------

    def _join(self) -> str:
        """Begin an incarnation, and return its id. Raises StorageFailed."""
        identity = f"{self._database.process}.{secrets.token_hex(4)}"
        with self._database.connection() as connection:
            connection.execute(_JOIN, (identity, self._url, self._version, self._config_digest, self._draining))
            connection.execute(_NEW_KEY, (secrets.token_bytes(32),))
            (self.secret,) = connection.execute("SELECT secret FROM cluster").fetchone() or (b"",)
        return identity

    def _leave(self) -> None:
        try:
            with self._database.connection() as connection:
                (beat,) = connection.execute("SELECT beat FROM gateway WHERE id = %s", (self.id,)).fetchone() or (0,)
                _end(connection, self.id, beat)
        except StorageFailed:
            pass  # the others notice
        finally:
            self._close()

    def _run(self) -> None:
        identity = self.id
        while not self._ending.wait(BEAT_SECONDS):
            try:
                identity = self._round(identity)
            except Exception as error:  # without beats, this gateway would be dead for the others
                self._close()
                if not self._had_failed:
                    log.warning("database_contact_lost", gateway=identity, reason=str(error).partition("\n")[0])
                self._had_failed = True

    def _round(self, identity: str) -> str:
        """Beat, watch the others, and return the present incarnation."""
        if self._connection is None or not self._connection.usable:
            self._close()
            self._connection = self._connect()
        if self._connection.execute(_BEAT, (identity,)).fetchone() is None:
            return self._rejoin()
        found = self._connection.execute(_OTHERS, (identity,)).fetchone()
        assert found is not None
        now = time.monotonic()
        self._note_contact(now)
        beats = msgspec.json.decode(found[0], type=list[tuple[str, int]])
        self._loop.call_soon_threadsafe(self._note_others, frozenset(other for other, _ in beats), found[1])
        self._watch(self._connection, beats, now)
        return identity

    def _note_contact(self, now: float) -> None:
        """Note a beat of our own. After an interruption, watching begins anew: with more patience if the database was away,
        and without if only this process stood still."""
        if self._had_failed:
            log.warning("database_contact_regained", seconds=round(now - self._contact, 2))
            self._had_failed = False
            self._grace_until = now + DEAD_SECONDS + min(GRACE_SECONDS, now - self._contact)
            self._loop.call_soon_threadsafe(self._note_regained)
        if now - self._contact > CONTACT_SECONDS:
            self._watched.clear()
        self._contact = now

    def _watch(self, connection: Connection, beats: list[tuple[str, int]], now: float) -> None:
        known, self._watched = self._watched, {}
        for other, beat in beats:
            before = known.get(other)
            self._watched[other] = beat, before[1] if before is not None and before[0] == beat else now
        for other, (beat, since) in tuple(self._watched.items()):
            if now - since >= DEAD_SECONDS and now >= self._grace_until:
                self._declare_dead(connection, other, beat)

    def _declare_dead(self, connection: Connection, other: str, beat: int) -> None:
        with suppress(psycopg.errors.InsufficientPrivilege):  # of another user; its locks end with its transactions
            connection.execute(_DISCONNECT, {"id": other, "beat": beat})
        freed = _end(connection, other, beat)
        if freed is not None:
            log.warning("gateway_declared_dead", gateway=other, conversations=freed)
            self.declared += 1
            alive = frozenset(self._watched.keys() - {other})
            self._loop.call_soon_threadsafe(self._note_others, alive, freed > 0)

    def _rejoin(self) -> str:
        """Drop all claims of an incarnation that was declared dead, and begin the next one."""
        log.warning("declared_dead_by_others", gateway=self.id)
        dropped = threading.Event()

        def drop() -> None:
            self.deaths += bool(self.id)
            self.id = ""
            try:
                self.on_death()
            finally:
                dropped.set()

        self._loop.call_soon_threadsafe(drop)
        while not dropped.wait(BEAT_SECONDS):
            if self._ending.is_set():
                return ""
        identity = self._join()
        self._loop.call_soon_threadsafe(setattr, self, "id", identity)
        return identity

    def _connect(self) -> Connection:
        connection = self._database.connect(seconds=CONTACT_SECONDS)
        connection.execute(
            "SELECT set_config('synchronous_commit', 'local', false)"
        )  # a beat lost in a failover is harmless
        return connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- on the loop --------------------------------------------------------------------------------------------------

    def _note_others(self, others: frozenset[str], unowned: bool) -> None:
        self._others = others
        for gateway in self._gone.keys() - others:
            self._gone.pop(gateway).set_result(None)
        if unowned or self.doubtful:
            self.unowned.set()

    def _note_regained(self) -> None:
        self.regained += 1
        self._back.set()


def _end(connection: Connection, gateway: str, beat: int) -> int | None:
    """Mark an incarnation with this beat as dead, and free its chats; return their number, None if it has another beat."""
    with connection.transaction():
        connection.execute("SELECT set_config('synchronous_commit', 'on', true)")
        if not connection.execute(_DIE, {"id": gateway, "beat": beat}).rowcount:
            return None
        return connection.execute(_FREE, {"id": gateway}).rowcount


def gateway_rows(database: Database) -> list[GatewayRow]:
    """Return the gateways of a database that are alive, in the order of their start. Blocks; raises StorageFailed."""
    with database.connection() as connection:
        found = connection.execute(_ALIVE).fetchall()
    return [GatewayRow(**dict(zip(GatewayRow.__struct_fields__, row, strict=True))) for row in found]
