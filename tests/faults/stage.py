"""What the fault tests share: the writer's process, tools that hurt it, and what must be true of its journals afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.stored import stored
from tests.waiting import DEADLINE

NOT_ROOT = os.geteuid() != 0

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace, which makes system calls fail, is missing")


def writer(home: Path, *options: str, strace: Iterable[str] = (), log: Path | None = None) -> subprocess.Popen[str]:
    """Start the writer, under strace where it is given options; `log` receives strace's record."""
    for folder in ("sessions", "quarantine"):
        (home / folder).mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.faults.writer", str(home), *options]
    if strace:
        command = ["strace", "-f", "-qq", "-y", "-o", str(log or os.devnull), *strace, *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def said(process: subprocess.Popen[str]) -> list[str]:
    """All that the writer printed until it ended, which it must do well."""
    output, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    return output.splitlines()[1:]


def pid_of(process: subprocess.Popen[str]) -> int:
    """The writer's own process id, which under strace is not the one that was started."""
    assert process.stdout is not None
    return int(process.stdout.readline().removeprefix("pid "))


def journal_of(home: Path, name: str = "j0") -> Path:
    return home / "sessions" / f"{name}.jsonl"


def reported(lines: Iterable[str]) -> Counter[str]:
    """Count the events of each journal that were reported durable to the writer."""
    told: Counter[str] = Counter()
    for line in lines:
        word, name, *rest = line.split()
        if word == "durable":
            told[name] = max(told[name], int(rest[0]))
    return told


def check_nothing_reported_is_lost(home: Path, told: Counter[str]) -> None:
    """Each event that was reported durable stands in its journal exactly once, where it was written."""
    for name, count in told.items():
        path = journal_of(home, name)
        verified = stored(path).verify()
        assert verified.events >= count, f"{name} has {verified.events} events, and {count} were reported durable"
        texts = [line.split(b'"text":"')[1].split(b" ")[:2] for line in stored(path).lines(1, 10**9)]
        assert texts == [[name.encode(), b"%d" % seq] for seq in range(1, verified.events + 1)]
