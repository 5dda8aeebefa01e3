"""How well the memory finds the turn of a long conversation that answers a question, and how long a search takes.

What is measured is the real index over LoCoMo's conversations as notes. A result counts for each of a question's turns whose
line it holds; each turn is a chunk of its own, so that ten results are ten turns. Without the data, or without the bundled
model, this is left out.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

from benchmarks.figures import Figure, figure
from benchmarks.kept_vectors import KeptVectors
from benchmarks.locomo import Story, stories
from benchmarks.setting import Setting
from plugins.api.memory.memory_backend import Identity
from plugins.api.memory_settings import DecayKeys, Fusion, MMRKeys, SearchKeys
from plugins.memory.index.indexer import refresh
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.search.candidates import Candidate, Rules, min_max
from plugins.memory.search.eval_metrics import EvalMetrics, judge, mean
from plugins.memory.search.fusion import fuse
from plugins.memory.search.ranking import rank
from plugins.memory.search.search import Question, found_for, rules_of, search
from plugins.memory.sources.notes import Notes
from plugins.providers.local.installable_models import BUNDLED

AIM = {5: 65.0, 10: 74.0}
"""The recall in per cent that the memory must reach with its default ranking."""

FUSIONS: tuple[Fusion, ...] = ("measured", "openclaw", "copaw", "rrf")
DEFAULT = "measured, decay, MMR"
LEFT_OUT = "measured, its weights fitted to the other conversations"
BASELINE = "the recipe before: 0.6 of the cosine and 0.4 of bm25, both between the worst and the best"
CUTOFFS = (5, 10)

WAYS = {
    f"{fusion}{', decay' * decay}{', MMR' * mmr}": rules_of(
        SearchKeys(max_results=10, fusion=fusion, temporal_decay=DecayKeys(enabled=decay), mmr=MMRKeys(enabled=mmr))
    )
    for fusion in FUSIONS
    for decay in (False, True)
    for mmr in (False, True)
}

Places = Mapping[int, tuple[str, int]]
Gathered = tuple[Sequence[Candidate], Places, frozenset[tuple[str, int]]]
"""A question's candidates, where they stand, and the places that answer it."""


def run(setting: Setting) -> list[Figure]:
    """Recall of each way to rank, and how long a search by words takes among generated notes."""
    figures = list(_speed(setting))
    told, weights = stories(setting.conversations), BUNDLED.weights()
    if not told or weights is None:
        print("  no conversations, or no bundled model: left out", file=sys.stderr)
        return figures
    with KeptVectors(weights, setting.cache / "vectors.sqlite") as model:
        gathered = {story.name: _gathered(story, model, setting.folder) for story in told}
        as_copaw = {story.name: _gathered(story, model, setting.folder, "copaw") for story in told}
    days = {story.name: story.today for story in told}
    judged = {way: _ranked(as_copaw if rules.fusion == "copaw" else gathered, days, rules) for way, rules in WAYS.items()}
    judged[BASELINE] = {name: [_judged(_before(each), each) for each in asked] for name, asked in gathered.items()}
    if len(told) > 1:
        judged[LEFT_OUT] = _left_out(gathered)
    for way in sorted(judged, key=lambda way: (way != DEFAULT, way != LEFT_OUT, way != BASELINE)):
        figures += _figures(way, judged[way])
    return figures


def _figures(way: str, judged: Mapping[str, Sequence[EvalMetrics]]) -> Iterator[Figure]:
    every = [each for some in judged.values() for each in some]
    whole = mean(every)
    parts = ", ".join(f"{name} {100 * mean(some).recall[10]:.1f}" for name, some in judged.items())
    measures = {"nDCG@10": whole.ndcg, "MRR": whole.reciprocal}
    for cutoff in CUTOFFS:
        aim = AIM[cutoff] if way in (DEFAULT, LEFT_OUT) else None
        yield Figure(
            benchmark="retrieval",
            measure=f"{way}: recall@{cutoff}" + (f" ({parts})" if cutoff == 10 else ""),
            unit="%",
            median=100 * whole.recall[cutoff],
            runs=len(every),
            against="aim" if aim else "",
            reference=aim,
        )
    for name, value in measures.items():
        yield Figure(benchmark="retrieval", measure=f"{way}: {name}", unit="%", median=100 * value, runs=len(every))


