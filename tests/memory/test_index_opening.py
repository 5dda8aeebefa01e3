"""The index is opened outside the event loop's thread, with no more imports than it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from plugins.memory.index.tables import open_tables
from sessions.catalog.sqlite import Error

SEARCH = """
import asyncio, sys, threading
from datetime import date
from pathlib import Path
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import Notes
from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory_settings import EmbeddingKeys, MemoryKeys

on_the_loop = []

def heard(event, arguments):
    if event == "import" and threading.current_thread() is threading.main_thread():
        on_the_loop.append(arguments[0])

async def search(place):
    keys = MemoryKeys(embedding=EmbeddingKeys(provider="none"))
    about = {"keys": lambda: keys, "providers": {}, "today": lambda: date(2026, 11, 21)}
    async with Memory(place / "memory.sqlite", [Notes(place)], **about) as memory:
        await asyncio.to_thread(int)  # which threads themselves need
        sys.addaudithook(heard)
        watching = asyncio.create_task(memory.watch())
        await asyncio.sleep(0)
        found = await memory.search("door", EVERYTHING)
        while memory._watcher.fault:
            await asyncio.sleep(0.01)
        watching.cancel()
    return [hit.citation for hit in found.hits]

print(asyncio.run(search(Path(sys.argv[1]))), on_the_loop, "numpy" in sys.modules)
"""


def test_the_first_search_imports_nothing_on_the_event_loop_and_no_numpy(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text("the door code is 4711\n")
    done = subprocess.run([sys.executable, "-c", SEARCH, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "['MEMORY.md#L1-L1'] [] False\n"


def test_without_a_descriptor_the_index_is_not_given_up(tmp_path: Path, take_all_descriptors: Callable[[], None]) -> None:
    path = tmp_path / "memory.sqlite"
    connection, _ = open_tables(path)
    connection.execute("INSERT INTO marks VALUES ('kept')")
    connection.close()
    before = path.read_bytes()
    spare = os.open("/", os.O_RDONLY)
    take_all_descriptors()
    os.close(spare)  # enough to see that the file is there, and too few for what SQLite keeps beside it
    # A thread may have taken the spare one.
    with pytest.raises((*Error, OSError), match=r"unable to open|Too many open files"):
        open_tables(path)
    assert path.read_bytes() == before


ALONE = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
db.execute("SELECT count(*) FROM marks").fetchall()
print(db.execute("PRAGMA journal_mode = DELETE").fetchall())
"""


def test_a_second_connection_does_not_drop_the_locks_of_the_first_one(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    with closing(open_tables(path)[0]), closing(open_tables(path)[0]):
        done = subprocess.run([sys.executable, "-c", ALONE, path], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("database is locked\n"), "else it deletes the log that the two write to"
