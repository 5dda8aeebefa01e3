"""The default ranking beside the simpler fusions on several kinds of notes, with vectors and by words.

The kinds are conversations (LoCoMo), documentation, both in one workspace, short notes in some twenty languages (those of
the tests), each a note or all in one file, and functions of Python's standard library, asked about by the first sentences
of their docstrings, which the notes do not have. For each kind recall is also measured with the cut of questions that have
no answer. A kind whose data is missing is left out.
"""

from __future__ import annotations

import ast
import importlib.util
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

import msgspec

from benchmarks.cached_vectors import CachedVectors
from benchmarks.figures import Figure
from benchmarks.locomo import IDENTITY, Conversation, LocomoQuestion, conversations, documentation, indexed
from benchmarks.retrieval import BASELINE, CUTOFFS, DEFAULT, FUSIONS, RANKINGS, Gathered, baseline, judged_keys
from benchmarks.setting import Setting
from plugins.api.memory_settings import Fusion
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.search.eval_metrics import EvalMetrics, mean
from plugins.memory.search.ranking import rank
from plugins.memory.search.relevance import answering
from plugins.memory.search.search import Question, asked_words, found_for
from plugins.providers.local.installable_models import BUNDLED

SHORT_NOTES = Path(__file__).parent.parent / "tests" / "memory" / "languages" / "notes.jsonl"

FUNCTIONS, LEAST_WORDS, LINES = 150, 5, 60
"""Functions at most, the least words of a question, and the most lines of a function."""

MIXED = 100
"""Questions about each of two kinds in one workspace."""

TODAY = date(2026, 11, 21)


class _ShortNote(msgspec.Struct, frozen=True):
    note: str
    text: str
    exact: str | None = None


def run(setting: Setting) -> list[Figure]:
    """Measure each kind with each ranking."""
    weights = BUNDLED.weights()
    if weights is None:
        print("  skipped: no bundled model", file=sys.stderr)
        return []
    figures: list[Figure] = []
    with CachedVectors(weights, setting.cache / "vectors.sqlite") as model:
        for name, sets in _kinds(setting).items():
            for vectors, way in ((model, "with vectors"), (None, "by words")):
                figures += _figures(f"{name}, {way}", sets, model, vectors, setting.folder)
                print(f"  {name}, {way}", file=sys.stderr, flush=True)
    return figures


# --- the kinds --------------------------------------------------------------------------------------------------------


def _kinds(setting: Setting) -> dict[str, Sequence[Conversation]]:
    talks, documents = conversations(setting.conversations), documentation()
    kinds: dict[str, Sequence[Conversation]] = {}
    if SHORT_NOTES.exists():
        notes = [msgspec.json.decode(line, type=_ShortNote) for line in SHORT_NOTES.read_bytes().splitlines()]
        kinds |= {"short notes in twenty languages": [_short(notes)], "the same in one file": [_short_in_one_file(notes)]}
    kinds["Python functions"] = [_functions()]
    if documents:
        kinds["documentation"] = [documents]
    if talks and documents:
        kinds["a conversation and documentation together"] = [_together(talks[0], documents)]
    if talks:
        kinds["conversations"] = talks
    return kinds


def _short(notes: Sequence[_ShortNote]) -> Conversation:
    asked = [LocomoQuestion(each.exact, frozenset({(f"memory/{each.note}.md", 1)})) for each in notes if each.exact]
    return Conversation("short", {f"memory/{each.note}.md": each.text for each in notes}, asked, TODAY)


def _short_in_one_file(notes: Sequence[_ShortNote]) -> Conversation:
    text = "\n\n".join(f"# {number}\n\n{each.text}" for number, each in enumerate(notes))
    lines = {each.note: 4 * number + 3 for number, each in enumerate(notes)}
    asked = [LocomoQuestion(each.exact, frozenset({("memory/all.md", lines[each.note])})) for each in notes if each.exact]
    return Conversation("one file", {"memory/all.md": text}, asked, TODAY)


