"""What a process uses, from /proc (Linux), and processes of our own that tell their port."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout, from which all processes are started."""

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process so far, in seconds, in steps of a clock tick (10 ms on most systems)."""
    user, system = _after_name(pid)[11:13]
    return (int(user) + int(system)) / _TICKS


def await_rest(pid: int) -> None:
    """Return once a process has used no processor time for half a second."""
    spent, quiet = cpu_seconds(pid), 0
    while quiet < 5:
        time.sleep(0.1)
        now = cpu_seconds(pid)
        spent, quiet = now, quiet + 1 if now == spent else 0


def resident_mb(pid: int) -> float:
    """Resident memory (VmRSS) of a process and of all its descendants, in MB of a million bytes."""
    return sum(_resident(each) for each in [pid, *_descendants(pid)]) / 1e6


def file_system(path: Path) -> str:
    """The type of the file system that holds `path`, such as `ext4`."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    holding = [(mount, kind) for _, mount, kind, *_ in mounts if path.resolve().is_relative_to(mount)]
    return max(holding, key=lambda found: len(found[0]), default=("", "unknown"))[1]


@contextmanager
def serving(module: str) -> Iterator[tuple[int, int]]:
    """Run one of this package's servers until the end of the block; gives its pid and the port that it printed."""
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
    except FileNotFoundError:  # it ended between the listing and the reading
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def _descendants(pid: int) -> list[int]:
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
    """The fields of /proc/PID/stat from the state on; the name before them may hold spaces and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
