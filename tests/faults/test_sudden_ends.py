"""The process is killed, the power fails, or somebody reads meanwhile: what was reported durable is there."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.stage import (
    NOT_ROOT,
    check_nothing_reported_is_lost,
    journal_of,
    needs_strace,
    pid_of,
    reported,
    writer,
)
from tests.sessions.journal_stories import journals_in
from tests.stored import stored
from tests.waiting import DEADLINE

SHUT_DOWN = 0x8004587D
"""The ioctl FS_IOC_SHUTDOWN of Linux."""

WITHOUT_LOG = 2
"""Its argument that drops all that has not reached the disk: a power cut."""


def _lines_of(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def _kill(process: subprocess.Popen[str], pid: int) -> list[str]:
    """Kill the writer at once, and return what it had still printed."""
    os.kill(pid, signal.SIGKILL)
    rest, _ = process.communicate(timeout=DEADLINE)
    return [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]


@needs_strace
@pytest.mark.parametrize("after", [1, 8, 23])
def test_whatever_was_reported_survives_kill_9_while_writes_and_syncs_are_slow(tmp_path: Path, after: int) -> None:
    slow = ["-e", "inject=pwrite64:delay_enter=9000", "-e", "inject=fdatasync:delay_enter=15000"]
    process = writer(tmp_path, "--journals", "3", "--lines", "500", strace=["-e", "trace=pwrite64,fdatasync", *slow])
    pid = pid_of(process)
    heard = _lines_of(process, after)
    told = reported([*heard, *_kill(process, pid)])
    assert sum(told.values()) >= after
    check_nothing_reported_is_lost(tmp_path, told)
    asyncio.run(_all_open(tmp_path, [*told]))
    check_nothing_reported_is_lost(tmp_path, told)


async def _all_open(home: Path, names: list[str]) -> None:
    async with journals_in(home) as journals:
        for name in names:
            journal, _ = await journals.open(name, fold=lambda _: None)
            await journal.close()


def test_readers_see_no_damage_while_another_process_appends(tmp_path: Path) -> None:
    process = writer(tmp_path, "--lines", "400")
    pid_of(process)
    path, seen = journal_of(tmp_path), [0]
    while process.poll() is None:
        if path.exists():
            seen.append(stored(path).verify().events)
            assert seen[-1] >= seen[-2]
            assert len(stored(path).lines(max(1, seen[-1] - 3), 10**6)) >= min(4, seen[-1])
    process.communicate()
    assert len(set(seen)) > 3
    assert stored(path).verify().events == 400


@contextmanager
def _disk(image: Path, mount: Path) -> Iterator[None]:
    """An ext4 file system of its own, in a file, while the block runs."""
    mount.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(mount)], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no loop device can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        if subprocess.run(["umount", str(mount)], check=False).returncode:
            subprocess.run(["umount", "-l", str(mount)], check=True)
            pytest.fail("somebody still uses the disk")


def _cut_power(mount: Path) -> None:
    descriptor = os.open(mount, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUT_DOWN, struct.pack("I", WITHOUT_LOG))
    finally:
        os.close(descriptor)


@pytest.mark.skipif(NOT_ROOT, reason="a loop device is mounted, for which one must be root")
@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="mkfs.ext4, which makes the disk that loses power, is missing")
@pytest.mark.parametrize("after", [1, 60])
def test_whatever_was_reported_survives_a_power_cut(tmp_path: Path, after: int) -> None:
    image, home = tmp_path / "image", tmp_path / "home"
    with image.open("wb") as file:
        file.truncate(16 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    with _disk(image, home):
        (home / "sessions").mkdir()
        subprocess.run(["sync", "-f", str(home)], check=True)  # the folders stand, and only they
        process = writer(home, "--journals", "5", "--lines", "5000")
        pid = pid_of(process)
        heard = _lines_of(process, after)
        os.kill(pid, signal.SIGSTOP)  # so that it cannot report what the cut disk no longer takes
        _cut_power(home)
        told = reported([*heard, *_kill(process, pid)])
    assert sum(told.values()) >= after
    with _disk(image, home):
        check_nothing_reported_is_lost(home, told)
        asyncio.run(_all_open(home, [name for name in told if journal_of(home, name).exists()]))
        check_nothing_reported_is_lost(home, told)
