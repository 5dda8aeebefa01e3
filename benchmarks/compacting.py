"""What a compaction costs outside the model: planning, the fenced input of flush and summary, the checks, the notes.

A session grows, without any pruning, to where its window must be compacted; then one cycle is measured, as a turn runs it.
The model answers at once, and its own time is left out. The log is in memory: on a disk each of two events is synced.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.figures import Figure, figure
from benchmarks.long import TimedModel
from benchmarks.long_session import THRESHOLDS, long_stage
from benchmarks.setting import Setting
from benchmarks.stage import NO_COMPACTION
from gateway.config.keys import CompactionKeys
from plugins.api.pruning import PruningRules
from sessions.events.events import ContextCompacted
from sessions.state.compaction import budget

WINDOWS = (8_000, 32_000, 200_000)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """One cycle: its milliseconds outside the model, those of the processor, and the tokens of the view before and after;
    `held`, for how many milliseconds it had the event loop at a stretch, 0 where nobody looked."""

    elapsed: float
    cpu: float
    held: float
    before: int
    after: int


def run(setting: Setting) -> list[Figure]:
    """`setting.runs` cycles at each window."""
    return [each for window in WINDOWS for each in _figures(window, setting)]


def _figures(window: int, setting: Setting) -> Iterator[Figure]:
    costs = [_measured(window, setting.folder, watched=False) for _ in range(setting.runs)]
    held = _measured(window, setting.folder, watched=True).held
    what = f"window {window:,}: a cycle"
    yield figure("compacting", f"{what}, outside the model", "ms", [each.elapsed for each in costs])
    yield figure("compacting", f"{what}, processor", "ms", [each.cpu for each in costs])
    yield figure("compacting", f"{what}, at most on the event loop at a stretch", "ms", [held])
    yield figure("compacting", f"{what}, view before", "tokens", [float(each.before) for each in costs])
    yield figure("compacting", f"{what}, view after", "tokens", [float(each.after) for each in costs])


def _measured(window: int, folder: Path, *, watched: bool) -> Cost:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        return asyncio.run(_cost(window, Path(own), watched))


async def _cost(window: int, folder: Path, watched: bool) -> Cost:
    model = TimedModel(window)
    on = long_stage(folder, model, longest=4_000, pruning=PruningRules(mode="off"), compaction=NO_COMPACTION)
    async with on.playing():
        for turn in itertools.count():
            await on.say(f"Turn {turn}, about CRAB-{turn}: " + "what of it? " * 9, f"t{turn}")
            if (size := on.compacting.sizes().total) >= budget(window, THRESHOLDS).compact_at:
                break
        on.configure(compaction=CompactionKeys())
        held = [0.0]
        watching = asyncio.create_task(_stretches(model, held)) if watched else None
        elapsed, cpu = time.perf_counter() - model.elapsed, time.process_time() - model.cpu
        await on.compacting.before_request(window, size)
        elapsed, cpu = time.perf_counter() - model.elapsed - elapsed, time.process_time() - model.cpu - cpu
        if watching is not None:
            watching.cancel()
        await on.until(lambda: not on.recorder.transcript.cycle.owed)
    (made,) = on.told(ContextCompacted)
    before, after = made.tokens_before, made.tokens_after
    return Cost(elapsed=elapsed * 1000, cpu=cpu * 1000, held=max(held) * 1000, before=before, after=after)


async def _stretches(model: TimedModel, held: list[float]) -> None:
    """Note, until cancelled, the seconds of the processor between two turns of the event loop, without the model's. Looking
    without a pause costs some itself."""
    while True:
        began, asked = time.thread_time(), model.cpu
        await asyncio.sleep(0)
        held.append(time.thread_time() - began - (model.cpu - asked))
