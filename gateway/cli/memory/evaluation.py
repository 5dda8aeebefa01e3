"""`exuvia memory eval`: the quality and latency of searches for questions with known answers, which are in files
(`question_sets`)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from gateway.cli.memory.memory_commands import OtherNotes, opened_memory, run_search
from gateway.cli.memory.question_sets import EvalQuestion, QuestionSet, read_questions
from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.config.keys import Config
from gateway.support.printable import printable
from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory_settings import Fusion
from plugins.memory.memory import Memory
from plugins.memory.search.eval_metrics import EvalMetrics, judge, mean

FUSIONS: tuple[Fusion, ...] = ("measured", "openclaw", "copaw", "rrf")

MOST = 50
"""The largest number of results that can be evaluated."""


class EvalResult(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one fusion method for one file, with the median and 95th percentile latency in milliseconds.

    The latency includes embedding the question. `judged` is None if no question has an answer. `nothing` is the share of the
    questions without an answer for which nothing was found; None if there are no such questions.
    """

    file: Path
    fusion: str
    questions: int
    judged: EvalMetrics | None
    nothing: float | None
    p50: float
    p95: float


def evaluate(
    call: Invocation, files: Sequence[Path], *, cutoffs: Sequence[int], every: bool, one_table: bool = False
) -> int:
    """Print the metrics for the questions of each file, for the configured fusion method or for all with `every`.

    There is a table for each file, or one for all with `one_table`.
    """
    asked = {each: read_questions(each) for each in files}
    config = call.config()
    ways = FUSIONS if every else (config.memory.search.fusion,)
    with tempfile.TemporaryDirectory() as folder:
        sets = {file: _written(found, Path(folder, str(number))) for number, (file, found) in enumerate(asked.items())}
        done = [result for way in ways for result in run_search(_evaluated(call, _by(config, way), sets, cutoffs))]
    done.sort(key=lambda each: list(asked).index(each.file))
    if call.as_json:
        print_json({"ways": [_row(each) for each in done]}, call.out)
    else:
        (_print_together if one_table else _print)(done, cutoffs, call.out)
    return SUCCESS


def _written(sets: Sequence[QuestionSet], folder: Path) -> list[tuple[QuestionSet, OtherNotes | None]]:
    """Write the notes that sets have of their own below a folder."""
    done: list[tuple[QuestionSet, OtherNotes | None]] = []
    for number, each in enumerate(sets):
        place = folder / str(number)
        for path, text in (each.notes or {}).items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text, encoding="utf-8")
        done.append((each, None if each.notes is None else OtherNotes(place, each.today)))
    return done


def _by(config: Config, fusion: Fusion) -> Config:
    search = msgspec.structs.replace(config.memory.search, fusion=fusion)
    return msgspec.structs.replace(config, memory=msgspec.structs.replace(config.memory, search=search))


