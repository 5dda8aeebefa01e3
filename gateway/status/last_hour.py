"""The last hour of the gateway: a ring of samples, one every ten seconds, for the small plots of the console.

In memory alone, and of a fixed size. What is counted since the start is told as what came within each ten seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from gateway.conversations.routing.switchboard import SwitchboardLoad
from gateway.metrics import process
from gateway.metrics.counters import Counters
from gateway.metrics.loop_lag import LoopLag
from gateway.metrics.prometheus import Histogram
from plugins.api.context import Clock

EVERY = 10.0
"""Seconds from one sample to the next."""

KEPT = 360
"""Samples: an hour of them."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Ten seconds. `at` is their end, in seconds since 1970. `turns` that ended, by whatever outcome; `errors` of turns, of
    providers, of plugins and of the disk; `steps` the mean seconds of each step that was taken; `sync` the mean of all
    `syncs`, None without any; `lag` the longest delay of the event loop within the last minute, in seconds; `memory` bytes.
    What runs and waits is as it was at the end."""

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
    """Belongs to one gateway. `load` is what its conversations do now."""

    def __init__(self, figures: Counters, lag: LoopLag, load: Callable[[], SwitchboardLoad], clock: Clock) -> None:
        self._figures = figures
        self._lag = lag
        self._load = load
        self._clock = clock
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._counts = self._counted()
        self._observed = self._observations()

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What there is, oldest first."""
        return tuple(self._samples)

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            self.take()

    def take(self) -> None:
        """One sample: what came since the one before."""
        before, self._counts = self._counts, self._counted()
        seen, self._observed = self._observed, self._observations()
        grown = {name: count - before[name] for name, count in self._counts.items()}
        means = {name: mean for name in seen if (mean := _mean(seen[name], self._observed[name])) is not None}
        load = self._load()
        sample = Sample(
            at=self._clock.now().timestamp(),
            turns=grown["turns"],
            messages=grown["messages"],
            errors=grown["errors"],
            tokens=grown["tokens"],
            steps={name: mean for name, mean in means.items() if name in self._figures.steps},
            sync=means.get("sync"),
            syncs=self._observed["sync"][0] - seen["sync"][0],
            lag=self._lag.lately,
            running=load.running,
            waiting=load.waiting,
            memory=process.memory(),
        )
        self._samples.append(sample)

    def _counted(self) -> dict[str, int]:
        figures = self._figures
        errors = (figures.turn_errors, figures.provider_errors, figures.plugin_failures, figures.storage_failures)
        return {
            "turns": figures.turns.total,
            "messages": figures.messages.total,
            "errors": sum(counter.total for counter in errors),
            "tokens": figures.tokens.total,
        }

    def _observations(self) -> dict[str, tuple[int, float]]:
        steps = {str(step): _seen(histogram) for step, histogram in self._figures.steps.items()}
        return {**steps, "sync": _seen(self._figures.sync_seconds)}


def _seen(histogram: Histogram) -> tuple[int, float]:
    return histogram.count, histogram.sum


def _mean(before: tuple[int, float], now: tuple[int, float]) -> float | None:
    """The mean of what came between two looks, each a count and a sum; None where nothing did."""
    count = now[0] - before[0]
    return (now[1] - before[1]) / count if count > 0 else None
