"""A database with very many sessions: the start of a gateway, its memory, and opening conversations.

Skipped unless DATABASE_URL names an empty database. The sessions are made with their logs and the rows of the catalog; every
other one succeeds an earlier one.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import gateway, new_home
from benchmarks.process import resident_mb, serving
from benchmarks.setting import Setting
from sessions.catalog.postgres_catalog import PostgresCatalog
from sessions.events.codec import FIRST, encode
from sessions.events.events import FORMAT, Event, MessageReceived, Recorded, SessionOpened, Succession
from sessions.postgres.connections import Database
from sessions.postgres.group_commit import GroupCommitter
from sessions.postgres.postgres_store import PostgresStore
from sessions.postgres.session_rows import row_values
from sessions.store.catalog import SessionRow
from sessions.store.recorder import open_session

AT = "2026-11-21T03:12:41.123Z"
CHANGED = 1_795_000_000_000_000_000
PERSONS, OPENED = 1000, 1000
COLUMNS = "name, person, key, opened_at, succeeds, origin, at, size, changed, settled, fields"


def run(setting: Setting) -> list[Figure]:
    """Make the sessions, then measure starts and openings."""
    url = os.environ.get("DATABASE_URL")
    if not url:
        return []
    with Database(url) as database:
        began = time.perf_counter()
        asyncio.run(_make(database, url, setting.many_sessions))
        made = time.perf_counter() - began
        opened, catalog_start = asyncio.run(_open(database, setting.many_sessions))
    starts, memory = _starts(setting, url)
    name = f"{setting.many_sessions:,} sessions"
    return [
        figure("many-sessions", f"{name} made", "s", [made]),
        figure("many-sessions", f"{name}: catalog opened", "s", [catalog_start]),
        figure("many-sessions", f"{name}: process started → ready", "s", starts, against="bar", reference=3.0),
        figure("many-sessions", f"{name}: memory when ready", "MB", memory, against="bar", reference=150.0),
        figure("many-sessions", f"{name}: a chat opened", "ms", opened),
        figure("many-sessions", f"{name}: a chat opened, p99", "ms", [_p99(opened)], against="bar", reference=50.0),
    ]


def _starts(setting: Setting, url: str) -> tuple[list[float], list[float]]:
    seconds, memory = [], []
    with serving("model_server") as (_, model_port):
        for _ in range(setting.runs + 1):
            with new_home(setting.folder) as home:
                (home / "config.toml").write_text(f'[store]\nkind = "postgres"\nurl = "{url}"\n')
                with gateway(home, model_port) as process:
                    seconds.append(process.seconds_to_ready)
                    memory.append(resident_mb(process.pid))
    return seconds[1:], memory[1:]


async def _make(database: Database, url: str, count: int) -> None:
    async with GroupCommitter(database):  # which makes the tables
        pass
    await asyncio.to_thread(_fill, url, count)


def _fill(url: str, count: int) -> None:
    with psycopg.connect(url, options="-c search_path=exuvia -c synchronous_commit=off") as connection:
        for first in range(1, count + 1, 10_000):
            numbers = range(first, min(first + 10_000, count + 1))
            logs = [(number, *_log(number, count)) for number in numbers]
            copy = connection.cursor().copy
            with copy("COPY log (id, store, name, head, size, changed) FROM STDIN") as rows:
                for number, row, _ in logs:
                    rows.write_row((number, "sessions", row.session, row.head, row.size, row.mtime_ns))
            with copy("COPY line (log, seq, ends, line) FROM STDIN WITH (FORMAT binary)") as rows:
                rows.set_types(("int8", "int8", "int8", "bytea"))
                for number, _, lines in logs:
                    ends = 0
                    for seq, line in enumerate(lines, 1):
                        ends += len(line)
                        rows.write_row((number, seq, ends, line))
            values = row_values(row for _, row, _ in logs)
            with copy(f"COPY session ({COLUMNS}) FROM STDIN WITH (FORMAT binary)") as rows:
                rows.set_types(("text",) * 7 + ("int8", "int8", "bool", "bytea"))
                for fields in zip(*values.values(), strict=True):
                    rows.write_row(fields)
            connection.commit()
        connection.execute("SELECT setval(pg_get_serial_sequence('log', 'id'), %s)", (count,))
    with psycopg.connect(url, autocommit=True, options="-c search_path=exuvia") as connection:
        connection.execute("VACUUM ANALYZE")


def _name(number: int) -> str:
    return f"20261121-{number // 1_000_000:06d}-{number % 1_000_000:06d}"


def _log(number: int, count: int) -> tuple[SessionRow, list[bytes]]:
    """Return the row and the lines of a session; those of the second half succeed the first."""
    half = count // 2
    older = number - half if number > half else None
    person, key = f"person-{(older or number) % PERSONS}", f"key-{older or number}"
    succeeds = Succession(session=_name(older), seq=3) if older else None
    lines = list(_lines(number, person, key, succeeds))
    row = SessionRow(
        session=_name(number),
        key=key,
        person=person,
        opened_at=AT,
        succeeds=succeeds,
        head=len(lines),
        at=AT,
        size=sum(map(len, lines)),
        mtime_ns=CHANGED,
        settled=True,
        closed=False,
        title="A conversation about something",
    )
    return row, lines


def _lines(number: int, person: str, key: str, succeeds: Succession | None) -> Iterator[bytes]:
    events: tuple[Event, ...] = (
        SessionOpened(format=FORMAT, session=_name(number), key=key, person=person, succeeds=succeeds),
        _message(number, "What is a lichen, and why does it grow so slowly on stones of the north side?"),
        _message(-number, "Thank you."),
    )
    before = FIRST
    for seq, event in enumerate(events, 1):
        line, before = encode(Recorded(seq=seq, at=AT, turn=None, event=event), before)
        yield line


def _message(number: int, text: str) -> MessageReceived:
    return MessageReceived(
        id=f"m{number}", client="bench", sender="bench", channel="websocket", chat="private", text=text, attachments=()
    )


async def _open(database: Database, count: int) -> tuple[list[float], float]:
    """Open chats of random keys as the gateway does, and return the milliseconds of each, and the seconds of the catalog."""
    random.seed(7)
    async with GroupCommitter(database) as committer:
        store = PostgresStore(database, "sessions", Path(os.devnull), committer)
        began = time.perf_counter()
        async with PostgresCatalog(database, store.is_open) as catalog:
            catalog_start = time.perf_counter() - began
            taken = []
            for _ in range(OPENED):
                number = random.randrange(1, count // 2)
                person, key = f"person-{number % PERSONS}", f"key-{number}"
                began = time.perf_counter()
                await catalog.receipts(person, key)
                row = await catalog.current(person, key)
                assert row is not None
                opened = await open_session(store, catalog, row.session)
                taken.append((time.perf_counter() - began) * 1000)
                assert row.succeeds is not None
                await opened.log.close()
            return taken, catalog_start


def _p99(samples: list[float]) -> float:
    return sorted(samples)[len(samples) * 99 // 100]