def _functions() -> Conversation:
    """Make a note of each module, with its functions as sections, and questions of their docstrings."""
    found = {name: list(_documented(name)) for name in sorted(sys.stdlib_module_names) if name[0] != "_"}
    draw = random.Random(5)
    chosen = set(draw.sample(sorted({text for each in found.values() for text, _ in each}), FUNCTIONS))
    notes, asked = {}, []
    for name, functions in found.items():
        lines: list[str] = []
        for number, (question, code) in enumerate(each for each in functions if each[0] in chosen):
            lines += [f"## {number}", "", "```python"]
            asked.append(LocomoQuestion(question, frozenset({(f"memory/{name}.md", len(lines))})))
            lines += [*code.splitlines(), "```", ""]
        if lines:
            notes[f"memory/{name}.md"] = "\n".join(lines)
    return Conversation("functions", notes, asked, TODAY)


def _documented(module: str) -> Iterator[tuple[str, str]]:
    """Yield the first sentence of each documented function of a module, and its code without the docstring."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return
    for node in ast.walk(ast.parse(Path(spec.origin).read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and (told := ast.get_docstring(node)) and len(node.body) > 1:
            sentence = " ".join(told.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
            code = ast.unparse(_without_docstring(node))
            if len(sentence.split()) >= LEAST_WORDS and len(code.splitlines()) <= LINES:
                yield sentence, code


def _without_docstring(node: ast.FunctionDef) -> ast.FunctionDef:
    """Return a function without its docstring."""
    node.body = node.body[1:]
    return node


def _together(talk: Conversation, documents: Conversation) -> Conversation:
    draw = random.Random(6)
    asked = [each for one in (talk, documents) for each in draw.sample(one.questions, min(MIXED, len(one.questions)))]
    return Conversation("together", {**documents.notes, **talk.notes}, asked, talk.today)


# --- the figures ------------------------------------------------------------------------------------------------------


def _figures(
    name: str, sets: Sequence[Conversation], model: CachedVectors, vectors: CachedVectors | None, folder: Path
) -> Iterator[Figure]:
    judged: dict[str, list[EvalMetrics]] = {}
    cut: list[EvalMetrics] = []
    for one in sets:
        with indexed(one, model, folder) as index:
            for question in one.questions:
                for way, metrics in _judged(index, question, one, vectors).items():
                    (cut if way == "cut" else judged.setdefault(way, [])).append(metrics)
    means = {way: mean(some) for way, some in judged.items()}
    for cutoff in CUTOFFS:
        best = max((way for way in means if way != DEFAULT), key=lambda way: means[way].recall[cutoff])
        for way in means:
            yield Figure(
                benchmark="kinds",
                measure=f"{name}: {way}: recall@{cutoff}",
                unit="%",
                median=100 * means[way].recall[cutoff],
                runs=len(judged[way]),
                against=best if way == DEFAULT else "",
                reference=100 * means[best].recall[cutoff] if way == DEFAULT else None,
            )
    yield Figure(
        benchmark="kinds",
        measure=f"{name}: recall@10 with the cut",
        unit="%",
        median=100 * mean(cut).recall[10],
        runs=len(cut),
        against="without the cut",
        reference=100 * means[DEFAULT].recall[10],
    )


def _judged(
    index: MemoryIndex, question: LocomoQuestion, one: Conversation, vectors: CachedVectors | None
) -> Mapping[str, EvalMetrics]:
    """Judge the results of each ranking, and of the default with the cut."""
    vector = vectors.embed([question.text])[0] if vectors else None
    asked = Question(text=question.text, identity=IDENTITY if vectors else None, vector=vector)

    def gathered(fusion: Fusion) -> Gathered:
        chunks, found = found_for(index, asked, results=10, multiplier=4, today=one.today, fusion=fusion)
        return found, {key: (chunk.path, chunk.first) for key, chunk in chunks.items()}, question.answers

    whole, as_copaw = gathered("measured"), gathered("copaw")
    judged = {BASELINE: judged_keys(baseline(whole), whole)}
    for fusion in FUSIONS:
        way, of = DEFAULT if fusion == "measured" else fusion, as_copaw if fusion == "copaw" else whole
        results = rank(of[0], RANKINGS[way], one.today)
        judged[way] = judged_keys([hit.candidate.key for hit in results], of)
        if way == DEFAULT:
            model = IDENTITY.model if vectors else ""
            left = answering(results, whole[0], asked_words(index, question.text), model, index.size()[1])
            judged["cut"] = judged_keys([hit.candidate.key for hit in left], whole)
    return judged
