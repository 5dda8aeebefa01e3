"""Processor time of a process that measures and nothing else, and what it says of it, line by line."""

from __future__ import annotations

import gc
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

ROOT = Path(__file__).parents[2]

REFERENCE = 0.01
"""Seconds of processor time that `_reference` takes on an otherwise idle machine."""

SECONDS = 400
"""Processor time that a measuring process may take: several times what it needs."""


class _Late(BaseException):
    pass


def _late(number: int, frame: FrameType | None) -> None:
    raise _Late


def interrupting() -> None:
    """Have this process interrupt what takes longer than `processor_time` allows, where Python can be interrupted.

    Garbage is collected only between functions: one collection over all modules takes longer than a short text may.
    """
    gc.disable()
    signal.signal(signal.SIGPROF, _late)


def processor_time(function: Callable[[Any], object], text: Any, limit: float) -> float:
    """Return the seconds that a call takes of this thread on an otherwise idle machine, infinity if they are more than
    allowed.

    The thread's clock is exact. The clock of the process advances by whole ticks of the scheduler while the timer is set.
    Where cores are shared, the same work takes several times as much processor time; what takes more than `limit` is
    divided by how many times as long a piece of work of known length takes just after it.
    """
    signal.setitimer(signal.ITIMER_PROF, 4 * limit)
    begun = time.thread_time()
    try:
        try:
            function(text)
        finally:
            taken = time.thread_time() - begun
            signal.setitimer(signal.ITIMER_PROF, 0)
    except _Late:  # also just after the call, before the timer was stopped
        signal.setitimer(signal.ITIMER_PROF, 0)
        return float("inf")
    return taken if taken <= limit else taken / _slowdown()


def _slowdown() -> float:
    """Return how many times as long as on an idle machine this thread takes for the same work now, at least 1."""
    begun = time.thread_time()
    _reference()
    return max(1.0, (time.thread_time() - begun) / REFERENCE)


def _reference() -> int:
    return len({f"{number:x}" for number in range(60_000)})


Ladder: TypeAlias = Sequence[tuple[int, float, int]]
"""Characters, the seconds of processor time they may take, and how many of the slowest texts are tried with more."""


def too_slow(
    function: Callable[[Any], object],
    texts: Sequence[Callable[[int], Any]],
    ladder: Ladder,
    refusals: tuple[type[Exception], ...] = (),
) -> tuple[int, int] | None:
    """Return a size and the index of a text of this size that takes too long, None if there is none. A text for which the
    function raises one of `refusals` is left out.

    With the largest size only those texts are tried that could take too long, judged by how their time grew between the two
    sizes before: four times as much as a power of the size would take, since a part that grows faster may still be small.
    """
    before, times, kept = dict[int, float](), dict[int, float](), list(range(len(texts)))
    for size, seconds, most in ladder:
        if not most:
            kept = [at for at in kept if 4 * times[at] ** 2 > seconds * before[at]]
        before, times = times, {}
        for at in kept:
            try:
                times[at] = processor_time(function, texts[at](size), seconds)
            except RecursionError:
                return size, at
            except refusals:
                continue
            if times[at] > seconds:
                return size, at
        kept = sorted(times, key=times.__getitem__, reverse=True)[:most]
    return None


def write(line: str) -> None:
    """Say a line to whoever started this process."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def measured(module: str, package: str, given: bytes = b"") -> tuple[list[str], list[str]]:
    """Run a measuring module as a process; return its lines that begin with `tried` and with `refused`."""
    done = subprocess.run(
        [sys.executable, "-m", module, package],
        cwd=ROOT,
        input=given,
        capture_output=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )
    lines = done.stdout.decode().splitlines()
    assert lines[-1:] == ["done"], (done.returncode, lines[-1:], done.stderr[-2000:].decode())
    return [line for line in lines if line.startswith("tried ")], [line for line in lines if line.startswith("refused ")]
