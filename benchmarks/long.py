"""Thousands of turns at a small window, tool results up to 200 kB: whether all holds that is promised of such a session.

No process is started. The model is as strict as a provider: it counts each request and refuses one that is longer than its
window. The flush, the summary, pruning and the log are the gateway's; afterwards the log is written to a file and verified.
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
"""Windows in tokens, each with by how much fewer turns it has than the first."""

UNPRUNED = 100_000
"""Above so many tokens nothing is pruned."""

ROUNDS = 24
"""Calls of the model in one turn, as configured by default; this one makes seldom more than five."""

TEN_MINUTES = timedelta(minutes=10)
"""Between two turns: so that there is a new note each day, as in months."""


class TimedModel(StrictModel):
    """Counts the seconds that it takes for itself, and the requests in which a call has no result."""

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


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was played: what the model saw, the log, and the milliseconds of each turn outside the model, all of
    them and those of the processor."""

    model: TimedModel
    lines: list[bytes]
    events: list[Event]
    millis: list[float]
    cpu: list[float]


def run(setting: Setting) -> list[Figure]:
    """`setting.turns` turns at 8,000 tokens, fewer at the other windows."""
    figures: list[Figure] = []
    for window, fewer in WINDOWS.items():
        with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
            played = asyncio.run(_play(window, max(1, setting.turns // fewer), Path(folder)))
            figures += _figures(window, played, Path(folder) / "journal.jsonl")
    return figures


async def _play(window: int, turns: int, folder: Path) -> Played:
    model = TimedModel(window)
    # Pruning keeps such a session far below a large window: without it there are compactions to see.
    on = long_stage(folder, model, rounds=ROUNDS, pruning=PruningRules(mode="off" if window > UNPRUNED else "always"))
    async with on.playing():
        turned = [await _turn(on, model, turn) for turn in range(turns)]
        await on.until(lambda: not on.recorder.transcript.cycle.owed)
    millis, cpu = ([1000 * each for each in column] for column in zip(*turned, strict=True))
    return Played(model=model, lines=on.log.written, events=on.events, millis=millis, cpu=cpu)


async def _turn(on: Stage, model: TimedModel, turn: int) -> tuple[float, float]:
    """The seconds of a turn outside the model, and those of the processor."""
    longer = random.Random(turn).choice((1, 1, 1, 3, 9, 300))
    on.clock.move(TEN_MINUTES.total_seconds())
    began, spent = time.perf_counter() - model.elapsed, time.process_time() - model.cpu
    await on.say(f"Turn {turn}, about CRAB-{turn}: " + "what of it? " * longer, f"t{turn}")
    return time.perf_counter() - model.elapsed - began, time.process_time() - model.cpu - spent


def _figures(window: int, played: Played, journal: Path) -> Iterator[Figure]:
    what = f"{len(played.millis)} turns at {window:,}"
    sizes = [float(tokens) for _, tokens in played.model.asked]
    most = max(sizes)
    yield figure(
        "long", f"{what}: largest request", "tokens", [most], against="window", reference=window, holds=most <= window
    )
    for wrong, count in _wrong(played, journal).items():
        yield figure("long", f"{what}: {wrong}", "", [count], against="promise 0", holds=not count)
    flushes = _flushes(played.events)
    yield figure("long", f"{what}: compactions", "", [len(flushes)])
    if flushes:
        yield figure("long", f"{what}: flushes before a compaction", "", flushes)
    yield figure("long", f"{what}: a turn outside the model", "ms", played.millis)
    tenth = max(1, len(played.cpu) // 10)
    first, last = (statistics.mean(part) for part in (played.cpu[tenth : 2 * tenth], played.cpu[-tenth:]))
    label = f"{what}: processor for one of the last tenth"
    yield figure("long", label, "ms", [last], against="second tenth", reference=first)


def _wrong(played: Played, journal: Path) -> dict[str, int]:
    """Return the number of occurrences of each fault."""
    sent = [each.sha256 for each in played.events if isinstance(each, RequestSent) and each.purpose == "answer"]
    again = hashes_of_the_log(played.lines)
    return {
        "requests with unpaired calls": played.model.unpaired,
        "turns without an answer": sum(isinstance(each, TurnEnded) and each.error is not None for each in played.events),
        "compactions of what was not flushed": _unflushed(played.events),
        f"hashes of {len(sent)} requests not found again": sum(a != b for a, b in zip(sent, again, strict=True)),
        f"errors in the log of {sum(map(len, played.lines)) / 1e6:.0f} MB": _errors(played.lines, journal),
    }


def _flushes(events: list[Event]) -> list[float]:
    """Count the flushes before each compaction: more than one if a later cut was needed."""
    flushes = Counter(each.compaction for each in events if isinstance(each, MemoryFlushed))
    return [float(flushes[each.compaction]) for each in events if isinstance(each, ContextCompacted)]


def _unflushed(events: list[Event]) -> int:
    """The compactions that let something go which no flush had covered."""
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