class _Answered:
    """The results of the searches for the questions of one file."""

    def __init__(self) -> None:
        self.judged: list[EvalMetrics] = []
        self.nothing: list[bool] = []
        self.millis: list[float] = []

    async def ask(self, memory: Memory, questions: Sequence[EvalQuestion], cutoffs: Sequence[int]) -> None:
        """Search for each question."""
        await memory.search(questions[0].question, EVERYTHING)  # the first search loads the model, which is not measured
        for each in questions:
            began = time.perf_counter()
            found = await memory.search(each.question, EVERYTHING, results=max(cutoffs))
            self.millis.append((time.perf_counter() - began) * 1000)
            if each.answers:
                matched = [{place for place in each.answers if place.is_in(hit.chunk)} for hit in found.hits]
                self.judged.append(judge(matched, each.answers, cutoffs))
            else:
                self.nothing.append(not found.hits)

    def result(self, file: Path, fusion: str) -> EvalResult:
        """Return the metrics of all questions."""
        millis = sorted(self.millis)
        return EvalResult(
            file=file,
            fusion=fusion,
            questions=len(millis),
            judged=mean(self.judged) if self.judged else None,
            nothing=sum(self.nothing) / len(self.nothing) if self.nothing else None,
            p50=millis[len(millis) // 2],
            p95=millis[min(len(millis) - 1, len(millis) * 95 // 100)],
        )


async def _evaluated(
    call: Invocation,
    config: Config,
    files: Mapping[Path, Sequence[tuple[QuestionSet, OtherNotes | None]]],
    cutoffs: Sequence[int],
) -> list[EvalResult]:
    done = []
    for file, sets in files.items():
        answered = _Answered()
        for each, notes in sets:
            async with opened_memory(call, config, notes) as memory:
                await memory.update(lambda _: None)
                await answered.ask(memory, each.questions, cutoffs)
        done.append(answered.result(file, config.memory.search.fusion))
    return done


def _row(each: EvalResult) -> dict[str, float | str]:
    judged = each.judged
    return {
        "file": str(each.file),
        "fusion": each.fusion,
        "questions": each.questions,
        **({f"recall@{cutoff}": value for cutoff, value in judged.recall.items()} if judged else {}),
        **({f"ndcg@{max(judged.recall)}": judged.ndcg, "mrr": judged.reciprocal} if judged else {}),
        **({} if each.nothing is None else {"nothing": each.nothing}),
        "p50_ms": round(each.p50, 1),
        "p95_ms": round(each.p95, 1),
    }


def _print(done: Sequence[EvalResult], cutoffs: Sequence[int], out: TextIO) -> None:
    """Print a table for each file."""
    heads = "".join(f"{head:>11}" for head in _heads(done, cutoffs))
    files = list(dict.fromkeys(each.file for each in done))
    for number, file in enumerate(files):
        rows = [each for each in done if each.file == file]
        name = f"{printable(str(file))}: " if len(files) > 1 else ""
        out.write("\n" * bool(number) + f"{name}{rows[0].questions} questions\n\n{'':10}{heads}\n")
        for each in rows:
            out.write(f"{each.fusion:10}{_cells(each, done, cutoffs)}\n")


def _print_together(done: Sequence[EvalResult], cutoffs: Sequence[int], out: TextIO) -> None:
    """Print one table, with a row for each file and fusion method."""
    names = {each.file: printable(each.file.name) for each in done}
    if len(set(names.values())) < len(names):
        names = {file: printable(str(file)) for file in names}
    width = max(map(len, names.values()))
    heads = "".join(f"{head:>11}" for head in ("questions", *_heads(done, cutoffs)))
    out.write(f"{'':{width}}  {'':10}{heads}\n")
    before = None
    for each in done:
        name, questions = ("", "") if each.file == before else (names[each.file], str(each.questions))
        out.write(f"{name:{width}}  {each.fusion:10}{questions:>11}{_cells(each, done, cutoffs)}\n")
        before = each.file


def _heads(done: Sequence[EvalResult], cutoffs: Sequence[int]) -> list[str]:
    """Return the names of the columns, with `nothing` if there are questions without an answer."""
    heads = [*(f"recall@{cutoff}" for cutoff in cutoffs), f"nDCG@{max(cutoffs)}", "MRR"]
    return [*heads, *["nothing"] * _has_unanswered(done), "p50 ms", "p95 ms"]


def _cells(each: EvalResult, done: Sequence[EvalResult], cutoffs: Sequence[int]) -> str:
    """Return the row of a result, without the figures that need answers where there are none."""
    shares: list[float | None] = [None] * (len(cutoffs) + 2)
    if judged := each.judged:
        shares = [*(judged.recall[cutoff] for cutoff in cutoffs), judged.ndcg, judged.reciprocal]
    shares += [each.nothing] * _has_unanswered(done)
    cells = "".join(f"{'':11}" if share is None else f"{share:11.3f}" for share in shares)
    return f"{cells}{each.p50:11.1f}{each.p95:11.1f}"


def _has_unanswered(done: Sequence[EvalResult]) -> bool:
    return any(each.nothing is not None for each in done)
