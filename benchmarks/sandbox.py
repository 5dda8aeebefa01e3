"""The cost of the sandbox: a command that does nothing, from its start until all of it has ended."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, figure, percentile_95
from benchmarks.setting import Setting
from plugins.sandbox.policy import Level, SandboxPolicy
from plugins.sandbox.process import start

BAR_SECONDS = 0.08
"""The most that a command may cost at the 95th percentile, on an idle machine."""

LEVELS: tuple[tuple[Level, bool], ...] = (("none", False), ("partial", False), ("full", False), ("full", True))


def run(setting: Setting) -> list[Figure]:
    """Measure commands at each level; the level `none` shows what the supervisor alone costs."""
    samples = {key: asyncio.run(_samples(*key, runs=setting.commands)) for key in LEVELS}
    return [
        figure(
            "sandbox",
            f"`true` at the level `{level}`" + (" with a network" if network else ""),
            "ms",
            [1000 * sample for sample in samples[level, network]],
            against="bar",
            reference=1000 * BAR_SECONDS,
            holds=percentile_95(samples[level, network]) <= BAR_SECONDS,
        )
        for level, network in LEVELS
    ]


async def _samples(level: Level, network: bool, *, runs: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        policy = SandboxPolicy(workspace=Path(folder), network=network)
        return [await _sample(policy, level) for _ in range(runs + 1)][1:]


async def _sample(policy: SandboxPolicy, level: Level) -> float:
    began = time.perf_counter()
    async with await start(["true"], policy, level=level) as process:
        if process.listener is not None:
            process.listener.close()
        ended = await process.wait()
    assert ended.exit_code == 0, ended
    return time.perf_counter() - began
