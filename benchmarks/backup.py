"""Backups under load: clients send 200 messages a second all the time, and backups are made of the home meanwhile.

Times without and with a backup alternate, since a machine that others use changes. Each round has a time without one, a
first backup to a new folder, and a second one to the same folder, which copies what is new.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from benchmarks.client import Client
from benchmarks.figures import Figure, figure, percentile_95
from benchmarks.gateway_process import TOKEN, GatewayProcess, clean_environment, gateway, new_home
from benchmarks.journals import write_journal
from benchmarks.process import ROOT, serving
from benchmarks.setting import Setting
from gateway.backup.manifest import read_manifest

RATE = 200.0
"""Messages a second, of all sessions together."""

ROUNDS = 2
"""The most rounds: each makes two backups of all journals, and verifies both."""

TURNS = 30
"""Turns of each journal that is there before: about 50 kB."""

MOST = 2.0
"""How many times as long the 95th percentile of the turns may be while a backup runs."""

FIRST, SECOND = "a first backup", "the next one"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the time: the seconds that it took, and those of each turn that began in it."""

    seconds: float
    turns: list[float]


class Load:
    """Clients that send messages all the time. `turns` has when each turn began, and how long it took."""

    def __init__(self) -> None:
        self.turns: list[tuple[float, float]] = []
        self._ended = asyncio.Event()

    async def send(self, client: Client, pause: float) -> None:
        """Send a message every `pause` seconds, or as soon as the turn before has ended."""
        due = time.perf_counter()
        while True:
            await asyncio.sleep(due - time.perf_counter())
            began = time.perf_counter()
            times = await client.turn()
            self.turns.append((began, times.ended))
            self._ended.set()
            due = max(due + pause, time.perf_counter())

    async def more(self, count: int) -> Window:
        """Wait until another number of turns have begun and ended, and return that part of the time."""
        began = time.perf_counter()
        while len((window := self.since(began)).turns) < count:
            self._ended.clear()
            await self._ended.wait()
        return window

    def since(self, began: float) -> Window:
        """Return the part of the time since `began`."""
        turns = [seconds for at, seconds in self.turns if at >= began]
        return Window(seconds=time.perf_counter() - began, turns=turns)


class Measured:
    """What was measured: the windows of each kind, the bytes of each backup, and what went wrong."""

    def __init__(self) -> None:
        self.without: list[Window] = []
        self.during: dict[str, list[Window]] = {FIRST: [], SECOND: []}
        self.size = 0
        self.missing = 0
        self.faults = 0


def run(setting: Setting) -> list[Figure]:
    """Measure as many rounds as there are runs, at most ROUNDS."""
    with (
        serving("model_server") as (_, model_port),
        new_home(setting.folder) as home,
        tempfile.TemporaryDirectory(prefix="exuvia-bench-", dir=setting.folder) as folder,
    ):
        # All journals have the same words: recall would search in all of them before each turn.
        (home / "config.toml").write_text('[agent]\ntitles = false\n[memory.recall]\nmode = "off"\n')
        (home / "sessions").mkdir(mode=0o700)
        for number in range(setting.journals):
            write_journal(home / "sessions", f"20261121-031241-{number:06d}", key=f"key-{number}", turns=TURNS)
        with gateway(home, model_port) as process:
            return _figures(asyncio.run(_measure(setting, process, home, Path(folder))), setting)


async def _measure(setting: Setting, process: GatewayProcess, home: Path, folder: Path) -> Measured:
    measured = Measured()
    async with _load(setting, process) as load:
        await load.more(2 * setting.sessions)  # sessions are created
        for number in range(min(setting.runs, ROUNDS)):
            measured.without.append(await load.more(setting.each * setting.sessions))
            for kind in (FIRST, SECOND):
                target, before = folder / str(number), _lengths(home)
                began = time.perf_counter()
                done = json.loads(await _exuvia("backup", str(target), "--home", str(home), "--json"))
                measured.during[kind].append(load.since(began))
                measured.size = done["bytes"]
                measured.missing += _missing(target, before)
                verified = json.loads(await _exuvia("backup", str(target), "--verify", "--home", str(home), "--json"))
                measured.faults += len(verified["faults"])
    return measured


@asynccontextmanager
async def _load(setting: Setting, process: GatewayProcess) -> AsyncIterator[Load]:
    load = Load()
    clients = [await Client.open(process.port, TOKEN, f"session-{number}") for number in range(setting.sessions)]
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(load.send(client, setting.sessions / RATE)) for client in clients]
        yield load
        for task in sending:
            task.cancel()
    for client in clients:
        client.close()


async def _exuvia(*arguments: str) -> bytes:
    """Run a command and return its output. Raises RuntimeError if it fails."""
    command = [sys.executable, "-m", "exuvia", *arguments]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=clean_environment(), stdout=pipe, stderr=pipe)
    output, errors = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: {output.decode()} {errors.decode()}")
    return output


def _lengths(home: Path) -> dict[str, int]:
    """Return the length of each journal, which has all that was acknowledged."""
    return {f"sessions/{path.name}": path.stat().st_size for path in (home / "sessions").glob("*.jsonl")}


def _missing(folder: Path, before: dict[str, int]) -> int:
    """Return the number of journals in a backup that are shorter than they were before."""
    manifest = read_manifest(folder)
    held = {entry.path: entry.bytes for entry in manifest.logs} if manifest else {}
    return sum(held.get(path, 0) < size for path, size in before.items())


def _figures(measured: Measured, setting: Setting) -> list[Figure]:
    name = f"{RATE:.0f} turns/s, {measured.size / 1e6:.0f} MB in {setting.journals} journals"
    without = [seconds * 1000 for each in measured.without for seconds in each.turns]
    rates = [len(each.turns) / each.seconds for each in measured.without]
    lines = [
        figure("backup", f"{name}: achieved", "turns/s", rates, against="wanted", reference=RATE),
        figure("backup", f"{name}: sent → turn_ended, without a backup", "ms", without),
    ]
    usual = percentile_95(without)
    for kind, windows in measured.during.items():
        during = [seconds * 1000 for each in windows for seconds in each.turns]
        lines += [
            figure("backup", f"{name}: sent → turn_ended, during {kind}", "ms", during),
            figure(
                "backup",
                f"{name}: 95th percentile during {kind}",
                "ms",
                [percentile_95(during)],
                against="without",
                reference=usual,
                holds=percentile_95(during) <= MOST * usual,
            ),
            figure("backup", f"{name}: time of {kind}", "s", [each.seconds for each in windows]),
        ]
    return [
        *lines,
        figure(
            "backup", "journals with less than before the backup began", "", [measured.missing], holds=not measured.missing
        ),
        figure("backup", "faults that verifying finds", "", [measured.faults], holds=not measured.faults),
    ]
