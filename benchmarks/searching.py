"""The time of a search among many notes, by keywords and with vectors, and the delay of the event loop during indexing.

The vectors are random, with the dimensions of the bundled model; the time of embedding is not measured. All operations use
`Memory`, as in the gateway.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from benchmarks.figures import Figure, figure
from benchmarks.setting import Setting
from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory_settings import NONE, EmbeddingKeys, MemoryKeys
from plugins.api.plugin_services import Purpose
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import Notes

DIMENSIONS = 384
QUESTIONS = 100
INTERVAL = 0.005
"""Seconds between two samples of the loop's delay."""

SETTLED = 3.0
"""Seconds after which the file watcher has certainly started."""

BAR_WORDS, BAR_BOTH, BAR_LAG = 5.0, 15.0, 50.0

_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "ai", "en", "or")]


class RandomVectors:
    """An embedding provider with random vectors."""

    name: ClassVar[str] = "random"

    def __init__(self, random_: random.Random) -> None:
        self._random = random_

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def model(self) -> str | None:
        """Return the name of the model."""
        return "random"

    def explain_default(self) -> str:
        """Return the reason for the default model."""
        return "no requirements"

    def dimensions(self) -> int:
        """Return the dimensions of the bundled model."""
        return DIMENSIONS

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """Return a random vector for each text, computed in a thread."""
        return await asyncio.to_thread(lambda: [[self._random.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in texts])


def run(setting: Setting) -> list[Figure]:
    """Measure both searches among `setting.notes` notes, and the delay of the loop during indexing."""
    with tempfile.TemporaryDirectory(dir=setting.folder, ignore_cleanup_errors=True) as folder:
        return asyncio.run(_measure(Path(folder), setting.notes))


async def _measure(folder: Path, count: int) -> list[Figure]:
    draw = random.Random(7)
    words, weights = vocabulary(draw)
    await asyncio.to_thread(_write, folder / "workspace", count, words, weights, draw)
    by_words = MemoryKeys(embedding=EmbeddingKeys(provider=NONE))
    keys = [MemoryKeys()]
    async with Memory(
        folder / "memory.sqlite",
        [Notes(folder / "workspace")],
        keys=lambda: keys[0],
        providers={"random": RandomVectors(draw)},
        today=lambda: date(2026, 11, 21),
    ) as memory:
        watching = asyncio.create_task(memory.watch())
        lags, seconds = await _indexed(memory)
        await asyncio.sleep(SETTLED)
        vector_times = await _search_times(memory, words, draw)
        keys[0] = by_words
        keyword_times = await _search_times(memory, words, draw)
        watching.cancel()
    name = f"{count:,} notes"
    delay = f"{name}: longest loop delay while indexing"
    return [
        figure("searching", f"{name}: index and embed all", "s", [seconds]),
        figure("searching", delay, "ms", [max(lags)], against="bar", reference=BAR_LAG),
        figure("searching", f"{name}: keyword search", "ms", keyword_times, against="bar", reference=BAR_WORDS),
        figure("searching", f"{name}: search with vectors", "ms", vector_times, against="bar", reference=BAR_BOTH),
    ]


def vocabulary(draw: random.Random) -> tuple[list[str], list[float]]:
    """Return words, and weights that make them as unevenly frequent as in a language."""
    words = [draw.choice(_SYLLABLES) + draw.choice(_SYLLABLES) + draw.choice(["", "n", "st"]) for _ in range(6000)]
    return words, [1 / (rank + 3) for rank in range(len(words))]


def asked_words(draw: random.Random) -> tuple[list[str], list[float]]:
    """Return the same words with the weights of questions, which contain frequent words less often."""
    words, _ = vocabulary(draw)
    return words, [1 / (rank + 30) for rank in range(len(words))]


def _write(workspace: Path, count: int, words: Sequence[str], weights: Sequence[float], draw: random.Random) -> None:
    """Write notes of about 400 characters."""
    (workspace / "memory").mkdir(parents=True)
    for number in range(count):
        chosen = draw.choices(words, weights, k=60)
        lines = [" ".join(chosen[start : start + 12]) for start in range(0, 60, 12)]
        day = f"{2020 + number % 6}-{number % 12 + 1:02d}-{number % 28 + 1:02d}"
        (workspace / "memory" / f"{day}-{number}.md").write_text(f"# {chosen[0]} {chosen[1]}\n\n" + "\n".join(lines) + "\n")


async def _indexed(memory: Memory) -> tuple[list[float], float]:
    """Index all notes; return the delays of the loop in milliseconds, and the elapsed seconds."""
    lags = [0.0]

    async def sample() -> None:
        while True:
            began, worked = time.perf_counter(), time.process_time()
            await asyncio.sleep(INTERVAL)
            # At most the processor time of this process, to exclude the load of other processes.
            late = min(time.perf_counter() - began - INTERVAL, time.process_time() - worked)
            lags.append(late * 1000)

    gc.collect()
    gc.freeze()  # as the gateway does when it is ready
    began, sampling = time.perf_counter(), asyncio.create_task(sample())
    await memory.update(lambda _: None)
    seconds = time.perf_counter() - began
    sampling.cancel()
    gc.unfreeze()
    return lags, seconds


async def _search_times(memory: Memory, words: Sequence[str], draw: random.Random) -> list[float]:
    """Measure searches of four words each, in milliseconds."""
    weights = [1 / (rank + 30) for rank in range(len(words))]
    taken = []
    for _ in range(QUESTIONS):
        question = " ".join(draw.choices(words, weights, k=4))
        began = time.perf_counter()
        await memory.search(question, EVERYTHING)
        taken.append((time.perf_counter() - began) * 1000)
    return taken
