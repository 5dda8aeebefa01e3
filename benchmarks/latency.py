"""The overhead of the gateway for one turn, and its growth with the length of the session.

One client sends one message at a time in one session. Starting at turns 10, 100, 500, 1,000 and 2,000, a window of turns is
measured; each turn is followed by one pass of the floor (see `floor`) with a request of the same length. The turns between
the windows are not measured. The overhead is the time of a turn minus that of its pass.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.client import Client, Times
from benchmarks.figures import Figure, figure
from benchmarks.floor import Floor, FloorTimes
from benchmarks.gateway_process import TOKEN, GatewayProcess, gateway, new_home
from benchmarks.process import cpu_seconds, file_system, serving
from benchmarks.setting import Setting

BAR_MILLIS = 2.0
DEPTHS = (10, 100, 500, 1000, 2000)


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The measured turns from turn `depth` on, each with its pass of the floor. `body` is the size of the request in bytes,
    `cpu` the gateway's processor time in seconds per turn."""

    depth: int
    body: int
    cpu: float
    pairs: tuple[tuple[Times, FloorTimes], ...]

    @property
    def overhead(self) -> list[float]:
        """The difference between each turn and its pass in milliseconds."""
        return [(times.ended - floor.turn) * 1000 for times, floor in self.pairs]


def run(setting: Setting) -> list[Figure]:
    """Measure the windows of one session; the last begins at turn `setting.turns` or earlier."""
    with (
        serving("model_server") as (_, model_port),
        new_home(setting.folder) as home,
        gateway(home, model_port) as process,
    ):
        windows = asyncio.run(_talk(setting, home, process, model_port))
    disk = figure("latency", f"two writes with fdatasync on {file_system(setting.folder)}", "ms", _synced(windows))
    return [disk, *(line for window in windows for line in _figures(window)), _growth(windows)]


async def _talk(setting: Setting, home: Path, process: GatewayProcess, model_port: int) -> list[Window]:
    client = await Client.open(process.port, TOKEN, "latency")
    async with Floor.open(home, model_port) as floor:
        session = _Session(client, floor, home / "sessions", process.pid)
        windows = [await session.window(depth, setting.window) for depth in _depths(setting)]
    client.close()
    return windows


def _depths(setting: Setting) -> list[int]:
    """Return the first turn of each window, at most `setting.turns` and outside the previous window."""
    depths: list[int] = []
    for depth in sorted({min(depth, setting.turns) for depth in DEPTHS}):
        if not depths or depth > depths[-1] + setting.window:
            depths.append(depth)
    return depths


class _Session:
    """The long session with the floor measured alongside."""

    def __init__(self, client: Client, floor: Floor, journals: Path, pid: int) -> None:
        self._client = client
        self._floor = floor
        self._journals = journals
        self._pid = pid
        self._turns = 0

    async def window(self, depth: int, size: int) -> Window:
        """Advance to turn `depth`, then measure `size` turns."""
        while self._turns < depth - 2:
            await self._turn()
        written = self._written()
        frame = (await self._turn()).sent
        journal = self._written() - written
        body = await self._floor.last_body()
        await self._floor.measure(frame=frame, journal=journal, body=body)  # opens the persistent connections
        pairs, began = [], cpu_seconds(self._pid)
        for _ in range(size):
            pairs.append((await self._turn(), await self._floor.measure(frame=frame, journal=journal, body=body)))
        cpu = (cpu_seconds(self._pid) - began) / size
        return Window(depth=depth, body=len(body), cpu=cpu, pairs=tuple(pairs))

    async def _turn(self) -> Times:
        self._turns += 1
        return await self._client.turn()

    def _written(self) -> int:
        return sum(path.stat().st_size for path in self._journals.glob("*.jsonl"))


def _synced(windows: list[Window]) -> list[float]:
    return [floor.synced * 1000 for window in windows for _, floor in window.pairs]


def _figures(window: Window) -> Iterator[Figure]:
    name = f"turn {window.depth} ({window.body / 1000:.0f} kB)"
    turn = statistics.median(floor.turn for _, floor in window.pairs) * 1000
    accepted = statistics.median(floor.accepted for _, floor in window.pairs) * 1000
    ended = [times.ended * 1000 for times, _ in window.pairs]
    yield figure("latency", f"{name}: sent → turn_ended", "ms", ended, against="floor", reference=turn)
    yield figure("latency", f"{name}: overhead above the floor", "ms", window.overhead, against="bar", reference=BAR_MILLIS)
    yield figure(
        "latency",
        f"{name}: sent → accepted",
        "ms",
        [times.accepted * 1000 for times, _ in window.pairs],
        against="echo and one sync",
        reference=accepted,
    )
    yield figure(
        "latency",
        f"{name}: sent → first delta",
        "ms",
        [times.first_delta * 1000 for times, _ in window.pairs],
        against="floor",
        reference=turn,
    )
    yield figure("latency", f"{name}: processor time of the gateway, mean", "ms", [window.cpu * 1000])


def _growth(windows: list[Window]) -> Figure:
    first, last = windows[0], windows[-1]
    return figure(
        "latency",
        f"overhead at turn {last.depth}",
        "ms",
        last.overhead,
        against=f"overhead at turn {first.depth}",
        reference=statistics.median(first.overhead),
    )
