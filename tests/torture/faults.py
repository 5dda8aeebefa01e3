"""Faults of a running gateway: signals, limits, and, where a compiler is, the disk, descriptors and the clock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import shutil
import signal
from collections import Counter
from pathlib import Path

from tests.faults.gateway_process import GatewayProcess
from tests.torture.preload import Preload

DISK = {
    "write_eio": (5, 50, 300),
    "write_enospc": (5, 50, 1000),
    "write_short": (50, 500),
    "open_emfile": (20, 300),
    "read_eio": (20, 300),
    "sync_eio": (5, 50),
    "delay": (100, 1000),
}
"""Kinds of faults of the preloaded library, and in how many of a thousand calls they happen."""

CLOCK_SECONDS = 8 * 3600
"""So far the clock jumps at most, either way: uploads that no message names are kept for a day."""


class Faults:
    """Random faults, counted by kind."""

    def __init__(self, dice: random.Random, preload: Preload | None) -> None:
        self.counts: Counter[str] = Counter()
        self.scarce_memory = False
        """Whether the gateway of this life was short of memory: then it may end in any way."""
        self.fatal = False
        """Whether the gateway of this life may end by itself: a sync failed, or nothing could be opened."""
        self._dice = dice
        self._preload = preload

    def begin_life(self) -> None:
        """Forget what may excuse the end of the gateway before."""
        self.scarce_memory = self.fatal = False

    def begin_start(self) -> None:
        """Disturb a start, now and then."""
        if self._preload is not None and self._dice.random() < 0.25:
            kind = self._dice.choice(["write_eio", "write_enospc", "open_emfile", "read_eio", "sync_eio", "delay"])
            self._preload.set(kind, self._dice.choice(DISK[kind]), delay=0.02)
            self.fatal = True
            self.counts["start with a fault"] += 1

    def calm(self) -> None:
        """End the faults of the library."""
        if self._preload is not None:
            self._preload.clear()

    async def disturb(self, gateway: GatewayProcess) -> None:
        """Let one fault last for a moment."""
        seconds = self._dice.choice([0.05, 0.3, 1.0, 2.0])
        weights = {"pause": 20, "descriptors": 15, "memory": 3, "nothing": 10}
        if self._preload is not None:
            weights |= {"disk": 50, "clock": 10}
        (kind,) = self._dice.choices([*weights], [*weights.values()])
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            match kind:
                case "pause":
                    await self._pause(gateway, seconds)
                case "descriptors":
                    used = len(os.listdir(f"/proc/{gateway.process.pid}/fd"))
                    await self._limit(gateway, resource.RLIMIT_NOFILE, used + self._dice.randrange(8), seconds)
                case "memory":
                    self.scarce_memory = True
                    pages = int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[0])
                    room = self._dice.choice([0, 1, 16, 64]) * 2**20
                    await self._limit(gateway, resource.RLIMIT_AS, pages * resource.getpagesize() + room, seconds)
                case "disk":
                    await self._disk(seconds)
                    return
                case "clock":
                    assert self._preload is not None
                    self._preload.set_clock(self._dice.randint(-CLOCK_SECONDS, CLOCK_SECONDS))
                case _:
                    await asyncio.sleep(seconds)
                    return
            self.counts[kind] += 1

    async def _pause(self, gateway: GatewayProcess, seconds: float) -> None:
        os.kill(gateway.process.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(gateway.process.pid, signal.SIGCONT)

    async def _limit(self, gateway: GatewayProcess, what: int, value: int, seconds: float) -> None:
        pid = gateway.process.pid
        before = resource.prlimit(pid, what)
        resource.prlimit(pid, what, (value, before[1]))
        try:
            await asyncio.sleep(seconds)
        finally:
            resource.prlimit(pid, what, before)

    async def _disk(self, seconds: float) -> None:
        assert self._preload is not None
        kind = self._dice.choice([*DISK])
        self.fatal = self.fatal or kind in ("sync_eio", "write_eio")  # a cut that fails is fatal as well
        self._preload.set(kind, self._dice.choice(DISK[kind]), delay=self._dice.choice([0.001, 0.02, 0.2]))
        try:
            await asyncio.sleep(seconds)
        finally:
            self._preload.set(kind, 0)


def strace_options(dice: random.Random) -> list[str]:
    """Return options of strace that fail or slow down calls of a whole life, for a machine without a compiler."""
    if shutil.which("strace") is None or dice.random() < 0.3:
        return []
    first, step = dice.randrange(20, 200), dice.randrange(20, 200)
    call, fault = dice.choice(
        [
            ("pwrite64", "error=EIO"),
            ("pwrite64", "error=ENOSPC"),
            ("fdatasync", "error=EIO"),
            ("fdatasync", "delay_enter=20000"),
        ]
    )
    return ["-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={first}+{step}"]