def _gathered(story: Story, model: KeptVectors, folder: Path, fusion: Fusion = "measured") -> list[Gathered]:
    """The candidates that a search for ten results looks at by a fusion, for each question of a conversation."""
    identity = Identity(provider="local", model="minilm", dimensions=384)
    with tempfile.TemporaryDirectory(dir=folder) as place, _index_of(story.notes, Path(place)) as index:
        while texts := index.unembedded(identity, 64):
            index.store_vectors(identity, dict(zip(texts, model.embed(list(texts.values())), strict=True)))
        asked: list[Gathered] = []
        for each in story.questions:
            question = Question(text=each.text, identity=identity, vector=model.embed([each.text])[0])
            chunks, candidates = found_for(index, question, results=10, multiplier=4, today=story.today, fusion=fusion)
            asked.append((candidates, {key: (chunk.path, chunk.first) for key, chunk in chunks.items()}, each.answers))
    return asked


def _ranked(
    gathered: Mapping[str, Sequence[Gathered]], days: Mapping[str, date], rules: Rules
) -> dict[str, list[EvalMetrics]]:
    return {
        name: [_judged([hit.candidate.key for hit in rank(each[0], rules, days[name])], each) for each in asked]
        for name, asked in gathered.items()
    }


def _judged(keys: Sequence[int], asked: Gathered) -> EvalMetrics:
    _, places, answers = asked
    return judge([{places[key]} for key in keys[: max(CUTOFFS)]], answers, CUTOFFS)


def _before(asked: Gathered) -> list[int]:
    """The best recipe before this ranking."""
    candidates = asked[0]
    vectors = min_max([each.cosine or 0.0 for each in candidates])
    words = min_max([each.keywords for each in candidates])
    scores = {each.key: 0.6 * v + 0.4 * w for each, v, w in zip(candidates, vectors, words, strict=True)}
    return sorted(scores, key=lambda key: (-scores[key], key))


def _left_out(gathered: Mapping[str, Sequence[Gathered]]) -> dict[str, list[EvalMetrics]]:
    """Each conversation ranked by weights that are fitted to the others."""
    from benchmarks.left_out import fitted, np, seen  # noqa: PLC0415 - numpy comes with the bundled model

    known = {
        name: [seen(fuse(each[0], Rules()), [each[1][key] in each[2] for key in each[1]], list(each[1])) for each in asked]
        for name, asked in gathered.items()
    }
    judged = {}
    for name, asked in gathered.items():
        weights = fitted([each for other, some in known.items() if other != name for each in some])
        print(f"  without {name}: weights {', '.join(f'{weight:.2f}' for weight in weights)}", file=sys.stderr)
        orders = [np.argsort(-(each.parts @ weights), kind="stable") for each in known[name]]
        judged[name] = [
            _judged([list(each[1])[at] for at in order[:10]], each) for order, each in zip(orders, asked, strict=True)
        ]
    return judged


def _index_of(notes: Mapping[str, str], place: Path) -> MemoryIndex:
    for path, text in notes.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    index = MemoryIndex(place / "memory.sqlite")
    with index:
        refresh(index, [Notes(place)])
    return index


def _speed(setting: Setting) -> Iterator[Figure]:
    """Searches by words among generated notes."""
    lots = random.Random(7)
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("ran", "tel", "mon", "vik")]
    notes = {
        f"memory/2026-{day % 12 + 1:02d}-{day % 28 + 1:02d}-{day}.md": "# Day\n\n" + " ".join(lots.choices(words, k=60))
        for day in range(setting.journals)
    }
    with tempfile.TemporaryDirectory(dir=setting.folder) as place, _index_of(notes, Path(place)) as index:
        samples = []
        for _ in range(50):
            question = Question(text=" ".join(lots.choices(words, k=4)))
            began = time.perf_counter()
            search(index, question, Rules(), multiplier=4, today=date(2026, 11, 21))
            samples.append((time.perf_counter() - began) * 1000)
        yield figure("retrieval", f"by words, {len(notes)} notes", "ms", samples)
