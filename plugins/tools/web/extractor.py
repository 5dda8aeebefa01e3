"""The extraction process as seen by the gateway: started for the first page, limited in time, ended when idle."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path

import msgspec

# As a file, without its folder on the module path (-P), whose modules would hide libraries.
COMMAND = (sys.executable, "-P", str(Path(__file__).with_name("html_extraction.py")))

SECONDS = 20.0
"""The time limit of a page."""
IDLE_SECONDS = 60.0
"""The process ends when it was not used for so long."""
MAX_ANSWER = 32 * 1024 * 1024
"""The maximum length of an answer in bytes."""

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")


class Extracted(msgspec.Struct, frozen=True, kw_only=True):
    """A page: its title, its text in Markdown with numbered links, and their URLs."""

    title: str
    text: str
    links: tuple[str, ...]


class ExtractionFailed(Exception):
    """A page could not be converted; the process was ended."""


class Extractor:
    """Converts pages, one at a time. `close` ends the process."""

    def __init__(self, command: tuple[str, ...] = COMMAND, *, seconds: float = SECONDS, idle: float = IDLE_SECONDS) -> None:
        self._command = command
        self._seconds = seconds
        self._idle_seconds = idle
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._killed: Process | None = None
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The process, None if none runs."""
        return None if self._process is None else self._process.pid

    async def extract(self, body: bytes, *, charset: str, url: str, whole: bool) -> Extracted:
        """Convert a page.

        Args:
            body: The page.
            charset: What the server said about its encoding, or "".
            url: Its address, to which links are relative.
            whole: Keep what is around the main content.

        Raises:
            ExtractionFailed: It took too long or too much memory, or the process cannot be started.
        """
        request = {"bytes": len(body), "charset": charset, "url": url, "whole": whole}
        async with self._turn:
            if self._idle is not None:
                self._idle.cancel()
            finished = False
            try:
                async with asyncio.timeout(self._seconds):
                    answer = await self._ask(await self._running(), msgspec.json.encode(request) + b"\n", body)
                finished = True
            except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
                raise ExtractionFailed from error
            finally:
                if finished:
                    self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._kill)
                else:  # what it would still send belongs to this page
                    self._kill()
        return answer

    async def close(self) -> None:
        """End the process and wait for its exit."""
        if self._idle is not None:
            self._idle.cancel()
        self._kill()
        await self._reap()

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            await self._reap()
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                # Neither keys nor the terminal's Ctrl-C reach it.
                env={name: os.environ[name] for name in _INHERITED if name in os.environ},
                start_new_session=True,
            )
        return self._process

    async def _ask(self, process: Process, request: bytes, body: bytes) -> Extracted:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        process.stdin.write(body)
        await process.stdin.drain()
        length = int(await process.stdout.readuntil())
        if not 0 < length <= MAX_ANSWER:
            raise ValueError(length)
        answer = await process.stdout.readexactly(length)
        return await asyncio.to_thread(msgspec.json.decode, answer, type=Extracted)

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._killed = process
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    async def _reap(self) -> None:
        if self._killed is not None:
            # Reads what is left in the pipe: while it is full, asyncio does not notice the exit.
            await self._killed.communicate()
            self._killed = None
