"""The cost of a compaction without the model: planning, the input of flush and summary, the checks, the notes.

A session without pruning grows until it must be compacted; then one cycle is measured. The time of the scripted model is
subtracted. The log is in memory; on a disk, two events are synced in addition.
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
    """The cost of one cycle without the model: elapsed and processor time in milliseconds, and the tokens of the view before
    and after. `blocked` is the longest time in milliseconds for which it blocked the event loop, 0 if not measured."""

    elapsed: float
    cpu: float
    blocked: float
    before: int
    after: int


def run(setting: Setting) -> list[Figure]:
    """Measure `setting.runs` cycles at each window."""
    return [each for window in WINDOWS for each in _figures(window, setting)]


def _figures(window: int, setting: Setting) -> Iterator[Figure]:
    costs = [_measured(window, setting.folder, is_watched=False) for _ in range(setting.runs)]
    blocked = _measured(window, setting.folder, is_watched=True).blocked
    what = f"window {window:,}"
    yield figure("compacting", f"{what}: cycle without the model", "ms", [each.elapsed for each in costs])
    yield figure("compacting", f"{what}: processor time of the cycle", "ms", [each.cpu for each in costs])
    yield figure("compacting", f"{what}: longest block of the event loop", "ms", [blocked])
    yield figure("compacting", f"{what}: view before", "tokens", [float(each.before) for each in costs])
    yield figure("compacting", f"{what}: view after", "tokens", [float(each.after) for each in costs])


def _measured(window: int, folder: Path, *, is_watched: bool) -> Cost:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        return asyncio.run(_cost(window, Path(own), is_watched))


async def _cost(window: int, folder: Path, is_watched: bool) -> Cost:
    model = TimedModel(window)
    stage = long_stage(folder, model, longest=4_000, pruning=PruningRules(mode="off"), compaction=NO_COMPACTION)
    async with stage.playing():
        for turn in itertools.count():
            await stage.say(f"Turn {turn}, about CRAB-{turn}: " + "what of it? " * 9, f"t{turn}")
            if (size := stage.compacting.sizes().total) >= budget(window, THRESHOLDS).compact_at:
                break
        stage.configure(compaction=CompactionKeys())
        blocked = [0.0]
        watching = asyncio.create_task(_record_blocks(model, blocked)) if is_watched else None
        elapsed, cpu = time.perf_counter() - model.elapsed, time.process_time() - model.cpu
        await stage.compacting.before_request(window, size)
        elapsed, cpu = time.perf_counter() - model.elapsed - elapsed, time.process_time() - model.cpu - cpu
        if watching is not None:
            watching.cancel()
        await stage.until(lambda: not stage.recorder.transcript.cycle.owed)
    (made,) = stage.told(ContextCompacted)
    before, after = made.tokens_before, made.tokens_after
    return Cost(elapsed=elapsed * 1000, cpu=cpu * 1000, blocked=max(blocked) * 1000, before=before, after=after)


async def _record_blocks(model: TimedModel, blocked: list[float]) -> None:
    """Append the processor seconds of each iteration of the event loop, without the model's, until cancelled."""
    while True:
        began, before = time.thread_time(), model.cpu
        await asyncio.sleep(0)
        blocked.append(time.thread_time() - began - (model.cpu - before))
