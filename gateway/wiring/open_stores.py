"""The stores of a home, opened for writing: the logs of its sessions, facts and plugins, and the catalog."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from gateway.conversations.deletion.deletion_log import finish_removals
from gateway.support.home import Home
from gateway.support.storage import HOME, PLUGINS, SESSIONS, database_at, fact_logs
from plugins.support.secrets import Secret
from sessions.catalog.sqlite_catalog import SqliteCatalog
from sessions.events.codec import InvalidLine
from sessions.events.errors import SessionsError
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from sessions.store.catalog import Catalog
from sessions.store.protocols import Store

log = structlog.get_logger("exuvia")


@dataclass(frozen=True, kw_only=True)
class LogStores:
    """The stores of all logs of a home that this process has locked."""

    sessions: Store
    facts: Store
    of_plugin: Callable[[str], Store]
    """Returns the store of a plugin's log."""


@asynccontextmanager
async def open_log_stores(home: Home, committed: Callable[[float], None] = lambda _: None) -> AsyncIterator[LogStores]:
    """Open the stores of all logs. `committed` is called with the duration of each commit in seconds.

    Raises StorageFailed if the database cannot be used.
    """
    if home.database is not None:
        async with _open_database(home, home.database, committed) as stores:
            yield stores
        return
    async with Committer() as committer:
        committer.synced = committed
        yield LogStores(
            sessions=Journals(home.sessions, home.quarantine, committer),
            facts=Journals(home.root, home.quarantine, committer),
            of_plugin=lambda plugin: Journals(home.plugins / plugin, home.quarantine, committer, essential=False),
        )


@asynccontextmanager
async def _open_database(home: Home, url: Secret, committed: Callable[[float], None]) -> AsyncIterator[LogStores]:
    with database_at(url) as database:
        from sessions.postgres.group_commit import GroupCommitter  # noqa: PLC0415 - only where it is configured
        from sessions.postgres.postgres_store import PostgresStore  # noqa: PLC0415 - as above

        async with GroupCommitter(database, committed) as committer:
            yield LogStores(
                sessions=PostgresStore(database, SESSIONS, home.quarantine, committer),
                facts=PostgresStore(database, HOME, home.quarantine, committer),
                of_plugin=lambda plugin: PostgresStore(database, f"{PLUGINS}{plugin}", home.quarantine, committer),
            )


@asynccontextmanager
async def open_catalog(home: Home, store: Store) -> AsyncIterator[Catalog]:
    """Open the catalog of the sessions, and discard those that never began. Raises StorageFailed."""
    try:
        await finish_removals(fact_logs(home), store, home.catalog)
    except (SessionsError, InvalidLine) as error:  # the catalog reports what is missing
        log.error("deletion_not_finished", reason=str(error))
    async with SqliteCatalog(home.catalog, store) as catalog:
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
