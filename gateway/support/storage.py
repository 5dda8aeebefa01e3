"""The logs and attachments of a home, for reading; `wiring.open_stores` opens them for writing.

These two modules are the only ones that choose an implementation; everything else uses the protocols of `sessions.store`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.support.home import Home
from plugins.support.secrets import Secret
from sessions.events.errors import StorageFailed
from sessions.events.events import MAIN_AGENT
from sessions.files.journal_folder import JournalFolder
from sessions.store.protocols import Blobs, LogReader

if TYPE_CHECKING:
    from sessions.postgres.connections import Database
    from sessions.postgres.server_check import ServerReport
    from sessions.store.cluster import GatewayRow

SESSIONS, HOME, PLUGINS, AGENTS = "sessions", "home", "plugins/", "agents/"
"""The names of the stores in a database: the logs of the sessions, those that are in the home with files, and, with their
names after these prefixes, those of plugins and agents."""


def session_logs(home: Home) -> LogReader:
    """Return the logs of the sessions, for reading."""
    return JournalFolder(home.sessions) if home.database is None else _rows(home.database, SESSIONS)


def fact_logs(home: Home, agent: str = MAIN_AGENT) -> LogReader:
    """Return the store of the log of an agent's facts, for reading."""
    return JournalFolder(home.of_agent(agent).root) if home.database is None else _rows(home.database, store_of_agent(agent))


def store_of_agent(agent: str) -> str:
    """Return the name of the store of an agent's logs in a database."""
    return HOME if agent == MAIN_AGENT else f"{AGENTS}{agent}"


def plugin_logs(home: Home, plugin: str) -> LogReader:
    """Return the store of a plugin's log, for reading."""
    folder = home.plugins / plugin
    return JournalFolder(folder) if home.database is None else _rows(home.database, f"{PLUGINS}{plugin}")


def journals_in(folder: Path) -> LogReader:
    """Return the logs in a folder outside of a home, for reading."""
    return JournalFolder(folder)


def plugins_with_logs(home: Home) -> list[str]:
    """Return the names of the plugins that have a log. Raises StorageFailed."""
    if home.database is None:
        return sorted(path.parent.name for path in home.plugins.glob("*/log.jsonl"))
    database = database_at(home.database)
    from sessions.postgres.row_lines import store_names  # noqa: PLC0415 - only where it is configured

    return [name.removeprefix(PLUGINS) for name in store_names(database) if name.startswith(PLUGINS)]


def agents_with_logs(home: Home) -> list[str]:
    """Return the names of the agents, other than `main`, that have a log of their own. Raises StorageFailed."""
    if home.database is None:
        return sorted({path.parent.name for path in home.agents.glob("*/*.jsonl")})
    database = database_at(home.database)
    from sessions.postgres.row_lines import store_names  # noqa: PLC0415 - only where it is configured

    return [name.removeprefix(AGENTS) for name in store_names(database) if name.startswith(AGENTS)]


def acknowledged_in(home: Home) -> dict[str, int]:
    """Return the highest durable seq of each session in the catalog. Blocks; raises StorageFailed."""
    if home.database is None:
        from sessions.catalog.durability_check import acknowledged_heads  # noqa: PLC0415 - imports SQLite

        return acknowledged_heads(home.catalog)
    from sessions.catalog.postgres_catalog import heads_of_rows  # noqa: PLC0415 - only where it is configured

    return heads_of_rows(database_at(home.database))


def remove_from_catalog(home: Home, sessions: Collection[str]) -> None:
    """Remove everything that the catalog has of sessions. Blocks; raises StorageFailed."""
    if home.database is not None:
        from sessions.catalog.postgres_catalog import forget_rows  # noqa: PLC0415 - only where it is configured

        forget_rows(database_at(home.database), sessions)
    elif home.catalog.exists():
        from sessions.catalog.durability_check import forget  # noqa: PLC0415 - imports SQLite

        for session in sessions:
            forget(home.catalog, session)


def examine_database(url: Secret) -> ServerReport:
    """Return what a database's server is like. Blocks; raises StorageFailed."""
    database = database_at(url)
    from sessions.postgres.server_check import examine  # noqa: PLC0415 - only where it is configured

    with database:
        return examine(database)


def cluster_rows(url: Secret) -> list[GatewayRow]:
    """Return the gateways that share a database and are alive. Blocks; raises StorageFailed."""
    database = database_at(url)
    from sessions.postgres.membership import gateway_rows  # noqa: PLC0415 - only where it is configured

    return gateway_rows(database)


def attachments_of(home: Home) -> Blobs:
    """Return the attachments."""
    if home.database is not None:
        database = database_at(home.database)
        from sessions.attachments.row_attachments import PostgresAttachments  # noqa: PLC0415 - only where it is configured

        return PostgresAttachments(database, home.attachments)
    from sessions.attachments.store import Attachments  # noqa: PLC0415 - imports asyncio, which most commands do not need

    return Attachments(home.attachments)


@cache
def database_at(url: Secret) -> Database:
    """Return the database with a URL, which keeps connections only while it is used as a context manager. Raises
    StorageFailed if the URL is invalid or the driver is not installed."""
    try:
        from sessions.postgres.connections import Database  # noqa: PLC0415 - only where it is configured
    except ImportError as error:
        raise StorageFailed(
            f"PostgreSQL needs a driver that is not installed ({error}); install it with pip install 'exuvia[postgres]'."
        ) from error
    return Database(url.reveal())


def _rows(url: Secret, store: str) -> LogReader:
    database = database_at(url)
    from sessions.postgres.row_lines import RowReader  # noqa: PLC0415 - as above

    return RowReader(database, store)
