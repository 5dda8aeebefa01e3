"""`exuvia memory eval`: the quality and latency of searches for questions with known answers.

The questions are in a file, JSON lines or TOML with `[[questions]]`:

{"question": "Which editor is it?", "answers": ["MEMORY.md#L3-L5", {"session": "20261121-031241-7k2m9q", "seq": 12}]}

A question without answers is one that must find nothing.
"""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import msgspec

from gateway.cli.memory.memory_commands import opened_memory, run_search
from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.config.keys import Config
from gateway.support.errors import GatewayError
from gateway.support.printable import printable
from gateway.support.small_files import read_at_most
from plugins.api.memory.chunks import Chunk
from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory_settings import Fusion
from plugins.memory.search.eval_metrics import EvalMetrics, judge, mean
from plugins.support.workspace import parse_citation

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


def evaluate(call: Invocation, sets: Sequence[Path], *, cutoffs: Sequence[int], every: bool) -> int:
    """Print the metrics for the questions of each file, for the configured fusion method or for all with `every`."""
    asked = {each: read_questions(each) for each in sets}
    config = call.config()
    ways = FUSIONS if every else (config.memory.search.fusion,)
    done = [result for way in ways for result in run_search(_evaluated(call, _by(config, way), asked, cutoffs))]
    done.sort(key=lambda each: list(asked).index(each.file))
    if call.as_json:
        print_json({"ways": [_row(each) for each in done]}, call.out)
    else:
        _print(done, cutoffs, call.out)
    return SUCCESS


def _by(config: Config, fusion: Fusion) -> Config:
    search = msgspec.structs.replace(config.memory.search, fusion=fusion)
    return msgspec.structs.replace(config, memory=msgspec.structs.replace(config.memory, search=search))


async def _evaluated(
    call: Invocation, config: Config, sets: Mapping[Path, Sequence[EvalQuestion]], cutoffs: Sequence[int]
) -> list[EvalResult]:
    done = []
    async with opened_memory(call, config) as memory:
        await memory.update(lambda _: None)
        for file, asked in sets.items():
            await memory.search(asked[0].question, EVERYTHING)  # the first search loads the model, which is not measured
            judged: list[EvalMetrics] = []
            nothing, millis = [], []
            for each in asked:
                began = time.perf_counter()
                found = await memory.search(each.question, EVERYTHING, results=max(cutoffs))
                millis.append((time.perf_counter() - began) * 1000)
                if each.answers:
                    matched = [{place for place in each.answers if place.is_in(hit.chunk)} for hit in found.hits]
                    judged.append(judge(matched, each.answers, cutoffs))
                else:
                    nothing.append(not found.hits)
            millis.sort()
            done.append(
                EvalResult(
                    file=file,
                    fusion=config.memory.search.fusion,
                    questions=len(asked),
                    judged=mean(judged) if judged else None,
                    nothing=sum(nothing) / len(nothing) if nothing else None,
                    p50=millis[len(millis) // 2],
                    p95=millis[min(len(millis) - 1, len(millis) * 95 // 100)],
                )
            )
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
    """Print a table for each file, with the column `nothing` if there are questions without an answer, and without figures
    that need answers where there are none."""
    unanswered = any(each.nothing is not None for each in done)
    heads = [*(f"recall@{cutoff}" for cutoff in cutoffs), f"nDCG@{max(cutoffs)}", "MRR", *["nothing"] * unanswered]
    heads += ["p50 ms", "p95 ms"]
    files = list(dict.fromkeys(each.file for each in done))
    for number, file in enumerate(files):
        rows = [each for each in done if each.file == file]
        name = f"{printable(str(file))}: " if len(files) > 1 else ""
        out.write("\n" * bool(number) + f"{name}{rows[0].questions} questions\n\n{'':10}")
        out.write("".join(f"{head:>11}" for head in heads) + "\n")
        for each in rows:
            judged = each.judged
            shares: list[float | None] = [None] * (len(cutoffs) + 2)
            if judged:
                shares = [*(judged.recall[cutoff] for cutoff in cutoffs), judged.ndcg, judged.reciprocal]
            shares += [each.nothing] * unanswered
            cells = "".join(f"{'':11}" if share is None else f"{share:11.3f}" for share in shares)
            out.write(f"{each.fusion:10}{cells}{each.p50:11.1f}{each.p95:11.1f}\n")


# --- the questions ----------------------------------------------------------------------------------------------------


_TABLE = re.compile(r"\s*\[\[\s*questions\s*\]\]")


class InvalidQuestions(GatewayError):
    """An invalid file of questions; `str(error)` names the file and the line."""


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event of a session."""

    session: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9-]{1,64}$")]
    seq: Annotated[int, msgspec.Meta(ge=1)]


class Place(msgspec.Struct, frozen=True):
    """A range of lines of a document, from 1; the whole document if none is given."""

    path: str
    first: int = 1
    last: int | None = None

    def is_in(self, chunk: Chunk) -> bool:
        """Return True if a chunk contains one of the lines."""
        return self.path == chunk.path and chunk.last >= self.first and (self.last is None or chunk.first <= self.last)


LARGEST_FILE = 16 * 1024 * 1024
"""Bytes of a file of questions."""


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    answers: tuple[Annotated[str, msgspec.Meta(min_length=1)] | Turn, ...]


class EvalQuestion(msgspec.Struct, frozen=True):
    """A question and the places that answer it; none if it must find nothing."""

    question: str
    answers: frozenset[Place]


def read_questions(file: Path) -> list[EvalQuestion]:
    """Return the questions of a file, at least one. Raises OSError or InvalidQuestions."""
    try:
        content = read_at_most(file, LARGEST_FILE)
        if content is None:
            raise InvalidQuestions(f"{file} is larger than {LARGEST_FILE >> 20} MB.")
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidQuestions(f"{file} is not UTF-8.") from error
    entries = _tables(file, text) if file.suffix == ".toml" else _json_lines(file, text)
    asked = [_asked(file, line, entry) for line, entry in entries]
    if not asked:
        raise InvalidQuestions(f"{file} contains no questions.")
    return asked


def _json_lines(file: Path, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidQuestions(f"{file}, line {number}: invalid JSON: {error}.") from error


def _tables(file: Path, text: str) -> Iterator[tuple[int, Any]]:
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidQuestions(f"{file} is not valid TOML: {error}.") from error
    tables = found.pop("questions", [])
    if found or not isinstance(tables, list):
        raise InvalidQuestions(f"{file}, line 1: it must contain [[questions]] and nothing else.")
    starts = [number for number, line in enumerate(text.split("\n"), 1) if _TABLE.match(line)]
    yield from ((starts[at] if at < len(starts) else 1, table) for at, table in enumerate(tables))


def _asked(file: Path, line: int, entry: Any) -> EvalQuestion:
    try:
        written = msgspec.convert(entry, _Written)
    except msgspec.ValidationError as error:
        raise InvalidQuestions(f"{file}, line {line}: {error}.") from error
    return EvalQuestion(written.question, frozenset(_place(file, line, answer) for answer in written.answers))


def _place(file: Path, line: int, answer: str | Turn) -> Place:
    if isinstance(answer, Turn):
        return Place(f"sessions/{answer.session}.jsonl", answer.seq, answer.seq)
    cited = parse_citation(answer)
    if cited is None:
        if "#" in answer:
            raise InvalidQuestions(f"{file}, line {line}: {answer} is neither a path nor path#Lfirst-Llast.")
        return Place(answer)
    path, first, last = cited
    if not 1 <= first <= last:
        raise InvalidQuestions(f"{file}, line {line}: {answer} ends before it begins.")
    return Place(path, first, last)
