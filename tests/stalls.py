"""The longest stalls of the event loop under the tests: how long one callback kept everything else waiting, and where.

Each callback is timed, and a thread notes where the loop stands once one has taken long. What is no fault of the callback is
left out: the time for which the system gave the processor to somebody else, as far as it says so (Linux), and collections of
garbage, of which a process that holds a whole test run has far more than a gateway. The ten longest are printed at the end
of every run, those of all workers together.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter, thread_time
from types import FrameType
from typing import Any

import msgspec
import pytest

from gateway.plugin_runtime.watchdog import current_frames

NOTED = 0.05
"""Seconds from which a callback is a stall."""

EVERY = 0.02
"""Seconds between two looks at where the loop stands."""

SHOWN = 10
KEPT = 200
"""Stalls that one process keeps: the longest."""

ROOT = Path(__file__).parents[1]


class Stall(msgspec.Struct, frozen=True, order=True):
    """One callback: for how many seconds it ran or waited for something, for how many it computed, in which test, and where
    it stood."""

    seconds: float
    computed: float
    test: str
    where: str

    def line(self) -> str:
        """Describe it in one line."""
        return f"{self.seconds * 1000:6.0f} ms ({self.computed * 1000:.0f} ms computing)  {self.test}\n{'':10}{self.where}"


class Stalls:
    """The plugin of pytest; `found` are the stalls of this process and, at the end, of its workers."""

    def __init__(self) -> None:
        self.found: list[Stall] = []
        self._test = ""
        self._began = 0.0
        self._seen = (0.0, "")
        """When a callback began that was found running for long, and where it stood."""
        self._collecting = self._collected = 0.0
        """Seconds of processor time: when a collection began, and how long all of them took."""
        self._queued = 0.0
        """Seconds for which the main thread had waited for a processor when no callback was known to be long."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="stalls", daemon=True)
        self._run: Callable[[Any], None] = asyncio.Handle._run

    def start(self) -> None:
        """Time every callback of the main thread's loops from now on."""
        main, run = threading.main_thread().ident, self._run

        def timed(handle: asyncio.Handle) -> None:
            if threading.get_ident() != main:
                run(handle)
                return
            collected, computed, self._began = self._collected, thread_time(), perf_counter()
            try:
                run(handle)
            finally:
                began, self._began = self._began, 0.0
                if began and (seconds := perf_counter() - began) >= NOTED:
                    collected = self._collected - collected
                    self._note(began, seconds - collected, thread_time() - computed - collected, handle)

        gc.callbacks.append(self._collect)
        asyncio.Handle._run = timed  # type: ignore[assignment,method-assign]
        self._thread.start()

    def stop(self) -> None:
        """End that."""
        asyncio.Handle._run = self._run  # type: ignore[assignment,method-assign]
        gc.callbacks.remove(self._collect)
        self._over.set()
        self._thread.join()

    def _collect(self, phase: str, _: object) -> None:
        if threading.current_thread() is threading.main_thread():
            if phase == "start":
                self._collecting = thread_time()
            else:
                self._collected += thread_time() - self._collecting

    def _look(self) -> None:
        main = threading.main_thread().ident or 0
        while not self._over.wait(EVERY):
            if (began := self._began) and perf_counter() - began > NOTED / 2:
                self._seen = began, _place(current_frames().get(main))
            else:
                self._queued = _queued()

    def _note(self, began: float, seconds: float, computed: float, handle: asyncio.Handle) -> None:
        seconds = max(computed, seconds - (_queued() - self._queued))
        if seconds < NOTED:
            return
        # Where nothing was seen, what ran let no other thread run either.
        where = self._seen[1] if self._seen[0] == began else f"in C all the while: {handle!r}"[:300]
        self.found = sorted([*self.found, Stall(seconds, computed, self._test, where)], reverse=True)[:KEPT]

    # --- what pytest calls --------------------------------------------------------------------------------------------

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._test = nodeid

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended."""
        found = getattr(node, "workeroutput", {}).get("stalls", [])
        self.found = sorted([*self.found, *msgspec.convert(found, list[Stall])], reverse=True)[:KEPT]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The tests are done."""
        self.stop()
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["stalls"] = msgspec.to_builtins(self.found)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the longest."""
        if self.found:
            terminalreporter.section(
                f"longest stalls of the event loop ({len(self.found)} of {NOTED * 1000:.0f} ms or more)"
            )
            for stall in self.found[:SHOWN]:
                terminalreporter.write_line(stall.line())


def _queued() -> float:
    """Return the seconds for which the main thread has waited for a processor; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/schedstat").read_bytes().split()[1]) / 1e9
    return 0.0


def _place(frame: FrameType | None) -> str:
    """Describe a stack: the innermost call, and before it the innermost two of this project."""
    calls: list[tuple[Path, str]] = []
    while frame is not None and frame.f_code.co_name != "timed":
        path = Path(frame.f_code.co_filename)
        calls.append((path, f"{path.name}:{frame.f_lineno} {frame.f_code.co_name}"))
        frame = frame.f_back
    ours = [call for path, call in calls if path.is_relative_to(ROOT) and ".venv" not in path.parts]
    return " < ".join(_once([*(call for _, call in calls[:1]), *ours[:3]])) or "nowhere"


def _once(calls: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(calls))
