"""How fast the memory answers among many notes: by words, by words and vectors, and how long the event loop is held up while
all of them are read and embedded. The vectors are random, of the bundled model's length: making real ones is another matter.

Everything goes through `Memory`, as the gateway uses it: its threads, its file, its ranking.
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
EVERY = 0.005
"""Seconds between two looks at the loop."""

SETTLED = 3.0
"""Seconds after which the watching has begun for sure."""

BAR_WORDS, BAR_BOTH, BAR_LAG = 5.0, 15.0, 50.0

_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "ai", "en", "or")]


class RandomVectors:
    """An embedding provider that makes vectors at once, of no meaning."""

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
        """One that has no weights."""
        return "random"

    def explain_default(self) -> str:
        """It always can."""
        return "it needs nothing"

    def dimensions(self) -> int:
        """As many as the bundled model has."""
        return DIMENSIONS

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """A vector for each text, made beside the event loop as models do it."""
        return await asyncio.to_thread(lambda: [[self._random.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in texts])


def run(setting: Setting) -> list[Figure]:
    """Both searches among as many notes as the setting says, and the loop meanwhile."""
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
        both = await _asked(memory, words, draw)
        keys[0] = by_words
        told = await _asked(memory, words, draw)
        watching.cancel()
    name = f"{count:,} notes"
    delay = f"{name}: longest delay of the loop meanwhile"
    return [
        figure("searching", f"{name}: all read and embedded", "s", [seconds]),
        figure("searching", delay, "ms", [max(lags)], against="bar", reference=BAR_LAG),
        figure("searching", f"{name}: by words", "ms", told, against="bar", reference=BAR_WORDS),
        figure("searching", f"{name}: by words and vectors", "ms", both, against="bar", reference=BAR_BOTH),
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
        told = draw.choices(words, weights, k=60)
        lines = [" ".join(told[start : start + 12]) for start in range(0, 60, 12)]
        day = f"{2020 + number % 6}-{number % 12 + 1:02d}-{number % 28 + 1:02d}"
        (workspace / "memory" / f"{day}-{number}.md").write_text(f"# {told[0]} {told[1]}\n\n" + "\n".join(lines) + "\n")


async def _indexed(memory: Memory) -> tuple[list[float], float]:
    """Index everything; returns the delays of the loop meanwhile in milliseconds, and the seconds it took."""
    lags = [0.0]

    async def look() -> None:
        while True:
            began, worked = time.perf_counter(), time.process_time()
            await asyncio.sleep(EVERY)
            # As long as this process was at work itself: what others on the machine take is not its doing.
            late = min(time.perf_counter() - began - EVERY, time.process_time() - worked)
            lags.append(late * 1000)

    gc.collect()
    gc.freeze()  # as the gateway does it when it is ready
    began, looking = time.perf_counter(), asyncio.create_task(look())
    await memory.update(lambda _: None)
    seconds = time.perf_counter() - began
    looking.cancel()
    gc.unfreeze()
    return lags, seconds


async def _asked(memory: Memory, words: Sequence[str], draw: random.Random) -> list[float]:
    """Milliseconds of each of the searches, four words each."""
    weights = [1 / (rank + 30) for rank in range(len(words))]
    taken = []
    for _ in range(QUESTIONS):
        question = " ".join(draw.choices(words, weights, k=4))
        began = time.perf_counter()
        await memory.search(question, EVERYTHING)
        taken.append((time.perf_counter() - began) * 1000)
    return taken
