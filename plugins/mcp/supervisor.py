"""Runs a server as a child and ends it, with everything that it started, when the gateway is gone.

`python -I -S supervisor.py LIFELINE PROGRAM ARGUMENT…`; LIFELINE is the reading end of a pipe whose other end only the
gateway holds. It reports the end of the gateway even if that was killed. The server inherits the standard streams. A program
that leaves its process group, or whose parent ended, stays a descendant of this process (Linux): it is found and killed.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

GRACE_SECONDS = 1.0
"""Seconds that a server has to end by itself after the end of its input."""

KILL_SECONDS = 5.0
"""Seconds for which descendants are looked for and killed; one that is stuck in the kernel stays."""


def main(lifeline: int, command: list[str]) -> int:
    """Run the command until it ends or the lifeline breaks; return its exit code, 128 plus the number for a signal."""
    prctl = _prctl()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    own = os.getpid()
    server = os.fork()
    if server == 0:
        _become(command, own, prctl)
    for stream in (0, 1):  # the server's alone, so that it and the gateway see the other's end
        os.close(stream)
    code: int | None = None
    stopping: float | None = None
    while code is None:
        rest = None if stopping is None else max(0.0, stopping - time.monotonic())
        ready = select.select([woken, *([lifeline] if stopping is None else [])], [], [], rest)[0]
        signals = os.read(woken, 4096) if woken in ready else b""
        asked = lifeline in ready or any(number in signals for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        if asked and stopping is None:
            stopping = time.monotonic() + GRACE_SECONDS
            _signal(server, signal.SIGTERM)
        elif stopping is not None and time.monotonic() >= stopping:
            _signal(server, signal.SIGKILL)
            stopping = time.monotonic() + GRACE_SECONDS
        code = _reap(server)
    _end_descendants()
    return code


def _prctl() -> Callable[..., object]:
    try:
        call: Callable[..., object] = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):  # not Linux
        return lambda *_: 0
    return call


def _become(command: list[str], parent: int, prctl: Callable[..., object]) -> None:
    """Turn the new process into the server, which dies with its parent."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, 256)
        os.execvp(command[0], command)  # noqa: S606 - what the operator configured
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def _reap(server: int) -> int | None:
    """Collect ended children; return the server's exit code if it is among them."""
    found: int | None = None
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0 if found is None else found
        if child == 0:
            return found
        if child == server:
            ended = os.waitstatus_to_exitcode(status)
            found = ended if ended >= 0 else 128 - ended


def _end_descendants() -> None:
    """Kill all that is left of the server. Orphans become children of this process, so none can hide by forking."""
    until = time.monotonic() + KILL_SECONDS
    while time.monotonic() < until:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for child in _children():
            _signal(child, signal.SIGKILL)
        time.sleep(0.005)


def _children() -> list[int]:
    """Return the processes whose parent this is; none where there is no /proc."""
    own, found = os.getpid(), []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    # The name of the program, in parentheses, may contain anything.
                    parent = int(stat.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if parent == own:
                found.append(int(name))
    return found


def _signal(process: int, number: int) -> None:
    with suppress(OSError):
        os.kill(process, number)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
