"""The quality of retrieval on long conversations and on documentation, and the time of a keyword search.

The LoCoMo conversations are indexed as notes. Each turn is a separate chunk, so ten results are ten turns; a result is
relevant if it contains the line of a turn that answers the question. Skipped if the data or the bundled model is missing.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

from benchmarks.cached_vectors import CachedVectors
from benchmarks.figures import Figure, figure
from benchmarks.locomo import IDENTITY, Conversation, conversations, documentation, index_of, indexed
from benchmarks.setting import Setting
from benchmarks.unanswerable import figures_without_answers
from plugins.api.memory_settings import DecayKeys, Fusion, MMRKeys, SearchKeys
from plugins.memory.search.candidates import Candidate, Rules, min_max
from plugins.memory.search.eval_metrics import EvalMetrics, judge, mean
from plugins.memory.search.fusion import fuse
from plugins.memory.search.ranking import rank
from plugins.memory.search.search import Question, found_for, rules_of, search
from plugins.providers.local.installable_models import BUNDLED

AIM = {5: 74.0, 10: 82.0}
DOCUMENTATION_AIM = {1: 58.0, 5: 88.0, 10: 94.0}
"""The required recall of the default ranking in per cent, by cutoff."""

FUSIONS: tuple[Fusion, ...] = ("measured", "openclaw", "copaw", "rrf")
DEFAULT = "measured, decay, MMR"
CROSS_VALIDATED = "measured, weights fitted to the other conversations"
BASELINE = "baseline: 0.6 cosine + 0.4 bm25, min-max normalised"
CUTOFFS = (1, 5, 10)

RANKINGS = {
    f"{fusion}{', decay' * decay}{', MMR' * mmr}": rules_of(
        SearchKeys(max_results=10, fusion=fusion, temporal_decay=DecayKeys(enabled=decay), mmr=MMRKeys(enabled=mmr))
    )
    for fusion in FUSIONS
    for decay in (False, True)
    for mmr in (False, True)
}

Places = Mapping[int, tuple[str, int]]
Gathered = tuple[Sequence[Candidate], Places, frozenset[tuple[str, int]]]
"""The candidates of a question, their places, and the places that answer it."""


def run(setting: Setting) -> list[Figure]:
    """Measure the quality of each ranking, and the time of a keyword search in generated notes."""
    figures = list(_speed(setting))
    loaded, weights = conversations(setting.conversations), BUNDLED.weights()
    if not loaded or weights is None:
        print("  skipped: no conversations or no bundled model", file=sys.stderr)
        return figures
    with CachedVectors(weights, setting.cache / "vectors.sqlite") as model:
        figures += _measured(loaded, model, setting.folder, "", AIM)
        if documents := documentation():
            figures += _measured([documents], model, setting.folder, "documentation: ", DOCUMENTATION_AIM)
        figures += figures_without_answers(loaded, documents, model, setting.folder)
    return figures


def _measured(
    loaded: Sequence[Conversation], model: CachedVectors, folder: Path, kind: str, aims: Mapping[int, float]
) -> Iterator[Figure]:
    """Measure each ranking of one kind of notes."""
    gathered = {each.name: _gathered(each, model, folder) for each in loaded}
    as_copaw = {each.name: _gathered(each, model, folder, "copaw") for each in loaded}
    days = {each.name: each.today for each in loaded}
    judged = {
        way: _ranked(as_copaw if rules.fusion == "copaw" else gathered, days, rules) for way, rules in RANKINGS.items()
    }
    judged[BASELINE] = {name: [judged_keys(baseline(each), each) for each in asked] for name, asked in gathered.items()}
    if len(loaded) > 1:
        judged[CROSS_VALIDATED] = _cross_validated(gathered)
    for way in sorted(judged, key=lambda way: (way != DEFAULT, way != CROSS_VALIDATED, way != BASELINE)):
        yield from _figures(kind + way, judged[way], aims if way in (DEFAULT, CROSS_VALIDATED) else {})


def _figures(way: str, judged: Mapping[str, Sequence[EvalMetrics]], aims: Mapping[int, float]) -> Iterator[Figure]:
    pooled = [each for some in judged.values() for each in some]
    whole = mean(pooled)
    by_conversation = ", ".join(f"{name} {100 * mean(some).recall[10]:.1f}" for name, some in judged.items())
    measures = {"nDCG@10": whole.ndcg, "MRR": whole.reciprocal}
    for cutoff in CUTOFFS:
        aim = aims.get(cutoff)
        yield Figure(
            benchmark="retrieval",
            measure=f"{way}: recall@{cutoff}" + (f" ({by_conversation})" if cutoff == 10 else ""),
            unit="%",
            median=100 * whole.recall[cutoff],
            runs=len(pooled),
            against="aim" if aim else "",
            reference=aim,
        )
    for name, value in measures.items():
        yield Figure(benchmark="retrieval", measure=f"{way}: {name}", unit="%", median=100 * value, runs=len(pooled))


def _gathered(conversation: Conversation, model: CachedVectors, folder: Path, fusion: Fusion = "measured") -> list[Gathered]:
    """Return the candidates of a search for ten results with a fusion, for each question of a conversation."""
    with indexed(conversation, model, folder) as index:
        asked: list[Gathered] = []
        for each in conversation.questions:
            question = Question(text=each.text, identity=IDENTITY, vector=model.embed([each.text])[0])
            chunks, found = found_for(index, question, results=10, multiplier=4, today=conversation.today, fusion=fusion)
            asked.append((found, {key: (chunk.path, chunk.first) for key, chunk in chunks.items()}, each.answers))
    return asked


def _ranked(
    gathered: Mapping[str, Sequence[Gathered]], days: Mapping[str, date], rules: Rules
) -> dict[str, list[EvalMetrics]]:
    return {
        name: [judged_keys([hit.candidate.key for hit in rank(each[0], rules, days[name])], each) for each in asked]
        for name, asked in gathered.items()
    }


def judged_keys(keys: Sequence[int], asked: Gathered) -> EvalMetrics:
    _, places, answers = asked
    return judge([{places[key]} for key in keys[: max(CUTOFFS)]], answers, CUTOFFS)


def baseline(asked: Gathered) -> list[int]:
    """Rank the candidates by the baseline."""
    found = asked[0]
    vectors = min_max([each.cosine or 0.0 for each in found])
    words = min_max([each.keywords for each in found])
    scores = {each.key: 0.6 * v + 0.4 * w for each, v, w in zip(found, vectors, words, strict=True)}
    return sorted(scores, key=lambda key: (-scores[key], key))


def _cross_validated(gathered: Mapping[str, Sequence[Gathered]]) -> dict[str, list[EvalMetrics]]:
    """Rank each conversation by weights fitted to the others."""
    from benchmarks.cross_validation import candidates, fitted, np  # noqa: PLC0415 - numpy is installed with the bundled model

    by_name = {
        name: [
            candidates(fuse(each[0], Rules()), [each[1][key] in each[2] for key in each[1]], list(each[1])) for each in asked
        ]
        for name, asked in gathered.items()
    }
    judged = {}
    for name, asked in gathered.items():
        weights = fitted([each for other, some in by_name.items() if other != name for each in some])
        print(f"  without {name}: weights {', '.join(f'{weight:.2f}' for weight in weights)}", file=sys.stderr)
        orders = [np.argsort(-(each.parts @ weights), kind="stable") for each in by_name[name]]
        judged[name] = [
            judged_keys([list(each[1])[at] for at in order[:10]], each) for order, each in zip(orders, asked, strict=True)
        ]
    return judged


def _speed(setting: Setting) -> Iterator[Figure]:
    """Measure keyword searches in generated notes."""
    draw = random.Random(7)
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("ran", "tel", "mon", "vik")]
    notes = {
        f"memory/2026-{day % 12 + 1:02d}-{day % 28 + 1:02d}-{day}.md": "# Day\n\n" + " ".join(draw.choices(words, k=60))
        for day in range(setting.journals)
    }
    with tempfile.TemporaryDirectory(dir=setting.folder) as place, index_of(notes, Path(place)) as index:
        samples = []
        for _ in range(50):
            question = Question(text=" ".join(draw.choices(words, k=4)))
            began = time.perf_counter()
            search(index, question, Rules(), multiplier=4, today=date(2026, 11, 21))
            samples.append((time.perf_counter() - began) * 1000)
        yield figure("retrieval", f"keyword search, {len(notes)} notes", "ms", samples)
