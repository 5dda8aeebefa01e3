"""Finding skills for a task: by the words of their names, descriptions and headings, and by meaning where there is a model.

The words are ranked with BM25, those of a name counting several times. If texts can be embedded, the cosine of the query
with the description is added: it finds skills that use other words. Both are put on a scale from 0 to 1 first.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plugins.skills.catalogue import FoundSkill
from plugins.support.errors import ProviderError
from plugins.support.text.stemming import porter_stem
from plugins.support.text.words import indexed, sought

if TYPE_CHECKING:
    from plugins.api.plugin_services import EmbedTexts

NAME_WEIGHT, DESCRIPTION_WEIGHT, HEADING_WEIGHT = 3, 2, 1
"""How often a word counts, by the place where it stands."""

SATURATION, LENGTH = 1.2, 0.4
"""The parameters k1 and b of BM25: descriptions have similar lengths, so that their length matters little."""

MEANING = 1.0
"""The weight of the cosine against that of the words."""

AT_ONCE = 128
"""Maximum texts that are embedded in one request."""


class SkillIndex:
    """A search index of skills, built once for a version of the inventory."""

    def __init__(self, skills: Sequence[FoundSkill]) -> None:
        self._skills = list(skills)
        self._counts = [_counts(skill) for skill in self._skills]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._mean = sum(self._lengths) / len(self._lengths) if self._lengths else 0.0
        self._holders = Counter(term for counts in self._counts for term in counts)
        self._vectors: list[Sequence[float]] | None = None

    async def search(self, query: str, results: int, embed: EmbedTexts | None) -> list[FoundSkill]:
        """Return the best skills for a query, best first; none if nothing matches."""
        words = await asyncio.to_thread(self._by_words, query)
        meaning = await self._by_meaning(query, embed) if embed is not None else None
        scores = words if meaning is None else [w + MEANING * m for w, m in zip(words, meaning, strict=True)]
        order = sorted(range(len(scores)), key=lambda at: (-scores[at], self._skills[at].name))
        return [self._skills[at] for at in order[:results] if scores[at] > 0]

    def _by_words(self, query: str) -> list[float]:
        terms = {porter_stem(term) for term in sought(query)}
        scores = [self._score(terms, at) for at in range(len(self._skills))]
        best = max(scores, default=0.0)
        return [score / best for score in scores] if best else scores

    def _score(self, terms: set[str], at: int) -> float:
        counts, count = self._counts[at], len(self._skills)
        norm = SATURATION * (1 - LENGTH + LENGTH * self._lengths[at] / self._mean) if self._mean else 1.0
        return sum(
            math.log(1 + (count - holders + 0.5) / (holders + 0.5)) * found * (SATURATION + 1) / (found + norm)
            for term in terms
            if (found := counts[term]) and (holders := self._holders[term])
        )

    async def _by_meaning(self, query: str, embed: EmbedTexts) -> list[float] | None:
        """Return a number from 0 to 1 for each skill; None if texts cannot be embedded now."""
        try:
            if self._vectors is None:
                texts = [f"{skill.name.replace('-', ' ')}: {_description(skill)}" for skill in self._skills]
                self._vectors = [
                    vector
                    for first in range(0, len(texts), AT_ONCE)
                    for vector in await embed(texts[first : first + AT_ONCE], "note")
                ]
            (wanted,) = await embed([query], "query")
        except ProviderError:
            return None
        cosines = [_cosine(wanted, vector) for vector in self._vectors]
        best, least = max(cosines), min(cosines)
        return [(cosine - least) / (best - least or 1.0) for cosine in cosines]


def _description(skill: FoundSkill) -> str:
    return skill.admission.description if skill.admission is not None else ""


def _counts(skill: FoundSkill) -> Counter[str]:
    """Return how often each term counts. Only the name of a skill that is not admitted is read."""
    headings = skill.admission.headings if skill.admission is not None else ()
    counts: Counter[str] = Counter()
    for text, weight in (
        (skill.name.replace("-", " "), NAME_WEIGHT),
        (_description(skill), DESCRIPTION_WEIGHT),
        ("\n".join(headings), HEADING_WEIGHT),
    ):
        for term in indexed(text).split():
            counts[porter_stem(term)] += weight
    return counts


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / (math.hypot(*one) * math.hypot(*other) or 1.0)
