"""Journals on a real disk, written without the journal's own code, and the rows that are true of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiosqlite

from sessions.catalog.sqlite import connect
from sessions.events.codec import decode
from sessions.events.events import Event, MessageReceived, Succession, TurnEnded
from sessions.state.reducer import project
from sessions.state.transcript import Transcript
from sessions.store.catalog import SessionRow
from sessions.store.protocols import Position
from tests.stories import lines_of, opened, received


@asynccontextmanager
async def catalog_file(path: Path) -> AsyncIterator[aiosqlite.Connection]:
    """Open the file of a catalog."""
    connection = await connect(path, patience=1.0)
    try:
        yield connection
    finally:
        await connection.close()


def session_id(number: int) -> str:
    """The id of the session that was opened as the `number`th."""
    return f"20261121-{number // 3600 % 24:02d}{number // 60 % 60:02d}{number % 60:02d}-{number:06d}"


def messages(first: int, last: int, *, size: int = 20) -> list[MessageReceived]:
    """Messages with the ids `m<first>` to `m<last>`, about `size` bytes of text in each."""
    return [received(f"text {number} ".ljust(size, "."), f"m{number}") for number in range(first, last + 1)]


def ended() -> TurnEnded:
    """An event that is no message."""
    return TurnEnded(outcome="replied", millis=7)


def write_journal(
    folder: Path, number: int, *events: Event, key: str = "main", succeeds: Succession | None = None
) -> tuple[Path, Transcript, Position]:
    """Write a whole journal; returns its path, its transcript and the position of its end."""
    session = session_id(number)
    lines = lines_of([opened(session, key, succeeds=succeeds), *events])
    folder.mkdir(exist_ok=True)
    path = folder / f"{session}.jsonl"
    path.write_bytes(b"".join(lines))
    return path, project(lines), end_of(path)


def extend_journal(path: Path, *events: Event) -> tuple[Transcript, Position]:
    """Append events to a journal; returns its new transcript and the position of its end."""
    old = path.read_bytes().splitlines(keepends=True)
    lines = lines_of([*(decode(line).event for line in old), *events])  # type: ignore[list-item]  # no foreign ones here
    with path.open("ab") as file:
        file.write(b"".join(lines[len(old) :]))
    return project(lines), end_of(path)


def end_of(path: Path) -> Position:
    """The position of a whole journal's last line."""
    lines = path.read_bytes().split(b"\n")[:-1]
    return Position(seq=len(lines), offset=path.stat().st_size, sum=lines[-1][-18:-2])


def row_of(path: Path, transcript: Transcript, *, settled: bool = True) -> SessionRow:
    """The row that a conversation would put when all of its journal is durable."""
    stat = path.stat()
    return SessionRow(
        session=transcript.session,
        key=transcript.key,
        person=transcript.person,
        opened_at=transcript.opened_at,
        succeeds=transcript.succeeds,
        head=transcript.head,
        at=transcript.at,
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        settled=settled,
        closed=transcript.closed is not None,
    )
