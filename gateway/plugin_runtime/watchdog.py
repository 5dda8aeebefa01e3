"""Who holds up the event loop: a thread looks whether it goes on, names the plugin whose code it stands in, and ends the
gateway when that takes too long. A service manager starts it again, and the plugin is left out of that start.

No thread can do more: what runs in the loop cannot be stopped from outside. A plugin that holds the interpreter itself (a
regular expression without end) stops this thread too; then faulthandler's, which needs no interpreter, writes where every
thread stands and ends the process.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from types import FrameType

import msgspec
import structlog

from gateway.support.small_files import read_at_most

TICK = 0.25
"""Seconds between two beats of the loop, and between two looks at them."""

NOTED = 1.0
"""So long the loop must stand still to be worth a word."""

FRESH = 600.0
"""Seconds for which that is told in `/status`."""

MARGIN = 10.0
"""Seconds after its own time at which faulthandler ends what this thread could not end."""

_LONGEST = 64 * 1024
"""Bytes of the word that is left."""

log = structlog.get_logger("exuvia.plugins")


class LoopBlocked(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's code in which the event loop stood still: for how many seconds, and where, for its author."""

    plugin: str
    seconds: float
    where: str

    def sentence(self) -> str:
        """It, for people."""
        return f"The plugin {self.plugin!r} held everything up for {self.seconds:.1f} s, in {self.where}."


class Watchdog:
    """Watches the running loop while `awake`. `strangers` has the plugins by the package of their code, `limit` is after how
    many seconds the process is ended (0: never), and `file` is where the next start finds who was at fault."""

    def __init__(
        self,
        strangers: Callable[[], Mapping[str, str]],
        *,
        limit: float,
        file: Path,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._strangers = strangers
        self._limit = limit
        self._file = file
        self._end = end
        self._beats = 0
        self._over = threading.Event()
        self._loop_thread = 0
        self._told: list[tuple[float, LoopBlocked]] = []

    def troubles(self) -> list[str]:
        """Who held everything up lately, as sentences."""
        now = monotonic()
        self._told = [(when, held) for when, held in self._told if now - when < FRESH]
        return [held.sentence() for _, held in self._told[-3:]]

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Watch the loop that runs this, while the block does."""
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
        seen, still, held = self._beats, 0.0, None
        while not self._over.wait(TICK):
            # Counted by its own looks: a process that was stopped as a whole, as by a laptop's lid, was held up by nobody.
            if self._beats == seen:
                still += TICK
            else:
                if held is not None:
                    self._note(held)
                seen, still, held = self._beats, 0.0, None
                self._arm()
            if still >= NOTED:
                held = self._found(still) or held
            if self._limit and still >= self._limit:
                self._give_up(held, still)
                return

    def _arm(self) -> None:
        if self._limit:
            with suppress(OSError, RuntimeError, ValueError):  # where stderr is no file there is nothing to write to
                faulthandler.dump_traceback_later(self._limit + MARGIN, exit=True)

    def _found(self, seconds: float) -> LoopBlocked | None:
        """In whose code the loop stands, or else a thread that was begun for a plugin's."""
        frames, strangers = sys._current_frames(), self._strangers()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        if (frame := frames.get(self._loop_thread)) is not None and (place := _innermost(frame, strangers)) is not None:
            return LoopBlocked(plugin=place[0], seconds=seconds, where=place[1])
        for ident, name in names.items():
            if name.startswith("plugin:") and ident in frames and (place := _innermost(frames[ident], strangers)):
                return LoopBlocked(plugin=place[0], seconds=seconds, where=place[1])
        return None

    def _note(self, held: LoopBlocked) -> None:
        self._told.append((monotonic(), held))
        log.error("plugin_held_up_everything", plugin=held.plugin, seconds=held.seconds, where=held.where)

    def _give_up(self, held: LoopBlocked | None, seconds: float) -> None:
        """End the process, and leave word for the next one."""
        if held is None:
            log.critical("event_loop_stands_still", seconds=seconds)
        else:
            log.critical("plugin_held_up_everything", plugin=held.plugin, seconds=held.seconds, where=held.where, ends=True)
            with suppress(OSError):
                self._file.write_bytes(msgspec.json.encode(held))
        self._end(1)


def last_held_up(file: Path) -> LoopBlocked | None:
    """Who made the last process end; asked once, for the file is gone then."""
    try:
        found = msgspec.json.decode(read_at_most(file, _LONGEST) or b"", type=LoopBlocked)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeError):
        found = None
    with suppress(OSError):
        file.unlink()
    return found


def _innermost(frame: FrameType | None, strangers: Mapping[str, str]) -> tuple[str, str] | None:
    """The plugin in whose code a stack stands, and the place there."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if (plugin := strangers.get(module.partition(".")[0])) is not None:
            code = frame.f_code
            return plugin, f"{code.co_filename}, line {frame.f_lineno} ({code.co_name})"
        frame = frame.f_back
    return None
