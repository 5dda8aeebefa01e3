"""Reading the lines of a log from the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.postgres.connections import TRANSACTION_TIMEOUTS, Connection, Database, Row, is_unused
from sessions.store.protocols import LONGEST_LINE, START, Position, Stamp

SMALLEST_PAGE = 16 * 1024
"""Bytes of the first page: often only a line or two are needed."""

LARGEST_PAGE = 1024 * 1024

MOST_LINES = 1000
"""Maximum number of lines of a page."""

_ONE_VERSION = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
"""All pages are of the same version of a log, even if it is rewritten while they are read: a copy of it verifies."""

_FORWARD = """
    SELECT ends, line FROM (
        SELECT seq, ends, line, row_number() OVER (ORDER BY seq) AS number
        FROM line WHERE log = %(log)s AND seq > %(after)s AND seq <= %(head)s ORDER BY seq LIMIT %(most)s
    ) AS page WHERE ends <= %(upto)s OR number = 1 ORDER BY seq
"""

_BACKWARD = """
    SELECT seq, ends, line FROM (
        SELECT seq, ends, line, row_number() OVER (ORDER BY seq DESC) AS number
        FROM line WHERE log = %(log)s AND seq <= %(last)s ORDER BY seq DESC LIMIT %(most)s
    ) AS page WHERE ends > %(from)s OR number = 1 ORDER BY seq DESC
"""

_LAST_BEFORE = """
    WITH RECURSIVE search (low, high) AS (
        SELECT 0::bigint, %(head)s::bigint
        UNION ALL
        SELECT CASE WHEN middle.ends <= %(upto)s THEN middle.seq ELSE search.low END,
               CASE WHEN middle.ends <= %(upto)s THEN search.high ELSE (search.low + search.high + 1) / 2 - 1 END
        FROM search LEFT JOIN line AS middle ON middle.log = %(log)s AND middle.seq = (search.low + search.high + 1) / 2
        WHERE search.low < search.high
    )
    SELECT low FROM search WHERE low = high
"""
"""Finds the seq of the last line that ends at or before an offset, by bisection: an index would cost every append."""


class RowLines:
    """The `Lines` of a log, up to its head when this was created. Where lines are missing, those after them follow."""

    def __init__(self, connection: Connection, session: str, log: int, head: int, size: int) -> None:
        self.session = session
        self.size = size
        self.log = log
        self.head = head
        self._connection = connection

    def position_before(self, seq: int) -> Position | None:
        if seq > self.head:
            return None
        if seq <= 1:
            return START
        found = self._connection.execute(
            "SELECT ends, substr(line, greatest(1, length(line) - 18), 16) FROM line WHERE log = %s AND seq = %s",
            (self.log, seq - 1),
            binary=True,
        ).fetchone()
        if found is None:
            raise JournalDamaged(self.session, seq - 1, "it is missing", good_seq=0)
        return Position(seq=seq - 1, offset=found[0], sum=found[1])

    def forward(self, after: Position, upto: int | None = None) -> Iterator[bytes]:
        end = self.size if upto is None else min(upto, self.size)
        seq, offset, page = after.seq, after.offset, SMALLEST_PAGE
        while offset < end:
            most = {"log": self.log, "after": seq, "head": self.head, "upto": min(end, offset + page), "most": MOST_LINES}
            found = self._connection.execute(_FORWARD, most, binary=True).fetchall()
            if not found:
                return
            for ends, line in found:
                if ends > end:
                    return
                yield line
                seq, offset = seq + 1, ends
            page = min(4 * page, LARGEST_PAGE)

    def backward(self, upto: int | None = None) -> Iterator[tuple[bytes, int]]:
        last, page = self.head if upto is None or upto >= self.size else self._last_before(upto), SMALLEST_PAGE
        ends = self.size if upto is None else min(upto, self.size)
        while last > 0:
            most = {"log": self.log, "last": last, "from": ends - page, "most": MOST_LINES}
            found = self._connection.execute(_BACKWARD, most, binary=True).fetchall()
            if not found:
                return
            for seq, end, line in found:
                if len(line) <= LONGEST_LINE:
                    yield line, end
                last, ends = seq - 1, end - len(line)
            page = min(4 * page, LARGEST_PAGE)

    def _last_before(self, offset: int) -> int:
        where = {"log": self.log, "head": self.head, "upto": offset}
        (seq,) = self._connection.execute(_LAST_BEFORE, where).fetchone() or (0,)
        return int(seq)


class RowReader:
    """The logs of one store in a database, a `LogReader`. `store` names what they are about, such as `sessions`.

    A database that no gateway has used yet has no logs.
    """

    def __init__(self, database: Database, store: str) -> None:
        self._database = database
        self._store = store

    @contextmanager
    def read(self, session: str) -> Iterator[RowLines]:
        with self._reading() as connection:
            yield self._lines(connection, session)

    def stamp(self, session: str) -> Stamp | None:
        try:
            with self._database.connection() as connection:
                found = connection.execute(
                    "SELECT size, changed, id FROM log WHERE store = %s AND name = %s", (self._store, session)
                ).fetchone()
        except StorageFailed:
            return None
        return None if found is None else _stamp(*found)

    def listed(self) -> Iterator[tuple[str, Stamp]]:
        last = ""
        while found := self._page(last):
            for name, *stamp in found:
                yield name, _stamp(*stamp)
            last = found[-1][0]

    def _page(self, last: str) -> list[Row]:
        """Return the names and stamps of the next logs, in order; none after the last one."""
        try:
            with self._database.connection() as connection:
                return connection.execute(
                    "SELECT name, size, changed, id FROM log WHERE store = %s AND name > %s ORDER BY name LIMIT 10000",
                    (self._store, last),
                    binary=True,
                ).fetchall()
        except StorageFailed as error:
            if is_unused(error):
                return []
            raise

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Lend a connection for one version of what it reads. Raises UnknownSession if the database is unused."""
        try:
            with self._database.connection() as connection, connection.transaction():
                limits = "; SET LOCAL transaction_timeout = 0" * (connection.info.server_version >= TRANSACTION_TIMEOUTS)
                connection.execute(f"{_ONE_VERSION}{limits}".encode(), prepare=False)  # two statements cannot be prepared
                yield connection
        except StorageFailed as error:
            if is_unused(error):
                raise UnknownSession("Unknown session.") from error
            raise

    def location(self, session: str) -> str:
        return f"the log {session} in the database {self._database.name}"

    def _lines(self, connection: Connection, session: str) -> RowLines:
        if "\0" in session:  # which no text in PostgreSQL contains
            raise UnknownSession("Unknown session.")
        found = connection.execute(
            "SELECT id, head, size FROM log WHERE store = %s AND name = %s", (self._store, session)
        ).fetchone()
        if found is None:
            raise UnknownSession(f"Unknown session {session}.")
        return RowLines(connection, session, *found)


def store_names(database: Database) -> list[str]:
    """Return the names of all stores in a database. Blocks; raises StorageFailed."""
    try:
        with database.connection() as connection:
            return [name for (name,) in connection.execute("SELECT DISTINCT store FROM log ORDER BY store").fetchall()]
    except StorageFailed as error:
        if is_unused(error):
            return []
        raise


def _stamp(size: int, changed: int, identity: int) -> Stamp:
    return Stamp(size=size, changed=changed, identity=identity)
