"""The time that skills cost: at the start, in each turn, for a search, and where there are none."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figures import Figure, figure
from benchmarks.setting import Setting
from plugins.skills.inventory import Skills
from plugins.skills.library import SkillLibrary
from plugins.skills.skill_settings import SkillsKeys

BAR_START, BAR_TURN, BAR_SEARCH, BAR_NONE = 50.0, 20.0, 50.0, 0.1
"""Milliseconds that are accepted."""

TIMES = 200
"""Repetitions of what takes microseconds."""

_WORDS = [a + b + c for a in "bdfgklmnprst" for b in ("a", "e", "ir", "on") for c in ("ta", "lo", "mi", "ners")]


def run(setting: Setting) -> list[Figure]:
    """Measure with `setting.skills` admitted skills of three files each, and with none."""
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        return asyncio.run(_measured(Path(folder), setting))


async def _measured(folder: Path, setting: Setting) -> list[Figure]:
    rng, count = random.Random(7), setting.skills
    for at in range(count):
        _write(folder / "workspace" / "skills" / f"skill-{at}", rng)
    before = _skills(folder)
    unknown = await _milliseconds(before.refresh)
    for skill in before.found:
        before.admit(before.preview(skill.name), "owner")

    starts = []
    for _ in range(setting.runs):
        skills = _skills(folder)

        async def start(fresh: Skills = skills) -> None:
            await fresh.refresh()
            fresh.catalogue(200_000)

        starts.append(await _milliseconds(start))
        assert all(skill.state == "admitted" for skill in skills.found)
    turns = [await _milliseconds(skills.refresh) for _ in range(setting.runs)]

    async def search() -> None:
        assert await skills.search(rng.choice(_WORDS), 5, None)

    first = await _milliseconds(search)
    searches = [await _milliseconds(search) for _ in range(setting.runs)]
    nowhere = SkillLibrary(folder / "none", folder / "none", keys=SkillsKeys, now=lambda: datetime.now(UTC))
    none = [await _milliseconds(nowhere.refresh) for _ in range(TIMES)]
    what = f"{count:,} skills"
    return [
        figure("skills", f"start with {what}, admitted", "ms", starts, against="bar", reference=BAR_START),
        figure("skills", f"look for changes in a turn, {what}", "ms", turns, against="bar", reference=BAR_TURN),
        figure("skills", f"first search, {what}", "ms", [first]),
        figure("skills", f"further searches, {what}", "ms", searches, against="bar", reference=BAR_SEARCH),
        figure("skills", f"first sight of {what}, not admitted", "ms", [unknown]),
        figure("skills", "look for changes in a turn without skills", "ms", none, against="bar", reference=BAR_NONE),
    ]


def _skills(folder: Path) -> Skills:
    return Skills(folder / "home", folder / "workspace", keys=SkillsKeys, now=lambda: datetime.now(UTC))


def _write(folder: Path, rng: random.Random) -> None:
    def words(count: int) -> str:
        return " ".join(rng.choices(_WORDS, k=count))

    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        f"---\nname: {folder.name}\ndescription: {words(25)}\n---\n"
        + "".join(f"## {words(3)}\n\n{words(60)}\n\n" for _ in range(8))
    )
    (folder / "REFERENCE.md").write_text(words(400))
    (folder / "scripts" / "run.py").write_text(f"print({words(50)!r})\n")


async def _milliseconds(act: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await act()
    return 1000 * (time.perf_counter() - began)
