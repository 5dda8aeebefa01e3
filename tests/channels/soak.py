"""A day of a channel with the clock compressed: hours with messages, cut connections and refused posts, and idle hours.

    python -m tests.channels.soak KIND [--seconds 288] [--messages 25] [--seed N]

The services are those of `story`. An idle connection shows its signs of life as often in these seconds as otherwise in a
day. After each hour, when nothing is owed, the gateway's memory, open files, tasks and the files of the channel are
measured. They must not grow, and at the end everything must be true that `story` says.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path

import aiohttp
import msgspec

from plugins.testing.servers.openai_server import OpenAIServer
from tests.channels.story import IMPATIENT_SECONDS, STUCK_SECONDS, Report, StoryRun, StoryService, resident_megabytes
from tests.faults.gateway_process import start_process
from tests.waiting import until

BUSY = (0, 1, *range(8, 22))
"""The hours with messages. The others are idle."""

GROWTH_MEGABYTES = 6.0
"""What the memory may grow by from the first night to the evening, with the conversations themselves."""

KEPT = 8
"""Connections that pools keep for a while, and tasks for them."""

STATE_BYTES = 512 * 1024
"""What the files of a channel may need."""


class Hour(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway after an hour. `cpu` is what it used in it, in seconds; `state` and `journals` are bytes."""

    hour: int
    messages: int
    megabytes: float
    files: int
    tasks: dict[str, int]
    cpu: float
    state: int
    journals: int

    def __str__(self) -> str:
        return (
            f"{self.hour:02}:00 {self.messages:5} messages {self.megabytes:7.1f} MB {self.files:4} files"
            f" {sum(self.tasks.values()):4} tasks {self.cpu:6.2f} s CPU {self.state:8} B state {self.journals:9} B journals"
        )


class Soak(StoryRun):
    """One day in `folder`, in so many `seconds`."""

    def __init__(self, service: StoryService, folder: Path, *, messages: int, seed: int, seconds: float) -> None:
        super().__init__(service, folder, messages=messages * len(BUSY), seed=seed, calm=True)
        self.hours: list[Hour] = []
        self._an_hour = messages
        self._seconds = seconds / 24
        self._tasks = folder / "tasks.json"
        self._factor = 86_400 / seconds
        service.compress(self._factor)

    async def _start(self, http: aiohttp.ClientSession) -> None:
        settings = {
            **self._service.environment(),
            "EXUVIA__AGENT__MODEL": '"openai:gpt-test"',
            "TIMERS": ",".join(self._service.timers),
            "FACTOR": str(self._factor),
            "TASKS": str(self._tasks),
        }
        self._gateway = await start_process(
            self._home, settings=settings, port=self._port, module="tests.channels.compressed"
        )
        await self._gateway.ready(http, STUCK_SECONDS)

    async def _talk(self, http: aiohttp.ClientSession, model: OpenAIServer) -> None:
        numbers = iter(tuple(self._lengths))
        for hour in range(24):
            ends, before = time.monotonic() + self._seconds, cpu_seconds(self._gateway.process.pid)
            if hour in BUSY:
                for each in range(self._an_hour):
                    troubled = each in (self._an_hour // 3, self._an_hour // 2)
                    async with self._trouble() if troubled else contextlib.nullcontext():
                        await self._say(next(numbers), self._dice.choice(self._service.chats))
                    await asyncio.sleep(self._seconds / self._an_hour / 2)
                model.requests.clear()
                await self._until_answered(0, STUCK_SECONDS if self._service.acknowledges else IMPATIENT_SECONDS)
            await asyncio.sleep(max(0.0, ends - time.monotonic()))
            self.hours.append(await self._measured(hour, cpu_seconds(self._gateway.process.pid) - before))
            print(self.hours[-1], flush=True)  # noqa: T201

    @contextlib.asynccontextmanager
    async def _trouble(self) -> AsyncIterator[None]:
        """Have something go wrong before a message, or during it and its answer."""
        kind = self._dice.choice(("cut", "limit", "slow service"))
        self.report.disturbances[kind] += 1
        match kind:
            case "cut":
                await self._service.sever(self._dice)
                yield
            case "limit":
                async with self._service.limited():
                    yield
                    await asyncio.sleep(1.0)
            case _:
                await self._service.slow(0.05)
                yield
                await asyncio.sleep(0.5)
                await self._service.slow(0)

    async def _measured(self, hour: int, cpu: float) -> Hour:
        pid = self._gateway.process.pid
        self._tasks.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR1)
        await until(self._tasks.exists)
        stored = self._home / "channels"
        return Hour(
            hour=hour,
            messages=len(self._said),
            megabytes=resident_megabytes(pid),
            files=len(os.listdir(f"/proc/{pid}/fd")),
            tasks=json.loads(self._tasks.read_text()),
            cpu=cpu,
            state=sum(path.stat().st_size for path in stored.rglob("*") if path.is_file()),
            journals=sum(path.stat().st_size for path in (self._home / "sessions").glob("*.jsonl")),
        )

    async def run(self) -> Report:
        report = await super().run()
        report.findings += growth(self.hours)
        return report


def growth(hours: list[Hour]) -> list[str]:
    """Return what grew from the first idle hours to the last ones."""
    if len(hours) < 24:
        return []
    early, late = hours[:8], hours[22:]
    found = []
    for what, allowed in (("megabytes", GROWTH_MEGABYTES), ("files", KEPT), ("state", STATE_BYTES)):
        before, after = max(getattr(hour, what) for hour in early), min(getattr(hour, what) for hour in late)
        if after > before + allowed:
            found.append(f"growth: {what} from {before:.1f} to {after:.1f}")
    most, least = max(early, key=_count), min(late, key=_count)
    if _count(least) > _count(most) + KEPT:
        found.append(f"growth: tasks by {dict(Counter(least.tasks) - Counter(most.tasks))}")
    return found


def _count(hour: Hour) -> int:
    return sum(hour.tasks.values())


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(arguments: list[str]) -> int:
    """Run the soak of a kind of channel; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.channels.soak")
    parser.add_argument("kind", help="the kind of channel, such as irc")
    parser.add_argument("--seconds", type=float, default=288.0, help="of the day")
    parser.add_argument("--messages", type=int, default=25, help="of a busy hour")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by default a new one")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix=f"exuvia-soak-{options.kind}-"))
    (folder / "service").mkdir()
    service = import_module(f"tests.channels.{options.kind}_story").Story(folder / "service")
    soak = Soak(service, folder, messages=options.messages, seed=options.seed, seconds=options.seconds)
    report = asyncio.run(soak.run())
    print(report)  # noqa: T201
    if report.findings:
        print(f"Kept: {folder}")  # noqa: T201
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
