"""The rows of the catalog in the database: one for each session, which exists as soon as the first line of its log does.

A row says which key a session belongs to and what it succeeds. That never changes, so it is inserted in the transaction of
the first line. Everything else is derived from the log: it is valid as long as the log has the size and the time of change
that the row names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from sessions.events.codec import InvalidLine, decode
from sessions.events.events import SessionForked, SessionOpened
from sessions.postgres.connections import Connection, Row
from sessions.state.transcript import ForkOrigin
from sessions.store.catalog import SessionRow

SESSIONS = "sessions"
"""The name of the store whose logs are sessions."""

_COLUMNS = "name, person, key, opened_at, succeeds, origin, at, size, changed, settled, fields"

_GIVEN = """
    unnest(%(name)b::text[], %(person)b::text[], %(key)b::text[], %(opened_at)b::text[], %(succeeds)b::text[],
           %(origin)b::text[], %(at)b::text[], %(size)b::bigint[], %(changed)b::bigint[], %(settled)b::boolean[],
           %(fields)b::bytea[])
"""

BEGIN = f"""
    INSERT INTO session ({_COLUMNS}) SELECT given.* FROM {_GIVEN} AS given ({_COLUMNS})
    WHERE EXISTS (SELECT FROM log WHERE log.store = '{SESSIONS}' AND log.name = given.name)
    ON CONFLICT (name) DO NOTHING
"""  # noqa: S608 - constants of ours
"""Inserts rows that are not there yet."""

BEGIN_MOVED = f"""
    INSERT INTO session ({_COLUMNS}) SELECT new.* FROM {_GIVEN} AS new ({_COLUMNS})
    WHERE EXISTS (SELECT FROM log JOIN moved USING (id) WHERE log.store = '{SESSIONS}' AND log.name = new.name)
    ON CONFLICT (name) DO NOTHING
"""  # noqa: S608 - constants of ours
"""The same as a part of the statement that appends lines, for the logs in `moved`."""

BEGINS_ELSEWHERE = f"""
    EXISTS (
        SELECT FROM {_GIVEN} AS new ({_COLUMNS}) JOIN chat USING (person, key)
        WHERE log.store = '{SESSIONS}' AND log.name = new.name AND chat.holder IS DISTINCT FROM given.owner
    )
"""  # noqa: S608 - constants of ours
"""True if a session that begins, with the row `given` of the statement that appends lines, is of a conversation that another
gateway has, or none. The fence keeps that from changing before the commit."""

IS_ELSEWHERE = f"""
    EXISTS (
        SELECT FROM session JOIN chat USING (person, key)
        WHERE %(store)s = '{SESSIONS}' AND session.name = %(name)s AND chat.holder IS DISTINCT FROM %(owner)s
    )
"""  # noqa: S608 - a constant of ours
"""True if a session is of a conversation that another gateway than the `owner` has, or none."""

PUT = f"""
    INSERT INTO session AS known ({_COLUMNS}) SELECT given.* FROM {_GIVEN} AS given ({_COLUMNS})
    WHERE EXISTS (SELECT FROM log WHERE log.store = '{SESSIONS}' AND log.name = given.name)
    ON CONFLICT (name) DO UPDATE SET
        person = excluded.person, key = excluded.key, opened_at = excluded.opened_at, succeeds = excluded.succeeds,
        origin = excluded.origin, at = excluded.at, size = excluded.size, changed = excluded.changed,
        settled = excluded.settled, fields = excluded.fields
    WHERE excluded.changed >= known.changed
"""  # noqa: S608 - constants of ours
"""Inserts or updates rows, unless they are older than what is there; a removed session stays removed."""

REPLACE = f"""
    UPDATE session SET
        at = given.at, size = given.size, changed = greatest(session.changed, log.changed), settled = given.settled,
        fields = given.fields
    FROM {_GIVEN} AS given ({_COLUMNS}) LEFT JOIN log ON log.store = '{SESSIONS}' AND log.name = given.name
    WHERE session.name = given.name
"""  # noqa: S608 - constants of ours
"""Updates rows of rewritten logs. Their `changed` is that of the logs: `PUT` ignores a row from before that is still to be
written, here or by another gateway."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SessionRow).decode


def row_values(rows: Iterable[SessionRow]) -> dict[str, list[Any]]:
    """Return the parameters of `BEGIN`, `PUT` and `REPLACE`."""
    rows = list(rows)
    return {
        "name": [row.session for row in rows],
        "person": [row.person for row in rows],
        "key": [row.key for row in rows],
        "opened_at": [row.opened_at for row in rows],
        "succeeds": [row.succeeds.session if row.succeeds else None for row in rows],
        "origin": [row.origin.session if row.origin else None for row in rows],
        "at": [row.at for row in rows],
        "size": [row.size for row in rows],
        "changed": [row.mtime_ns for row in rows],
        "settled": [row.settled for row in rows],
        "fields": [_encode(row) for row in rows],
    }


def decode_row(fields: bytes) -> SessionRow:
    """Decode the fields of a row. Raises MsgspecError."""
    return _decode(fields)


def begun_row(line: bytes) -> SessionRow | None:
    """Return the row of a session whose first line this is; None if the log is not that of a session."""
    try:
        recorded = decode(line)
    except InvalidLine:
        return None
    opened = recorded.event
    if not isinstance(opened, SessionOpened) or recorded.seq != 1:
        return None
    return SessionRow(
        session=opened.session,
        key=opened.key,
        person=opened.person,
        agent=opened.agent,
        parent=opened.parent.key if opened.parent else "",
        opened_at=recorded.at,
        succeeds=opened.succeeds,
        head=1,
        at=recorded.at,
        size=0,
        mtime_ns=0,
        settled=False,
        closed=False,
    )


def insert_fork(connection: Connection, line: bytes, parent: str) -> None:
    """Insert the row of a fork whose own first line this is, in the transaction that makes its log."""
    found: Row | None = connection.execute("SELECT fields FROM session WHERE name = %s", (parent,), binary=True).fetchone()
    recorded = decode(line)
    forked = recorded.event
    if found is None or not isinstance(forked, SessionForked):
        return
    origin = decode_row(found[0])
    row = SessionRow(
        session=forked.session,
        key=forked.key,
        person=origin.person,
        agent=origin.agent,
        opened_at=recorded.at,
        succeeds=None,
        head=recorded.seq,
        at=recorded.at,
        size=0,
        mtime_ns=0,
        settled=False,
        closed=False,
        title=origin.title,
        beginning=origin.beginning,
        origin=ForkOrigin(session=forked.parent, seq=forked.parent_seq),
    )
    connection.execute(BEGIN.encode(), row_values([row]))
