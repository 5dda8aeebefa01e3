"""Invariants of long sessions: thousands of turns at a small window, with tool results up to 200 kB.

The conversation runs in this process. The scripted model rejects requests that exceed its window, as a provider does. Flush,
summary, pruning and log are the gateway's own; afterwards the log is written to a file and verified.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import msgspec

from benchmarks.figures import Figure, figure
from benchmarks.long_session import StrictModel, hashes_of_the_log, long_stage
from benchmarks.setting import Setting
from benchmarks.stage import Stage
from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.api.pruning import PruningRules
from sessions.events.errors import SessionsError
from sessions.events.events import ContextCompacted, Event, MemoryFlushed, RequestSent, TurnEnded
from sessions.files.journal_folder import JournalFolder
from sessions.state.context import is_paired
from sessions.store.reading import StoredLog

WINDOWS = {8_000: 1, 4_000: 4, 200_000: 4}
"""The divisor of the number of turns for each window in tokens."""

UNPRUNED = 100_000
"""Windows above this number of tokens are not pruned."""

ROUNDS = 24
"""The default limit of model calls in one turn; the scripted model seldom makes more than five."""

TEN_MINUTES = timedelta(minutes=10)
"""The time between two turns, so that the session spans many days and their notes."""


class TimedModel(StrictModel):
    """A model that measures its own time and counts the requests with unpaired calls."""

    def __init__(self, window: int) -> None:
        super().__init__(window, seed=4)
        self.elapsed = self.cpu = 0.0
        self.unpaired = 0

    def stream(self, request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        self.unpaired += not is_paired(request.context.messages)
        return self._timed(self._answered(request))

    async def _timed(self, parts: AsyncIterator[Delta | Reply]) -> AsyncIterator[Delta | Reply]:
        while True:
            elapsed, cpu = time.perf_counter(), time.process_time()
            try:
                part = await anext(parts)
            except StopAsyncIteration:
                return
            finally:
                self.elapsed += time.perf_counter() - elapsed
                self.cpu += time.process_time() - cpu
            yield part


class LongRun(msgspec.Struct, frozen=True, kw_only=True):
    """A finished session: its model, its log, and the elapsed and processor milliseconds of each turn without the model."""

    model: TimedModel
    lines: list[bytes]
    events: list[Event]
    millis: list[float]
    cpu: list[float]


def run(setting: Setting) -> list[Figure]:
    """Run `setting.turns` turns at 8,000 tokens, fewer at the other windows."""
    figures: list[Figure] = []
    for window, divisor in WINDOWS.items():
        with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
            finished = asyncio.run(_run_session(window, max(1, setting.turns // divisor), Path(folder)))
            figures += _figures(window, finished, Path(folder) / "journal.jsonl")
    return figures


async def _run_session(window: int, turns: int, folder: Path) -> LongRun:
    model = TimedModel(window)
    # With pruning, such a session would never reach a large window and never be compacted.
    stage = long_stage(folder, model, rounds=ROUNDS, pruning=PruningRules(mode="off" if window > UNPRUNED else "always"))
    async with stage.playing():
        times = [await _turn(stage, model, turn) for turn in range(turns)]
        await stage.until(lambda: not stage.recorder.transcript.cycle.owed)
    millis, cpu = ([1000 * each for each in column] for column in zip(*times, strict=True))
    return LongRun(model=model, lines=stage.log.written, events=stage.events, millis=millis, cpu=cpu)


async def _turn(stage: Stage, model: TimedModel, turn: int) -> tuple[float, float]:
    """Run a turn and return its elapsed and processor seconds without the model."""
    repetitions = random.Random(turn).choice((1, 1, 1, 3, 9, 300))
    stage.clock.move(TEN_MINUTES.total_seconds())
    began, spent = time.perf_counter() - model.elapsed, time.process_time() - model.cpu
    await stage.say(f"Turn {turn}, about CRAB-{turn}: " + "what of it? " * repetitions, f"t{turn}")
    return time.perf_counter() - model.elapsed - began, time.process_time() - model.cpu - spent


def _figures(window: int, finished: LongRun, journal: Path) -> Iterator[Figure]:
    what = f"{len(finished.millis)} turns at {window:,}"
    sizes = [float(tokens) for _, tokens in finished.model.asked]
    largest = max(sizes)
    yield figure(
        "long", f"{what}: largest request", "tokens", [largest], against="window", reference=window, holds=largest <= window
    )
    for fault, count in _faults(finished, journal).items():
        yield figure("long", f"{what}: {fault}", "", [count], against="required 0", holds=not count)
    flushes = _flushes(finished.events)
    yield figure("long", f"{what}: compactions", "", [len(flushes)])
    if flushes:
        yield figure("long", f"{what}: flushes before a compaction", "", flushes)
    yield figure("long", f"{what}: turn without the model", "ms", finished.millis)
    tenth = max(1, len(finished.cpu) // 10)
    first, last = (statistics.mean(part) for part in (finished.cpu[tenth : 2 * tenth], finished.cpu[-tenth:]))
    label = f"{what}: processor time of a turn, last tenth"
    yield figure("long", label, "ms", [last], against="second tenth", reference=first)


def _faults(finished: LongRun, journal: Path) -> dict[str, int]:
    """Count the occurrences of each fault."""
    sent = [each.sha256 for each in finished.events if isinstance(each, RequestSent) and each.purpose == "answer"]
    again = hashes_of_the_log(finished.lines)
    return {
        "requests with unpaired calls": finished.model.unpaired,
        "turns without an answer": sum(isinstance(each, TurnEnded) and each.error is not None for each in finished.events),
        "compactions of unflushed messages": _unflushed(finished.events),
        f"hashes of {len(sent)} requests not reproduced": sum(a != b for a, b in zip(sent, again, strict=True)),
        f"errors in the log of {sum(map(len, finished.lines)) / 1e6:.0f} MB": _errors(finished.lines, journal),
    }


def _flushes(events: list[Event]) -> list[float]:
    """Count the flushes before each compaction: more than one if a later cut was needed."""
    flushes = Counter(each.compaction for each in events if isinstance(each, MemoryFlushed))
    return [float(flushes[each.compaction]) for each in events if isinstance(each, ContextCompacted)]


def _unflushed(events: list[Event]) -> int:
    """Count the compactions that removed unflushed messages."""
    covered = missed = 0
    for each in events:
        if isinstance(each, MemoryFlushed):
            covered = max(covered, each.covers_to)
        elif isinstance(each, ContextCompacted):
            missed += covered < each.keep_from - 1
    return missed


def _errors(lines: list[bytes], journal: Path) -> int:
    journal.write_bytes(b"".join(lines))
    try:
        verified = StoredLog(JournalFolder(journal.parent), journal.stem).verify()
    except SessionsError:
        return 1
    return int(verified.events != len(lines)) + int(verified.torn > 0)
