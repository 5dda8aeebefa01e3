"""Changes in folders: told where the system lets them be watched, and an error that can be handled where it does not."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

from plugins.changes import changes
from tests.faults.gateway_process import ROOT
from tests.waiting import DEADLINE, deadline

WITHOUT_THREADS = """
import asyncio, contextlib, resource, sys, threading
from pathlib import Path
from plugins.changes import changes

async def watched():
    async with contextlib.aclosing(changes(Path(sys.argv[1]), rust_timeout=20, yield_on_timeout=True)) as watch:
        return await anext(watch)

def take_all_threads():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**20, resource.RLIM_INFINITY))
    with contextlib.suppress(RuntimeError):
        while True:
            threading.Thread(target=threading.Event().wait, daemon=True).start()

async def main():
    print(await watched())
    take_all_threads()
    try:
        await watched()
    except RuntimeError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)

asyncio.run(main())
"""


async def test_what_is_saved_below_a_folder_is_told(tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    async with deadline(), contextlib.aclosing(changes(tmp_path, step=10, rust_timeout=20, yield_on_timeout=True)) as watch:
        assert await anext(watch) == set()
        note.write_text("tea")
        while not (found := await anext(watch)):
            await asyncio.sleep(0)
    assert {path for _, path in found} == {str(note)}


def test_without_a_thread_for_the_watcher_an_error_is_raised_and_the_process_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THREADS, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.stdout.splitlines(), done.returncode) == (["set()", "can't start new thread"], 0), done.stderr
