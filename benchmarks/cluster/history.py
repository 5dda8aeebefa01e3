"""The history of a run: what clients were told, what a tool did, and what the database holds at the end."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psycopg

from sessions.events import codec

Event = dict[str, Any]

AUDIT = """
    CREATE TABLE IF NOT EXISTS audit (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        log bigint, first bigint, last bigint, epoch bigint, writer text, alive boolean
    );
    CREATE OR REPLACE FUNCTION audit_log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO exuvia.audit (log, first, last, epoch, writer, alive)
        SELECT NEW.id, OLD.head + 1, NEW.head, NEW.epoch, writer,
               EXISTS (SELECT FROM exuvia.gateway WHERE NOT dead AND split_part(id, '.', 1) = split_part(writer, ' ', 2))
        FROM current_setting('application_name') AS writer;
        RETURN NULL;
    END $$;
    CREATE OR REPLACE TRIGGER audit_log AFTER UPDATE OF head, epoch ON log
    FOR EACH ROW WHEN (NEW.head <> OLD.head OR NEW.epoch <> OLD.epoch) EXECUTE FUNCTION audit_log();
"""
"""Record who begins an epoch of a log, and who appends to it. The gateways' names are in `application_name`, each with the
name of its process. `alive` is false while that was declared dead and has not begun again."""

_LATE = """
    SELECT log.store, log.name, line.line FROM audit JOIN log ON log.id = audit.log
    JOIN line ON line.log = log.id AND line.seq BETWEEN audit.first AND audit.last
    WHERE NOT audit.alive ORDER BY audit.number
"""

_LOGS = "SELECT id, name, epoch, head FROM log WHERE store = 'sessions' ORDER BY name"
_LINES = "SELECT seq, line FROM line WHERE log = %s ORDER BY seq"
_APPENDS = "SELECT first, last, epoch, writer FROM audit WHERE log = %s ORDER BY number"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One sending of a message. `began` and `ended` are seconds of one clock; `outcome` is `accepted`, the code of an
    error, or None if no answer came."""

    client: str
    key: str
    id: str
    text: str
    began: float
    ended: float = 0.0
    outcome: str | None = None
    session: str = ""
    seq: int = 0


@dataclass(kw_only=True)
class Stream:
    """The events of one subscription in the order of their arrival: session, seq and digest. `session` and `after` are what
    was subscribed; without them, the first event may be any."""

    client: str
    key: str
    session: str = ""
    after: int = 0
    events: list[tuple[str, int, bytes]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Append:
    """One append to a log, in the order of the commits; or the beginning of an epoch, with a `last` before `first`."""

    first: int
    last: int
    epoch: int
    writer: str


@dataclass(kw_only=True)
class SessionLog:
    """The log of a session as the database holds it. `damage` says why its lines do not verify."""

    session: str
    key: str
    head: int
    events: list[Event]
    succeeds: str | None = None
    appends: list[Append] = field(default_factory=list)
    damage: str = ""

    def at(self, seq: int) -> Event | None:
        """Return the event with a seq, or None."""
        return self.events[seq - 1] if 0 < seq <= len(self.events) else None


@dataclass(kw_only=True)
class History:
    """All of it. `effects` counts what the unrepeatable tool did for each call (`SESSION/OF/INDEX`), `findings` has what
    clients found themselves."""

    attempts: list[Attempt] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


def digest(event: Mapping[str, Any]) -> bytes:
    """Return a digest of an event that does not depend on the order of its fields."""
    return hashlib.blake2b(msgspec.json.encode(event, order="sorted"), digest_size=8).digest()


def read_logs(url: str) -> Iterator[SessionLog]:
    """Yield the logs of all sessions in a database whose gateways have stopped. Blocks."""
    with psycopg.connect(url, options="-c search_path=exuvia", target_session_attrs="read-write") as connection:
        audited = connection.execute("SELECT to_regclass('audit') IS NOT NULL").fetchone() == (True,)
        for log, name, _, head in connection.execute(_LOGS).fetchall():
            lines = [(seq, bytes(line)) for seq, line in connection.execute(_LINES, (log,))]
            found = _decoded(name, head, lines)
            if audited:
                rows = connection.execute(_APPENDS, (log,))
                found.appends = [Append(first=row[0], last=row[1], epoch=row[2], writer=row[3]) for row in rows]
            yield found


def late_lines(url: str) -> Iterator[tuple[str, str, Event]]:
    """Yield the store, the log, and each event that a process wrote while the others held it for dead. Blocks."""
    with psycopg.connect(url, options="-c search_path=exuvia", target_session_attrs="read-write") as connection:
        for store, name, line in connection.execute(_LATE):
            yield store, name, msgspec.json.decode(bytes(line))


def deaths(url: str) -> int:
    """Return how many incarnations of gateways have ended. Blocks."""
    with psycopg.connect(url, options="-c search_path=exuvia", target_session_attrs="read-write") as connection:
        return int((connection.execute("SELECT count(*) FROM gateway WHERE dead").fetchone() or (0,))[0])


def _decoded(session: str, head: int, lines: list[tuple[int, bytes]]) -> SessionLog:
    events: list[Event] = []
    damage, previous = "", codec.FIRST
    for expected, (seq, line) in enumerate(lines, 1):
        try:
            previous = codec.verify(line, previous, expected)
        except codec.InvalidLine as error:
            damage = damage or f"is damaged at {seq}: {error}"
        event = msgspec.json.decode(line)
        event.pop("sum", None)
        events.append(event)
    first = events[0] if events else {}
    succeeds = (first.get("succeeds") or {}).get("session")
    return SessionLog(session=session, key=first.get("key", ""), head=head, events=events, succeeds=succeeds, damage=damage)
