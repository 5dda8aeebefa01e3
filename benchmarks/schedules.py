"""The cost of schedules: a look at many of them, an hour in which each is due once, a start after many past occurrences."""

from __future__ import annotations

import asyncio
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.figures import Figure, figure
from benchmarks.setting import Setting
from gateway.conversations.schedules.recurrence import Cron, Every, Rule, stamp_seconds
from gateway.conversations.schedules.scheduler import LONGEST_SLEEP, Scheduler
from gateway.conversations.schedules.schedules import (
    PER_PERSON,
    OccurrenceDue,
    OccurrenceHanded,
    Schedules,
    ScheduleSet,
)
from sessions.files.committer import Committer
from sessions.files.journals import Journals

NOW = datetime(2026, 6, 1, tzinfo=UTC)

BAR_CORE = 1.0
"""Percent of a core that 1,000 schedules may take."""

BAR_START = 100.0
"""Milliseconds that the log may take at a start once it is compacted."""


class _Conversation:
    """A conversation that accepts every message at once, so that only the schedules are measured."""

    async def receive(self, message: Any, typed: Any) -> Any:
        return SimpleNamespace(session="20260601-000000-aaaaaa", seq=1)

    async def until_durable(self, received: Any) -> None:
        """Return at once."""


class _World:
    """The clock, and all conversations."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return (self.time - NOW).total_seconds()

    async def chat(self, *_: str, **__: bool) -> _Conversation:
        return _Conversation()


def run(setting: Setting) -> list[Figure]:
    """Measure with `setting.schedules` schedules, and with `setting.occurrences` past occurrences."""
    with tempfile.TemporaryDirectory(dir=setting.folder) as first, tempfile.TemporaryDirectory(dir=setting.folder) as second:
        return [*asyncio.run(_running(Path(first), setting)), *asyncio.run(_starting(Path(second), setting))]


def _opened(home: Path, committer: Committer, world: _World) -> Schedules:
    return Schedules(Journals(home, home / "quarantine", committer), world.now)


async def _set(schedules: Schedules, count: int, rule: Rule) -> list[str]:
    made = [
        ScheduleSet(schedule="", person=f"p{at // PER_PERSON}", client="c", key="main", text="Do this.", rule=rule)
        for at in range(count)
    ]
    return [(await schedules.set(each)).id for each in made]


async def _running(home: Path, setting: Setting) -> list[Figure]:
    world: Any = _World()
    count = setting.schedules
    async with Committer() as committer, _opened(home, committer, world) as schedules:
        await _set(schedules, count, Cron("0 * * * *", "Europe/Berlin"))
        async with Scheduler(schedules, world, world, lambda _: True) as scheduler:
            await scheduler._handle_all()
            looks, hours = [], []
            for _ in range(setting.runs):
                looks.append(await _percent(scheduler, LONGEST_SLEEP))
                world.time += timedelta(hours=1)
                hours.append(await _percent(scheduler, 3600.0))
    name = f"{count:,} schedules"
    return [
        figure("schedules", f"{name}, looked at every 20 s", "% of a core", looks, holds=max(looks) < BAR_CORE),
        figure("schedules", f"{name}, each due every hour", "% of a core", hours, holds=max(hours) < BAR_CORE),
    ]


async def _percent(scheduler: Scheduler, seconds: float) -> float:
    """Return the processor time of one round in percent of so many seconds."""
    began = time.process_time()
    await scheduler._handle_all()
    return 100 * (time.process_time() - began) / seconds


async def _starting(home: Path, setting: Setting) -> list[Figure]:
    world, count = _World(), setting.occurrences
    async with Committer() as committer, _opened(home, committer, world) as schedules:
        ids = await _set(schedules, 100, Every(3600, stamp_seconds(NOW)))
        for at in range(0, count, 1000):
            events: list[Any] = []
            for number in range(at, min(count, at + 1000)):
                id_, due = ids[number % 100], stamp_seconds(NOW + timedelta(hours=1 + number // 100))
                events.append(OccurrenceDue(schedule=id_, due=due, text="Do this."))
                events.append(OccurrenceHanded(schedule=id_, due=due, session="20260601-000000-aaaaaa", seq=number))
            await schedules.record(events)
    whole = [await _milliseconds(home, world) for _ in range(3)]
    async with Committer() as committer, _opened(home, committer, world) as schedules:
        await schedules.known()
        await schedules.compact()
    compacted = [await _milliseconds(home, world) for _ in range(setting.runs)]
    name = f"the log after {count:,} occurrences"
    return [
        figure("schedules", f"{name}, read", "ms", whole),
        figure("schedules", f"{name}, compacted and read", "ms", compacted, holds=min(compacted) < BAR_START),
    ]


async def _milliseconds(home: Path, world: _World) -> float:
    async with Committer() as committer, _opened(home, committer, world) as schedules:
        began = time.perf_counter()
        await schedules.known()
        return 1000 * (time.perf_counter() - began)
