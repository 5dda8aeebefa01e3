"""What the gateway adds to one turn, and whether that grows with the session.

One client talks in one session, a message at a time. From turns 10, 100, 500, 1,000 and 2,000 on, a window of turns is
measured, each followed by one passage of the floor (see `floor`), whose request is as long as the session has become; the
turns between the windows are only driven through. What is added is a turn's time minus that of its own passage.
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
    """The measurements from one turn on, each turn next to the same work without a gateway. `body` is in bytes, `cpu` the
    gateway's processor time in seconds per turn of the window."""

    depth: int
    body: int
    cpu: float
    pairs: tuple[tuple[Times, FloorTimes], ...]

    @property
    def added(self) -> list[float]:
        """Milliseconds by which each turn was slower than its passage."""
        return [(times.ended - floor.turn) * 1000 for times, floor in self.pairs]


def run(setting: Setting) -> list[Figure]:
    """The windows of one session; the last begins at turn `setting.turns`, or earlier."""
    with (
        serving("model_server") as (_, model_port),
        new_home(setting.folder) as home,
        gateway(home, model_port) as process,
    ):
        windows = asyncio.run(_talk(setting, home, process, model_port))
    disk = figure("latency", f"two writes with fdatasync, {file_system(setting.folder)}", "ms", _synced(windows))
    return [disk, *(line for window in windows for line in _figures(window)), _growth(windows)]


async def _talk(setting: Setting, home: Path, process: GatewayProcess, model_port: int) -> list[Window]:
    client = await Client.open(process.port, TOKEN, "latency")
    async with Floor.open(home, model_port) as floor:
        session = _Session(client, floor, home / "sessions", process.pid)
        windows = [await session.window(depth, setting.window) for depth in _depths(setting)]
    client.close()
    return windows


def _depths(setting: Setting) -> list[int]:
    """Return the first turn of each window: none beyond the wanted turns, and none inside the previous window."""
    depths: list[int] = []
    for depth in sorted({min(depth, setting.turns) for depth in DEPTHS}):
        if not depths or depth > depths[-1] + setting.window:
            depths.append(depth)
    return depths


class _Session:
    """The long session, and the floor beside it."""

    def __init__(self, client: Client, floor: Floor, journals: Path, pid: int) -> None:
        self._client = client
        self._floor = floor
        self._journals = journals
        self._pid = pid
        self._turns = 0

    async def window(self, depth: int, size: int) -> Window:
        """Go on to turn `depth`, then measure that many turns from it on."""
        while self._turns < depth - 2:
            await self._turn()
        written = self._written()
        frame = (await self._turn()).sent
        journal = self._written() - written
        body = await self._floor.last_body()
        await self._floor.passage(frame=frame, journal=journal, body=body)  # opens the connections that are kept
        pairs, began = [], cpu_seconds(self._pid)
        for _ in range(size):
            pairs.append((await self._turn(), await self._floor.passage(frame=frame, journal=journal, body=body)))
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
    yield figure("latency", f"{name}: added to the floor", "ms", window.added, against="bar", reference=BAR_MILLIS)
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
        against="floor of the turn",
        reference=turn,
    )
    yield figure("latency", f"{name}: processor time of the gateway, mean", "ms", [window.cpu * 1000])


def _growth(windows: list[Window]) -> Figure:
    first, last = windows[0], windows[-1]
    return figure(
        "latency",
        f"added at turn {last.depth}",
        "ms",
        last.added,
        against=f"added at turn {first.depth}",
        reference=statistics.median(first.added),
    )
