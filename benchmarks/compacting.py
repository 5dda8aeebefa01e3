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
from benchmarks.setting import Setting
from plugins.pruning import PruningRules
from sessions.compaction import budget
from sessions.events import ContextCompacted
from tests.gateway.long_session import long_stage, rules
from tests.gateway.stage import NO_COMPACTION

WINDOWS = (8_000, 32_000, 200_000)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """One cycle: its milliseconds outside the model, those of the processor, and the tokens of the view before and after."""

    elapsed: float
    cpu: float
    before: int
    after: int


def run(setting: Setting) -> list[Figure]:
    """`setting.runs` cycles at each window."""
    return [each for window in WINDOWS for each in _figures(window, setting)]


def _figures(window: int, setting: Setting) -> Iterator[Figure]:
    costs = []
    for _ in range(setting.runs):
        with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
            costs.append(asyncio.run(_cost(window, Path(folder))))
    what = f"window {window:,}: a cycle"
    yield figure("compacting", f"{what}, outside the model", "ms", [each.elapsed for each in costs])
    yield figure("compacting", f"{what}, processor", "ms", [each.cpu for each in costs])
    yield figure("compacting", f"{what}, view before", "tokens", [float(each.before) for each in costs])
    yield figure("compacting", f"{what}, view after", "tokens", [float(each.after) for each in costs])


async def _cost(window: int, folder: Path) -> Cost:
    model = TimedModel(window)
    on = long_stage(folder, model, longest=4_000, pruning=PruningRules(mode="off"), compaction=NO_COMPACTION)
    async with on.playing():
        for turn in itertools.count():
            on.hear(f"Turn {turn}, about CRAB-{turn}: " + "what of it? " * 9, f"t{turn}")
            await on.until_settled()
            if (size := on.compacting.sizes().total) >= budget(window, rules().figures).compact_at:
                break
        on.compaction = rules()
        elapsed, cpu = time.perf_counter() - model.elapsed, time.process_time() - model.cpu
        await on.compacting.before_request(window, size)
        elapsed, cpu = time.perf_counter() - model.elapsed - elapsed, time.process_time() - model.cpu - cpu
        await on.until(lambda: not on.recorder.transcript.cycle.owed)
    (made,) = on.told(ContextCompacted)
    return Cost(elapsed=elapsed * 1000, cpu=cpu * 1000, before=made.tokens_before, after=made.tokens_after)
