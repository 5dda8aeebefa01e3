"""A run: gateways that are disturbed, ended and started again while clients use them, and the check of what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.ports import free_port
from tests.faults.gateway_process import ROOT, GatewayProcess, install_tool, start_process, verify
from tests.torture import clients
from tests.torture.checker import check, is_finished
from tests.torture.clients import Shared, TortureClient
from tests.torture.faults import Faults, strace_options
from tests.torture.history import History, read_journals
from tests.torture.power import lose_unsynced
from tests.torture.preload import Preload, compiler

CLIENTS = 3

STAMP: dict[str, Any] = {"tool": "stamp", "arguments": {}}
READ: dict[str, Any] = {"tool": "read", "arguments": {"path": "."}}
STORY: list[dict[str, Any]] = [
    {"text": "", "calls": [STAMP]},
    {"text": "It is stamped.", "deltas": 3, "delay_ms": 5},
    {"text": "A short answer."},
    {"text": "One moment.", "calls": [READ, STAMP, STAMP]},
    {"text": "That is done, " + "and told at some length " * 40, "deltas": 20, "delay_ms": 5},
    {"error": "unreachable", "retry_after": 0.01},
    {"text": "A story that is cut", "error": "stream_cut"},
    {"text": "A slow answer.", "deltas": 5, "delay_ms": 60},
]
SCRIPT = [
    {"purpose": "summary", "text": "A summary of what was said."},
    {"purpose": "flush", "text": "Nothing to note."},
    *STORY * 100,
    {"text": "The story is over."},
]
SETTINGS: dict[str, Any] = {
    "sessions.queue_limit": 30,
    "gateway.stop_within": "0.5s",
    "compaction.keep_recent_tokens": 500,
    "memory.embedding.provider": "none",
    "memory.facts.auto_extract": False,
}

END_SECONDS = 150.0
"""Time for the last gateway to answer everything, and for one without faults to be ready. Only a fault takes this long."""


class Run:
    """One run in `folder`, which gets the home, the workspace, the gateways' log and what the library writes."""

    def __init__(self, folder: Path, seed: int, seconds: float) -> None:
        self.history = History()
        self.lives = 0
        self.ends: dict[str, int] = {}
        self.injected: dict[str, int] = {}
        """The calls that the library failed or delayed, by kind."""
        self.faults: Faults
        self.home = folder / "home"
        self._folder = folder
        self._seed = seed
        self._seconds = seconds
        self._dice = random.Random(f"{seed} lives")
        self._shared = Shared(free_port(), self.history)
        self._preload: Preload | None = None
        self._was_ready = True

    async def run(self) -> list[str]:
        """Return what is wrong."""
        install_tool(self._folder / "plugin")
        self.home.mkdir(parents=True, exist_ok=True)
        async with contextlib.AsyncExitStack() as stack:
            if compiler():
                preload = Preload(self._folder, self.home, random.Random(f"{self._seed} disk"))
                self._preload = stack.enter_context(preload)
            self.faults = Faults(random.Random(f"{self._seed} faults"), self._preload)
            http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
            people = [
                TortureClient(f"c{number}", self._shared, http, random.Random(f"{self._seed} client {number}"))
                for number in range(CLIENTS)
            ]
            until = time.monotonic() + self._seconds
            using = [asyncio.create_task(person.run(0.01)) for person in people]
            try:
                while time.monotonic() < until and not any(task.done() for task in using):
                    await self._live(http, until)
            finally:
                for task in using:
                    task.cancel()
                for outcome in await asyncio.gather(*using, return_exceptions=True):
                    if isinstance(outcome, Exception):
                        raise outcome
            await self._end(http, people)
            self.injected = self._preload.injected() if self._preload is not None else {}
        return check(self.history, read_journals(self.home))

    # --- a life -------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _gateway(self) -> AsyncIterator[GatewayProcess]:
        self.lives += 1
        settings = {f"EXUVIA__{k.upper().replace('.', '__')}": json.dumps(v) for k, v in SETTINGS.items()}
        settings |= {"EXUVIA__AGENT__CONTEXT_WINDOWS": '{"scripted:script" = 16000}'}
        settings |= {"EXUVIA__AGENT__WORKSPACE": json.dumps(str(self._folder / "workspace")), "STAMP_SECONDS": "0.05"}
        settings["PYTHONFAULTHANDLER"] = "1"  # a crash of the interpreter says where it was
        settings |= self._preload.environment() if self._preload is not None else {}
        disturbed = [] if self._preload is not None else strace_options(self._dice)
        gateway = await start_process(
            self.home,
            script=SCRIPT,
            settings=settings,
            path=self._folder / "plugin",
            port=self._shared.port,
            faults=disturbed,
        )
        try:
            yield gateway
        finally:
            await gateway.kill()
            self._read_log(gateway)

    async def _live(self, http: aiohttp.ClientSession, until: float) -> None:
        self.faults.begin_life()
        self.faults.begin_start()
        self._was_ready = True
        async with self._gateway() as gateway:
            if self._dice.random() < 0.1:
                await asyncio.sleep(self._dice.uniform(0, 1.5))
                await self._kill(gateway)
                return
            if not await self._ready(gateway, http):
                return
            self.faults.calm()
            end = min(until, time.monotonic() + self._dice.choice([0.2, 1, 3, 6, 10]))
            while time.monotonic() < end and gateway.process.returncode is None:
                await self.faults.disturb(gateway)
            if gateway.process.returncode is not None:
                self._ended(gateway, "by itself")
            elif self._dice.random() < 0.3:
                await self._stop(gateway)
            else:
                await self._kill(gateway)

    async def _ready(self, gateway: GatewayProcess, http: aiohttp.ClientSession) -> bool:
        try:
            await gateway.ready(http, 5 if self.faults.fatal else END_SECONDS)
        except AssertionError:
            self._ended(gateway, "at its start")
            return False
        except TimeoutError:
            self.faults.calm()
            self._was_ready = False
            if not self.faults.fatal:
                self.history.findings.append(f"stuck: gateway {self.lives} was not ready in {END_SECONDS:.0f} s")
        return True

    async def _kill(self, gateway: GatewayProcess) -> None:
        """Kill the gateway, half of the times as a power failure does."""
        if gateway.process.returncode is not None:
            self._ended(gateway, "by itself")
            return
        await gateway.kill()
        self.faults.calm()
        if self._preload is not None and self._dice.random() < 0.5:
            self._count("power failure")
            self.faults.counts["files cut by power failures"] += lose_unsynced(self._preload.log, self._dice)
        else:
            self._count("kill")

    async def _stop(self, gateway: GatewayProcess) -> None:
        self.faults.calm()
        try:
            await gateway.stop()
        except TimeoutError:
            self.history.findings.append(f"stuck: gateway {self.lives} did not stop")
            return
        self._ended(gateway, "stop")

    def _ended(self, gateway: GatewayProcess, how: str) -> None:
        """Judge a gateway that was not killed by its exit code."""
        self.faults.calm()
        code = gateway.process.returncode
        self._count(f"{how}, exit code {code}")
        expected = {0} if how == "stop" else set()
        if self.faults.fatal:
            expected |= {1, 2}
        if how == "stop" and (self.faults.fatal or not self._was_ready):
            expected |= {-signal.SIGTERM}  # before it listened to signals, or when it was ending already
        if code in expected or self.faults.scarce_memory:
            return
        self.history.findings.append(f"ended: gateway {self.lives} ended {how} with exit code {code}")

    def _count(self, end: str) -> None:
        self.ends[end] = self.ends.get(end, 0) + 1

    def _read_log(self, gateway: GatewayProcess) -> None:
        text = gateway.log.read_text("utf-8", "replace")
        with (self._folder / "gateways.log").open("a") as file:
            file.write(f"--- gateway {self.lives}\n{text}")
        if "Traceback" in text and not self.faults.scarce_memory:
            self.history.findings.append(f"traceback: the log of gateway {self.lives} has one")

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _end(self, http: aiohttp.ClientSession, people: list[TortureClient]) -> None:
        """Have everything answered, shown to everybody, and stopped; then verify it."""
        self.faults.begin_life()
        async with self._gateway() as gateway:
            await gateway.ready(http, END_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    while not is_finished(read_journals(self.home)):
                        await asyncio.sleep(0.2)
            heads = self.history.heads = {journal.session: len(journal.events) for journal in read_journals(self.home)}
            for person in people:
                try:
                    async with asyncio.timeout(END_SECONDS):
                        await person.catch_up(heads)
                except (TimeoutError, ConnectionError):
                    self.history.findings.append(f"gap: {person.name} was not given all events at the end")
            await clients.collect(self._shared, http)
            await self._stop(gateway)
        if await verify(self.home) != 0:
            self.history.findings.append("damaged: `exuvia sessions verify` finds something wrong")
        await self._compare_catalog()
        stamps = self._folder / "workspace" / "stamps"
        self.history.stamps = stamps.read_text().splitlines() if stamps.exists() else []

    async def _compare_catalog(self) -> None:
        """The catalog says what one says that is made anew from the journals."""
        before = await self._list()
        (self.home / "catalog.sqlite").unlink(missing_ok=True)
        if (after := await self._list()) != before:
            different = [row for row in before if row not in after] + [row for row in after if row not in before]
            self.history.findings.append(f"catalog: made anew it differs in {different[:4]}")

    async def _list(self) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "exuvia", "sessions", "list", "--json", "--home", str(self.home)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        listed: list[dict[str, Any]] = json.loads(output or b"[]")
        return listed
