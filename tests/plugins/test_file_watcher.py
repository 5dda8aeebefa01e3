"""Watching folders: changes are reported, and an error is raised if the system allows no watch."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from plugins.support.file_watcher import changes
from tests.faults.gateway_process import ROOT
from tests.open_files import watched_inodes
from tests.waiting import DEADLINE, deadline, until

WITHOUT = """
import asyncio, contextlib, os, resource, sys
from pathlib import Path
from plugins.support.file_watcher import changes

async def watched():
    async with contextlib.aclosing(changes(Path(sys.argv[1]), rust_timeout=20, yield_on_timeout=True)) as watch:
        return await anext(watch)

def limit(what):
    if what == "threads":
        others = 0
        if os.getuid() == 0:  # to whom this limit does not apply; so another user, who has no other process
            os.setuid(20_000 + os.getpid() % 40_000)
            others = 1  # the watcher of Python gets a thread, that of the library none
        resource.setrlimit(resource.RLIMIT_NPROC, (1 + others, hard(resource.RLIMIT_NPROC)))
    else:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**20, hard(resource.RLIMIT_AS)))

def hard(what):
    return resource.getrlimit(what)[1]

async def main():
    print(await watched())
    while len(os.listdir("/proc/self/task")) > 1:
        await asyncio.sleep(0.01)
    limit(sys.argv[2])
    try:
        await watched()
    except (OSError, RuntimeError) as error:
        print(error)
    for each in (resource.RLIMIT_AS, resource.RLIMIT_NPROC):
        resource.setrlimit(each, (hard(each), hard(each)))

asyncio.run(main())
"""


async def test_changes_below_a_folder_are_reported(tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    async with deadline(), contextlib.aclosing(changes(tmp_path, step=10, rust_timeout=20, yield_on_timeout=True)) as watch:
        assert await anext(watch) == set()
        note.write_text("tea")
        while not (found := await anext(watch)):
            await asyncio.sleep(0)
    assert {path for _, path in found} == {str(note)}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_nothing_is_watched_after_the_end(tmp_path: Path) -> None:
    before = watched_inodes()
    watching = asyncio.create_task(anext(changes(tmp_path, step=10)))
    await until(lambda: watched_inodes() != before)
    watching.cancel()
    await asyncio.wait({watching})
    await until(lambda: watched_inodes() == before)
    await until(lambda: not any(each.name.startswith("watching") for each in threading.enumerate()))


def test_watching_imports_no_event_loop_of_another_library(tmp_path: Path) -> None:
    program = WITHOUT.partition("def limit")[0] + "asyncio.run(watched()); print('anyio._backends._asyncio' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=DEADLINE,
        check=True,
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("what", ["threads", "memory"])
def test_without_a_thread_for_the_watcher_an_error_is_raised_and_the_process_continues(tmp_path: Path, what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path), what],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=DEADLINE,
        check=False,
    )
    first, error = done.stdout.splitlines()
    assert (first, done.returncode) == ("set()", 0), done.stderr
    # With little memory it is a question of what the C library keeps for threads.
    assert error in {"can't start new thread", *(["[Errno 12] Cannot allocate memory"] if what == "memory" else [])}
