"""Finding skills for the tasks in `finding.toml`: by words alone, and with the bundled embedding model."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from plugins.api.memory_settings import EmbeddingKeys
from plugins.api.plugin_services import EmbedTexts, Purpose
from plugins.providers.local.embeddings import LocalEmbeddings
from plugins.providers.local.installable_models import BUNDLED
from plugins.skills.admissions import Admission
from plugins.skills.catalogue import FoundSkill
from plugins.skills.skill_search import SkillIndex
from plugins.support.errors import Unreachable
from plugins.testing.contexts import make_provider_context

FINDING = tomllib.loads((Path(__file__).parent / "finding.toml").read_text(encoding="utf-8"))
TASKS: dict[str, str] = FINDING["tasks"]

LEAST = 0.95
"""The least share of the tasks whose skill is among the first five."""


def found_skill(name: str, description: str, *headings: str) -> FoundSkill:
    admission = Admission(at="", by="owner", name=name, description=description, headings=headings)
    return FoundSkill(name=name, folder=f"/{name}", place=name, state="admitted", admission=admission)


def index() -> SkillIndex:
    return SkillIndex([found_skill(name, *texts) for name, texts in FINDING["skills"].items()])


async def missed(embed: EmbedTexts | None) -> list[str]:
    """Return the tasks whose skill is not among the first five."""
    skills = index()
    found = {task: [skill.name for skill in await skills.search(task, 5, embed)] for task in TASKS}
    return [f"{task} -> {', '.join(found[task])}" for task, name in TASKS.items() if name not in found[task]]


def test_the_set_is_large_enough_and_names_only_its_skills() -> None:
    assert len(FINDING["skills"]) >= 40
    assert len(TASKS) >= 60
    assert set(TASKS.values()) <= set(FINDING["skills"])


async def test_words_alone_find_nearly_every_skill() -> None:
    lost = await missed(None)
    assert 1 - len(lost) / len(TASKS) >= LEAST, lost


@pytest.mark.skipif(BUNDLED.weights() is None, reason="needs the extra [local], which `make test` installs")
async def test_the_bundled_model_finds_what_is_asked_in_other_words(tmp_path: Path) -> None:
    async with (
        make_provider_context(tmp_path, EmbeddingKeys()) as context,
        LocalEmbeddings(context) as provider,
    ):
        lost = await missed(provider.embed)
    assert len(lost) <= 1, lost


async def test_what_no_word_matches_is_not_found_and_an_empty_query_neither() -> None:
    assert await index().search("xylophone quux", 5, None) == []
    assert await index().search("?!", 5, None) == []
    assert await SkillIndex([]).search("anything", 5, None) == []


async def test_without_vectors_words_are_enough() -> None:
    async def fails(texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        raise Unreachable("There is no model.")

    (first, *_) = await index().search("squash my last five commits", 5, fails)
    assert first.name == "git-history"
