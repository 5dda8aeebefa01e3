"""The time to open a journal: verify, fold and sync it as a whole, or from a checkpoint at its end."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import new_home
from benchmarks.journals import EVENTS_A_TURN, write_journal
from benchmarks.setting import Setting
from sessions.events.codec import decode
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript
from sessions.store.protocols import START, Position

SHORTER = 100


class TranscriptFold:
    """Folds the lines of a journal into a transcript, as the gateway does on opening."""

    def __init__(self) -> None:
        self.transcript = Transcript()

    def __call__(self, line: bytes) -> None:
        self.transcript = evolve(self.transcript, decode(line))


def run(setting: Setting) -> list[Figure]:
    """Compare a journal of `setting.events` events with one a hundred times shorter, both in the page cache."""
    with new_home(setting.folder) as home:
        sessions = home / "sessions"
        sessions.mkdir(mode=0o700)
        ends = {
            events: write_journal(sessions, f"20261121-031241-{events}", key="opening", turns=events // EVENTS_A_TURN)
            for events in (max(EVENTS_A_TURN, setting.events // SHORTER), setting.events)
        }
        return asyncio.run(_measure(home, ends, setting.runs))


async def _measure(home: Path, ends: dict[int, Position], runs: int) -> list[Figure]:
    async with Committer() as committer:
        (home / "sessions").mkdir(exist_ok=True)
        journals = Journals(home / "sessions", home / "quarantine", committer)
        whole = {events: await _open(journals, events, START, runs) for events in ends}
        from_checkpoint = {events: await _open(journals, events, end, runs) for events, end in ends.items()}
    return [*_lines("whole", whole), *_lines("from a checkpoint at its end", from_checkpoint)]


async def _open(journals: Journals, events: int, after: Position, runs: int) -> list[float]:
    return [await _open_once(journals, events, after) for _ in range(runs)]


async def _open_once(journals: Journals, events: int, after: Position) -> float:
    began = time.perf_counter()
    log, _ = await journals.open(f"20261121-031241-{events}", after=after, fold=TranscriptFold())
    seconds = time.perf_counter() - began
    await log.close()
    return seconds * 1000


def _lines(how: str, samples: dict[int, list[float]]) -> list[Figure]:
    (few, short), (many, long) = min(samples.items()), max(samples.items())
    return [
        figure("opening", f"{few} events, {how}", "ms", short),
        figure("opening", f"{many} events, {how}", "ms", long, against=f"{few} events", reference=statistics.median(short)),
    ]
