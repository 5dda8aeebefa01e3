"""The stores of a home, opened for writing: the logs of its sessions, facts and plugins, and the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import structlog

from gateway.conversations.deletion.deletion_log import finish_removals
from gateway.support.home import Home
from gateway.support.storage import HOME, PLUGINS, SESSIONS, database_at, fact_logs, remove_from_catalog, store_of_agent
from plugins.support.secrets import Secret
from sessions.catalog.sqlite_catalog import SqliteCatalog
from sessions.events.codec import InvalidLine
from sessions.events.errors import SessionsError, StorageFailed
from sessions.events.events import MAIN_AGENT
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from sessions.store.catalog import Catalog, Claims, SoleClaims
from sessions.store.cluster import Cluster
from sessions.store.leases import Leases, SoleLeases
from sessions.store.protocols import Store

if TYPE_CHECKING:
    from sessions.catalog.postgres_catalog import PostgresCatalog
    from sessions.postgres.connections import Database

GONE_MS = 4000
"""Milliseconds without a beat after which a gateway is gone; its beats come every half second."""

BEATS_AWAITED = 8
"""Number of looks within that time before a command is refused because a gateway runs."""

log = structlog.get_logger("exuvia")


class LogStores(msgspec.Struct, frozen=True, kw_only=True):
    """The stores of all logs of a home that this process has locked."""

    sessions: Store
    facts: Store
    of_plugin: Callable[[str], Store]
    """Returns the store of a plugin's log."""
    of_agent: Callable[[str], Store]
    """Returns the store of the log of an agent's facts."""
    claims: Callable[[Catalog], Claims]
    """Returns the claims of this gateway on conversations."""
    cluster: Cluster | None = None
    """This gateway among those that share a database."""
    leases: Leases = msgspec.field(default_factory=SoleLeases)
    """What this gateway alone does among them."""


class GatewayInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway tells the others that share its database: its version, and a digest of its configuration."""

    version: str
    config_digest: str


@asynccontextmanager
async def open_log_stores(
    home: Home, committed: Callable[[float], None] = lambda _: None, *, gateway: GatewayInfo | None = None
) -> AsyncIterator[LogStores]:
    """Open the stores of all logs. `committed` is called with the duration of each commit in seconds. With `gateway`, this
    process is one of the gateways that share a database; without, it only writes logs that no gateway has open.

    Raises StorageFailed if the database cannot be used.
    """
    if home.database is not None:
        async with _open_database(home, home.database, committed, gateway) as stores:
            yield stores
        return
    async with Committer() as committer:
        committer.synced = committed
        of_home = Journals(home.root, home.quarantine, committer)
        yield LogStores(
            sessions=Journals(home.sessions, home.quarantine, committer),
            facts=of_home,
            of_agent=lambda agent: (
                of_home if agent == MAIN_AGENT else Journals(home.of_agent(agent).root, home.quarantine, committer)
            ),
            of_plugin=lambda plugin: Journals(home.plugins / plugin, home.quarantine, committer, essential=False),
            claims=SoleClaims,
        )


@asynccontextmanager
async def _open_database(
    home: Home, url: Secret, committed: Callable[[float], None], gateway: GatewayInfo | None
) -> AsyncIterator[LogStores]:
    async with AsyncExitStack() as stack:
        database = stack.enter_context(database_at(url))
        from sessions.postgres.group_commit import GroupCommitter  # noqa: PLC0415 - only where it is configured
        from sessions.postgres.membership import Membership  # noqa: PLC0415 - as above
        from sessions.postgres.postgres_store import PostgresStore  # noqa: PLC0415
        from sessions.postgres.row_claims import RowClaims  # noqa: PLC0415
        from sessions.postgres.row_leases import RowLeases  # noqa: PLC0415

        committer = await stack.enter_async_context(GroupCommitter(database, committed))
        member: Membership | None = None
        leases: Leases = SoleLeases()
        claims: Callable[[Catalog], Claims] = SoleClaims
        if gateway is not None:
            member = Membership(database, version=gateway.version, config_digest=gateway.config_digest)
            joined = await stack.enter_async_context(member)
            claims = lambda _: RowClaims(database, joined)  # noqa: E731 - a factory
            leases = await stack.enter_async_context(RowLeases(database, member))
        else:
            await _without_gateways(database)
        yield LogStores(
            sessions=PostgresStore(database, SESSIONS, home.quarantine, committer, member),
            facts=PostgresStore(database, HOME, home.quarantine, committer, shared=True),
            of_agent=lambda agent: PostgresStore(database, store_of_agent(agent), home.quarantine, committer, shared=True),
            of_plugin=lambda plugin: PostgresStore(database, f"{PLUGINS}{plugin}", home.quarantine, committer, shared=True),
            claims=claims,
            cluster=member,
            leases=leases,
        )


async def _without_gateways(database: Database) -> None:
    """Return if no gateway uses a database, or soon as one has ended that was killed. Raises StorageFailed."""
    from sessions.postgres.membership import gateway_rows  # noqa: PLC0415 - only where it is configured

    for _ in range(BEATS_AWAITED):
        rows = await asyncio.to_thread(gateway_rows, database)
        if all(row.idle_ms > GONE_MS for row in rows):
            return
        await asyncio.sleep(GONE_MS / 1000 / BEATS_AWAITED)
    raise StorageFailed(f"Another gateway uses the database {database.name}; stop it first.")


@asynccontextmanager
async def open_catalog(home: Home, store: Store) -> AsyncIterator[Catalog]:
    """Open the catalog of the sessions, and discard those that never began. Raises StorageFailed."""
    try:
        await finish_removals(fact_logs(home), store, partial(remove_from_catalog, home))
    except (SessionsError, InvalidLine) as error:  # the catalog reports what is missing
        log.error("deletion_not_finished", reason=str(error))
    async with _catalog_of(home, store) as catalog:
        if catalog.rebuilt:
            log.warning("catalog_rebuilt", reason=catalog.rebuilt)
        for session, reason in catalog.unreadable.items():
            log.error("journal_unreadable", journal=f"{session}.jsonl", reason=reason)
        for session in catalog.empty:
            try:
                await store.discard_empty(session)
            except SessionsError as error:  # harmless
                log.warning("journal_not_begun", journal=f"{session}.jsonl", kept=str(error))
            else:
                log.warning("journal_not_begun", journal=f"{session}.jsonl")
        yield catalog


def _catalog_of(home: Home, store: Store) -> SqliteCatalog | PostgresCatalog:
    if home.database is None:
        return SqliteCatalog(home.catalog, store)
    from sessions.catalog.postgres_catalog import PostgresCatalog  # noqa: PLC0415 - only where it is configured
    from sessions.postgres.postgres_store import PostgresStore  # noqa: PLC0415 - as above

    assert isinstance(store, PostgresStore)
    return PostgresCatalog(database_at(home.database), store.is_open)
