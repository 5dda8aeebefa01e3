"""Measure a large index: its size on disk, the memory of a process that searches it, and the first search after a start.

The notes have random words, as unevenly frequent as in a language, and random vectors with the dimensions of the bundled
model. The index is built once; each start is a new process that opens the index and searches by keywords and vectors.
Reading the notes and computing vectors is left out: `searching` measures it.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figure, figure
from benchmarks.process import resident_mb
from benchmarks.searching import DIMENSIONS, SETTLED, RandomVectors, asked_words, vocabulary
from benchmarks.setting import Setting
from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory_settings import MemoryKeys
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import Notes

SECTIONS = 100
"""Sections of a note, each of them a chunk."""

WORDS = 60
"""Words of a section."""

QUESTIONS = 20
BAR_FIRST = 100.0
"""Milliseconds of the first search of a process, with the opening of the index."""


class Start(NamedTuple):
    """The searches of a new process in milliseconds, and the memory that opening and searching added, in MB."""

    first: float
    later: list[float]
    added_mb: float


def run(setting: Setting) -> list[Figure]:
    """Measure an index of `setting.chunks` chunks, and a tenth of that."""
    return [each for chunks in (setting.chunks // 10, setting.chunks) for each in _figures(chunks, setting)]


def _figures(chunks: int, setting: Setting) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=setting.folder, ignore_cleanup_errors=True) as place:
        folder = Path(place)
        asyncio.run(_build(folder, chunks))
        size = sum(each.stat().st_size for each in folder.glob("memory.sqlite*"))
        starts = [_start(folder) for _ in range(setting.runs)]
    name = f"{chunks:,} chunks"
    vectors = 4.0 * DIMENSIONS
    later = [each for start in starts for each in start.later]
    return [
        figure(
            "index", f"{name}: a chunk on disk", "bytes", [size / chunks], against="its vector as floats", reference=vectors
        ),
        figure("index", f"{name}: memory of a process that searches", "MB", [each.added_mb for each in starts]),
        figure(
            "index",
            f"{name}: first search of a process",
            "ms",
            [each.first for each in starts],
            against="bar",
            reference=BAR_FIRST,
        ),
        figure("index", f"{name}: later searches", "ms", later),
    ]


async def _build(folder: Path, chunks: int) -> None:
    draw = random.Random(7)
    await asyncio.to_thread(_write, folder / "workspace" / "memory", chunks, draw)
    async with _memory(folder, draw) as memory:
        await memory.update(lambda _: None)


def _write(folder: Path, chunks: int, draw: random.Random) -> None:
    words, weights = vocabulary(draw)
    folder.mkdir(parents=True)
    for number in range(chunks // SECTIONS):
        sections = (_section(draw.choices(words, weights, k=WORDS)) for _ in range(SECTIONS))
        (folder / f"topic-{number}.md").write_text("\n".join(sections))


def _section(words: Sequence[str]) -> str:
    return f"## {words[0]} {words[1]}\n\n{' '.join(words)}\n"


def _start(folder: Path) -> Start:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_search_in_new_process, folder).result()


def _search_in_new_process(folder: Path) -> Start:
    return asyncio.run(_search(folder))


async def _search(folder: Path) -> Start:
    draw = random.Random(8)
    words, weights = asked_words(random.Random(7))
    before = resident_mb(os.getpid())
    taken = []
    began = time.perf_counter()
    async with _memory(folder, draw) as memory:
        watching = asyncio.create_task(memory.watch())
        for number in range(QUESTIONS):
            await memory.search(" ".join(draw.choices(words, weights, k=4)), EVERYTHING)
            taken.append((time.perf_counter() - began) * 1000)
            if not number:
                await asyncio.sleep(SETTLED)
            began = time.perf_counter()
        watching.cancel()
        return Start(taken[0], taken[1:], resident_mb(os.getpid()) - before)


def _memory(folder: Path, draw: random.Random) -> Memory:
    return Memory(
        folder / "memory.sqlite",
        [Notes(folder / "workspace")],
        keys=MemoryKeys,
        providers={"random": RandomVectors(draw)},
        today=lambda: date(2026, 11, 21),
    )
