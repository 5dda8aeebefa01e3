"""Connections to the database: deadlines, checks, and errors that say how to fix them.

Nothing waits for the database without a deadline. When one passes, the connection is closed and nothing is cancelled: with
synchronous replication, a cancelled commit is committed on the primary alone.
"""

from __future__ import annotations

import secrets
import select
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeAlias

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sessions.events.errors import StorageFailed

ANSWER_SECONDS = 10.0
"""The longest time that a statement may take until its connection is closed."""

CONNECT_SECONDS = 5

QUICK_CONNECT_SECONDS = 2
"""The same for a connection with a short deadline; libpq takes no less."""

LONGEST_TRANSACTION = "120s"
"""After this time the server ends a transaction, and the locks of a process that has stopped in the middle of one."""

TRANSACTION_TIMEOUTS = 170000
"""The first version that can do so."""

IDLE_CONNECTIONS = 8
"""Maximum number of connections that are kept for the next reader."""

OLDEST_SERVER = 150000
"""PostgreSQL 15."""

SCHEMA = "exuvia"
"""The database schema of all tables."""

Row: TypeAlias = tuple[Any, ...]

_SESSION = f"""
    SELECT set_config('search_path', '{SCHEMA}', false),
           set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'remote_apply'
                                                 THEN 'remote_apply' ELSE 'on' END, false),
           set_config('statement_timeout', '0', false),
           set_config('default_transaction_isolation', 'read committed', false),
           pg_is_in_recovery()
"""


class Connection(psycopg.Connection[Row]):
    """A connection in autocommit mode, for one thread at a time."""

    answer_seconds: float | None = None
    """A deadline for this connection instead of ANSWER_SECONDS."""

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for the database; after the deadline close the socket, without a cancellation, and raise OperationalError."""
        deadline = self.answer_seconds or ANSWER_SECONDS
        try:
            return super().wait(gen, interval, timeout=deadline if timeout is None else timeout)
        except psycopg.errors._WaitTimeout as late:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"it did not answer within {deadline:g} s") from late

    @property
    def usable(self) -> bool:
        """True unless the connection is closed, or the server has closed it while it was idle."""
        if self.closed:
            return False
        waiting = select.poll()
        waiting.register(self.pgconn.socket, select.POLLIN)
        return not waiting.poll(0)


class Database:
    """A database by its URL. Used as a context manager, it keeps idle connections for the next reader.

    All methods block, and may be called on any thread.
    """

    def __init__(self, url: str) -> None:
        try:
            self._settings = conninfo_to_dict(url)
        except psycopg.Error:  # whose text repeats the URL, with the password
            raise StorageFailed(
                "The database's URL is invalid; write postgresql://USER:PASSWORD@HOST:5432/DATABASE, with % escapes for"
                " special characters in the password."
            ) from None
        self.process = secrets.token_hex(4)
        """Names this process among those that use the database, also in the names of its connections."""
        self._idle: deque[Connection] = deque()
        self._keeps = False

    def __enter__(self) -> Database:
        self._keeps = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._keeps = False
        while self._idle:
            self._idle.pop().close()

    @property
    def name(self) -> str:
        """The server and the database, for messages; without a password."""
        host, port, name = (self._settings.get(key) for key in ("host", "port", "dbname"))
        place = f"{host or 'localhost'}:{port}" if port else host or "localhost"
        return f"{name or self._settings.get('user') or 'postgres'} on {place}"

    def connect(self, *, seconds: float | None = None) -> Connection:
        """Return a new connection, whose statements may take `seconds` instead of ANSWER_SECONDS. Raises StorageFailed if
        there is none, or the server cannot be used."""
        settings = {
            "connect_timeout": CONNECT_SECONDS if seconds is None else QUICK_CONNECT_SECONDS,
            "target_session_attrs": "read-write",
            "tcp_user_timeout": int((seconds or ANSWER_SECONDS) * 1000),
            **self._settings,
            "application_name": f"{str(self._settings.get('application_name') or 'exuvia')[:50]} {self.process}",
        }
        with self.errors("cannot be reached"):
            connection = Connection.connect(make_conninfo("", **settings), autocommit=True, prepare_threshold=1)
        connection.answer_seconds = seconds
        try:
            with self.errors("cannot be used"):
                *_, standby = connection.execute(_SESSION).fetchone() or ()
            if connection.info.server_version >= TRANSACTION_TIMEOUTS:
                connection.execute("SELECT set_config('transaction_timeout', %s, false)", (LONGEST_TRANSACTION,))
            if connection.info.server_version < OLDEST_SERVER:
                version = connection.info.parameter_status("server_version")
                raise StorageFailed(f"The database {self.name} has PostgreSQL {version}; version 15 or later is needed.")
            if standby:
                raise StorageFailed(f"The database {self.name} is a standby, which cannot be written; name the primary.")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection; errors of the database are raised as StorageFailed."""
        connection = self._take() or self.connect()
        try:
            with self.errors("cannot be used"):
                yield connection
        finally:
            if not self._keeps or connection.closed or len(self._idle) >= IDLE_CONNECTIONS:
                connection.close()
            else:
                self._idle.append(connection)

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Raise errors of the database as StorageFailed."""
        try:
            yield
        except psycopg.Error as error:
            raise self.failed(what, error) from error

    def failed(self, what: str, error: psycopg.Error) -> StorageFailed:
        """Return the failure for an error, as a sentence."""
        return StorageFailed(f"The database {self.name} {what}: {_one_line(error)}.{_advice(error)}")

    def _take(self) -> Connection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took the last one
                return None
            if connection.usable:
                return connection
            connection.close()
        return None


def is_unused(failure: StorageFailed) -> bool:
    """Return True if a failure says that a database has no tables, because no gateway has used it yet."""
    return isinstance(failure.__cause__, psycopg.errors.UndefinedTable)


def _one_line(error: psycopg.Error) -> str:
    """Return the message of an error without line breaks and details."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__).rstrip(".")


def _advice(error: psycopg.Error) -> str:
    match error:
        case psycopg.errors.InsufficientPrivilege():
            return " Its user needs the right to create a schema in this database, or to own the schema `exuvia`."
        case psycopg.errors.UndefinedTable():
            return " No gateway has used this database yet; the first start of one creates the tables."
        case psycopg.errors.DiskFull():
            return " Free some space on the database's disk."
        case _ if error.sqlstate is None:  # no answer of a server that has accepted us
            return " Check the URL, and that the server runs and accepts connections from here."
        case _:
            return ""
