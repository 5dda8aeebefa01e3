"""Samples of the last hour, one every ten seconds, for the console's plots.

They are kept in memory only, in a ring of fixed size. A counter's value in a sample is its increase since the one before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from gateway.conversations.routing.switchboard import SwitchboardLoad
from gateway.metrics import process
from gateway.metrics.counters import Counters
from gateway.metrics.process import LoopLag
from gateway.metrics.prometheus import Histogram
from plugins.api.context import Clock

EVERY = 10.0
"""Interval of the samples, in seconds."""

KEPT = 360
"""Number of samples that are kept: one hour."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of ten seconds.

    `at` is their end, in seconds since 1970. `turns` counts those that ended, whatever their outcome; `errors` those of
    turns, providers, plugins and the disk. `steps` has the mean seconds of each step that was taken; `sync` the mean of all
    `syncs`, None without any; `lag` the longest delay of the event loop within the last minute, in seconds; `memory` bytes.
    `running` and `waiting` are the values at the end.
    """

    at: float
    turns: int
    messages: int
    errors: int
    tokens: int
    steps: Mapping[str, float]
    sync: float | None
    syncs: int
    lag: float
    running: int
    waiting: int
    memory: int


class LastHour:
    """The samples of one gateway. `load` returns the current load of its conversations."""

    def __init__(self, counters: Counters, lag: LoopLag, load: Callable[[], SwitchboardLoad], clock: Clock) -> None:
        self._counters = counters
        self._lag = lag
        self._load = load
        self._clock = clock
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._counts = self._counted()
        self._observed = self._observations()

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All samples, oldest first."""
        return tuple(self._samples)

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            self.take()

    def take(self) -> None:
        """Take one sample."""
        before, self._counts = self._counts, self._counted()
        observed, self._observed = self._observed, self._observations()
        increase = {name: count - before[name] for name, count in self._counts.items()}
        means = {name: mean for name in observed if (mean := _mean(observed[name], self._observed[name])) is not None}
        load = self._load()
        sample = Sample(
            at=self._clock.now().timestamp(),
            turns=increase["turns"],
            messages=increase["messages"],
            errors=increase["errors"],
            tokens=increase["tokens"],
            steps={name: mean for name, mean in means.items() if name in self._counters.steps},
            sync=means.get("sync"),
            syncs=self._observed["sync"][0] - observed["sync"][0],
            lag=self._lag.last_minute,
            running=load.running,
            waiting=load.waiting,
            memory=process.memory(),
        )
        self._samples.append(sample)

    def _counted(self) -> dict[str, int]:
        counters = self._counters
        errors = (counters.turn_errors, counters.provider_errors, counters.plugin_failures, counters.storage_failures)
        return {
            "turns": counters.turns.total,
            "messages": counters.messages.total,
            "errors": sum(counter.total for counter in errors),
            "tokens": counters.tokens.total,
        }

    def _observations(self) -> dict[str, tuple[int, float]]:
        steps = {str(step): _count_and_sum(histogram) for step, histogram in self._counters.steps.items()}
        return {**steps, "sync": _count_and_sum(self._counters.sync_seconds)}


def _count_and_sum(histogram: Histogram) -> tuple[int, float]:
    return histogram.count, histogram.sum


def _mean(before: tuple[int, float], now: tuple[int, float]) -> float | None:
    """Return the mean between two observations, each a count and a sum; None if nothing was added."""
    count = now[0] - before[0]
    return (now[1] - before[1]) / count if count > 0 else None
