"""What the stories of journals are told with: journals in a folder, an listener for their reports, and lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sessions.events.errors import StorageFailed
from sessions.files.committer import Committer
from sessions.files.journals import Journal, Journals
from sessions.store.protocols import START, Position
from tests.stories import lines_of, opened, received
from tests.waiting import deadline

SESSION = "20261121-120000-aaaaaa"


@asynccontextmanager
async def journals_in(home: Path) -> AsyncIterator[Journals]:
    """The journals under `home`, with a committer that runs while the block does."""
    async with Committer() as committer:
        (home / "sessions").mkdir(parents=True, exist_ok=True)
        yield Journals(home / "sessions", home / "quarantine", committer)


class CommitListener:
    """Records what a journal reports, and lets a test wait for it."""

    def __init__(self, journal: Journal) -> None:
        self.durable: list[int] = []
        self.failures: list[StorageFailed] = []
        self._changed = asyncio.Event()
        journal.on_commit(self._on_durable, self._on_failed)

    async def until(self, offset: int) -> None:
        async with deadline():
            while not self.failures and (not self.durable or self.durable[-1] < offset):
                self._changed.clear()
                await self._changed.wait()

    async def until_failed(self) -> StorageFailed:
        async with deadline():
            while not self.failures:
                self._changed.clear()
                await self._changed.wait()
        return self.failures[0]

    def _on_durable(self, offset: int) -> None:
        self.durable.append(offset)
        self._changed.set()

    def _on_failed(self, failure: StorageFailed) -> None:
        self.failures.append(failure)
        self._changed.set()


def some_lines(count: int, size: int = 10) -> list[bytes]:
    """The whole journal of a session with `count` events, each with a text of about `size` letters."""
    return lines_of([opened(SESSION), *(received(f"{n} " + "x" * size, f"m{n}") for n in range(1, count))])


def write_raw(home: Path, content: bytes, session: str = SESSION) -> Path:
    """Write bytes as the journal of a session."""
    path = home / "sessions" / f"{session}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def end_of(lines: list[bytes]) -> Position:
    """The position behind these lines of a journal."""
    return Position(seq=len(lines), offset=sum(map(len, lines)), sum=lines[-1][-19:-3]) if lines else START


async def reopened(home: Path, after: Position = START, *, unchanged: bool = False) -> tuple[list[bytes], Position]:
    """Open the session's journal and close it; the lines that were folded, and the last position."""
    folded: list[bytes] = []
    async with journals_in(home) as journals:
        journal, last = await journals.open(SESSION, after=after, fold=folded.append, unchanged=unchanged)
        await journal.close()
    return folded, last
