"""A watchdog thread for the event loop, and a bounded shutdown.

The thread detects a blocked event loop, names the plugin whose code blocks it, and ends the process after a limit.

A service manager then restarts the gateway, which skips that plugin. Code that runs in the loop cannot be stopped from
another thread. A plugin that holds the interpreter lock, as a runaway regular expression does, stops this thread as well;
then faulthandler, which does not need the interpreter, dumps all stacks and ends the process.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

import msgspec
import structlog

from gateway.support.small_files import read_at_most

TICK = 0.25
"""Seconds between two heartbeats of the loop, and between two checks."""

REPORTED = 1.0
"""Seconds of a blocked loop that are reported."""

FRESH = 600.0
"""Seconds for which `/status` shows a report."""

MARGIN = 10.0
"""Seconds after the limit at which faulthandler ends the process if this thread could not."""

SHUTDOWN_SECONDS = 3.0
"""Seconds that the process has to exit in an orderly way."""

_LONGEST = 64 * 1024
"""Bytes of the file that names the plugin."""

log = structlog.get_logger("exuvia.plugins")


class LoopBlocked(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's code that blocked the event loop: for how many seconds, and where."""

    plugin: str
    seconds: float
    where: str

    def sentence(self) -> str:
        """Return the report for people."""
        return f"The plugin {self.plugin!r} blocked the event loop for {self.seconds:.1f} s, in {self.where}."


class Watchdog:
    """Watches the running loop inside `awake`.

    `packages` returns the third-party plugins by the package of their code, `limit` is the seconds after which the process
    is ended (0: never), and `file` is where the next start finds the plugin at fault.
    """

    def __init__(
        self,
        packages: Callable[[], Mapping[str, str]],
        *,
        limit: float,
        file: Path,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._packages = packages
        self._limit = limit
        self._file = file
        self._end = end
        self._beats = 0
        self._over = threading.Event()
        self._loop_thread = 0
        self._reports: list[tuple[float, LoopBlocked]] = []

    def problems(self) -> list[str]:
        """Return the recent reports, as sentences."""
        now = monotonic()
        self._reports = [(when, blocked) for when, blocked in self._reports if now - when < FRESH]
        return [blocked.sentence() for _, blocked in self._reports[-3:]]

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Watch the current event loop while the block runs."""
        loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()

        timers: list[asyncio.TimerHandle] = []

        def beat() -> None:
            self._beats += 1
            timers[:] = [loop.call_later(TICK, beat)]

        beat()
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            timers[0].cancel()
            thread.join()
            faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        seen, still, blocked = self._beats, 0.0, None
        while not self._over.wait(TICK):
            # Counted in checks: while the whole process is suspended, as by a closed laptop lid, nothing blocks the loop.
            if self._beats == seen:
                still += TICK
            else:
                if blocked is not None:
                    self._report(blocked)
                seen, still, blocked = self._beats, 0.0, None
                self._arm()
            if still >= REPORTED:
                blocked = self._locate(still) or blocked
            if self._limit and still >= self._limit:
                self._give_up(blocked, still)
                return

    def _arm(self) -> None:
        if self._limit:
            with suppress(OSError, RuntimeError, ValueError):  # stderr may not be a file
                faulthandler.dump_traceback_later(self._limit + MARGIN, exit=True)

    def _locate(self, seconds: float) -> LoopBlocked | None:
        """Return the plugin whose code the loop's thread runs, or else a thread that was started for a plugin."""
        frames, packages = current_frames(), self._packages()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        if (frame := frames.get(self._loop_thread)) is not None and (place := _innermost(frame, packages)) is not None:
            return LoopBlocked(plugin=place[0], seconds=seconds, where=place[1])
        for ident, name in names.items():
            if name.startswith("plugin:") and ident in frames and (place := _innermost(frames[ident], packages)):
                return LoopBlocked(plugin=place[0], seconds=seconds, where=place[1])
        return None

    def _report(self, blocked: LoopBlocked) -> None:
        self._reports.append((monotonic(), blocked))
        log.error("plugin_held_up_everything", plugin=blocked.plugin, seconds=blocked.seconds, where=blocked.where)

    def _give_up(self, blocked: LoopBlocked | None, seconds: float) -> None:
        """End the process, and name the plugin for the next start."""
        if blocked is None:
            log.critical("event_loop_stands_still", seconds=seconds)
        else:
            log.critical(
                "plugin_held_up_everything", plugin=blocked.plugin, seconds=blocked.seconds, where=blocked.where, ends=True
            )
            with suppress(OSError):
                self._file.write_bytes(msgspec.json.encode(blocked))
        self._end(1)


def read_last_block(file: Path) -> LoopBlocked | None:
    """Return the report of the process that was ended last, and delete it."""
    try:
        found = msgspec.json.decode(read_at_most(file, _LONGEST) or b"", type=LoopBlocked)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeError):
        found = None
    with suppress(OSError):
        file.unlink()
    return found


def current_frames() -> dict[int, FrameType]:
    """Return the frame of each thread by its identifier.

    No garbage is collected meanwhile. In Python 3.11, a finalizer could let another thread run while the interpreter holds
    its list of threads; if that thread starts one, both wait for ever (python/cpython#106883).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def _innermost(frame: FrameType | None, packages: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the innermost plugin in a stack, and the place in its code."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if (plugin := packages.get(module.partition(".")[0])) is not None:
            code = frame.f_code
            return plugin, f"{code.co_filename}, line {frame.f_lineno} ({code.co_name})"
        frame = frame.f_back
    return None


# --- shutdown ---------------------------------------------------------------------------------------------------------


def exit_within(code: int, *, seconds: float = SHUTDOWN_SECONDS) -> None:
    """End the process with this exit code after `seconds`, unless it ended before; what kept it is written to stderr.

    A task that swallows its cancellation, a blocked thread or an exit function that never returns would otherwise keep the
    process alive until the service manager kills it.
    """
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    threading.Thread(target=_end, args=(code, seconds, left), name="ending", daemon=True).start()


def _end(code: int, seconds: float, tasks: list[str]) -> None:
    sleep(seconds)
    own = {threading.current_thread(), threading.main_thread()}
    threads = [thread.name for thread in threading.enumerate() if thread not in own and not thread.daemon]
    kept = "; ".join(f"{what} {', '.join(names[:5])}" for what, names in (("threads", threads), ("tasks", tasks)) if names)
    sys.stderr.write(f"exuvia: Forced exit: a plugin kept the process alive for {seconds:g} s ({kept or 'unknown'}).\n")
    sys.stderr.flush()
    os._exit(code)
