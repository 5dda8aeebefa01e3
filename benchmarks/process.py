"""Resource usage of processes from /proc (Linux), and server processes that print their port."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The root of the checkout, the working directory of all processes."""

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process in seconds, with the resolution of a clock tick (usually 10 ms)."""
    user, system = _after_name(pid)[11:13]
    return (int(user) + int(system)) / _TICKS


def await_rest(pid: int) -> None:
    """Wait until a process has used no processor time for half a second."""
    spent, quiet = cpu_seconds(pid), 0
    while quiet < 5:
        time.sleep(0.1)
        now = cpu_seconds(pid)
        spent, quiet = now, quiet + 1 if now == spent else 0


def resident_mb(pid: int) -> float:
    """Return the resident memory (VmRSS) of a process and its descendants in units of 10^6 bytes."""
    return sum(_resident(each) for each in [pid, *descendants(pid)]) / 1e6


def file_system(path: Path) -> str:
    """Return the type of the file system of `path`, such as `ext4`."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    holding = [(mount, kind) for _, mount, kind, *_ in mounts if path.resolve().is_relative_to(mount)]
    return max(holding, key=lambda found: len(found[0]), default=("", "unknown"))[1]


@contextmanager
def serving(module: str) -> Iterator[tuple[int, int]]:
    """Run a server module of this package and yield its pid and port."""
    command = [sys.executable, "-m", f"benchmarks.{module}"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:  # it has ended in the meantime
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes that a process has started, and of those that they have."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                children.setdefault(int(_after_name(int(folder.name))[1]), []).append(int(folder.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, []))
    return found[1:]


def _after_name(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain spaces and parentheses."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
