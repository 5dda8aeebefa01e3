"""One process a home."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sessions.events.errors import HomeLocked
from sessions.files.home_lock import HomeLock

HOLD = """
import sys
from pathlib import Path
from sessions.files.home_lock import HomeLock
with HomeLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_has_ended_in_any_way(tmp_path: Path) -> None:
    lock = tmp_path / "home" / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(HomeLocked, match=f"process {holder.pid}"), HomeLock(lock):
            pass
        holder.kill()
    with HomeLock(lock), pytest.raises(HomeLocked), HomeLock(lock):
        pass
    with HomeLock(lock):
        pass


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_a_full_disk_does_not_prevent_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with HomeLock(tmp_path / "lock"), pytest.raises(HomeLocked, match="unknown"), HomeLock(tmp_path / "lock"):
        pass
