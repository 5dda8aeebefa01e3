"""`exuvia memory eval`: the quality and latency of searches for questions with known answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from gateway.cli.memory.eval_questions import EvalQuestion, read_questions
from gateway.cli.memory.memory_commands import opened_memory, run_search
from gateway.config.keys import Config, load_config
from gateway.support.home import Home
from gateway.support.printable import escaped
from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory_settings import Fusion
from plugins.memory.memory import Memory
from plugins.memory.search.eval_metrics import EvalMetrics, judge, mean

WELL = 0

FUSIONS: tuple[Fusion, ...] = ("measured", "openclaw", "copaw", "rrf")

MOST = 50
"""The largest number of results that can be evaluated."""


class EvalResult(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one fusion method, with the median and 95th percentile latency in milliseconds.

    The latency includes embedding the question.
    """

    fusion: str
    questions: int
    judged: EvalMetrics
    p50: float
    p95: float


def evaluate(
    home: Home,
    file: Path | None,
    environment: Mapping[str, str],
    questions: Path,
    out: TextIO,
    *,
    cutoffs: Sequence[int],
    every: bool,
    as_json: bool,
) -> int:
    """Print the metrics for the questions of a file, for the configured fusion method or for all with `every`."""
    asked = read_questions(questions)
    config = load_config(file or home.config, environment=environment, overrides={})
    ways = FUSIONS if every else (config.memory.search.fusion,)
    done = [run_search(_evaluated(home, _by(config, way), environment, asked, cutoffs)) for way in ways]
    if as_json:
        out.write(escaped(msgspec.json.encode({"ways": [_row(each) for each in done]}).decode()) + "\n")
    else:
        _print(done, cutoffs, out)
    return WELL


def _by(config: Config, fusion: Fusion) -> Config:
    search = msgspec.structs.replace(config.memory.search, fusion=fusion)
    return msgspec.structs.replace(config, memory=msgspec.structs.replace(config.memory, search=search))


async def _evaluated(
    home: Home, config: Config, environment: Mapping[str, str], asked: Sequence[EvalQuestion], cutoffs: Sequence[int]
) -> EvalResult:
    judged, millis = [], []
    async with opened_memory(home, config, environment) as memory:
        await memory.update(lambda _: None)
        await memory.search(asked[0].question, EVERYTHING)  # whoever comes first waits for the model to be loaded
        for each in asked:
            began = time.perf_counter()
            judged.append(await _judged(memory, each, cutoffs))
            millis.append((time.perf_counter() - began) * 1000)
    millis.sort()
    return EvalResult(
        fusion=config.memory.search.fusion,
        questions=len(asked),
        judged=mean(judged),
        p50=millis[len(millis) // 2],
        p95=millis[min(len(millis) - 1, len(millis) * 95 // 100)],
    )


async def _judged(memory: Memory, asked: EvalQuestion, cutoffs: Sequence[int]) -> EvalMetrics:
    found = await memory.search(asked.question, EVERYTHING, results=max(cutoffs))
    held = [{place for place in asked.answers if place.is_in(hit.chunk)} for hit in found.hits]
    return judge(held, asked.answers, cutoffs)


def _row(each: EvalResult) -> dict[str, float | str]:
    recall = {f"recall@{cutoff}": value for cutoff, value in each.judged.recall.items()}
    depth = max(each.judged.recall)
    return {
        "fusion": each.fusion,
        "questions": each.questions,
        **recall,
        f"ndcg@{depth}": each.judged.ndcg,
        "mrr": each.judged.reciprocal,
        "p50_ms": round(each.p50, 1),
        "p95_ms": round(each.p95, 1),
    }


def _print(done: Sequence[EvalResult], cutoffs: Sequence[int], out: TextIO) -> None:
    heads = [*(f"recall@{cutoff}" for cutoff in cutoffs), f"nDCG@{max(cutoffs)}", "MRR", "p50 ms", "p95 ms"]
    out.write(f"{done[0].questions} questions\n\n{'':10}" + "".join(f"{head:>11}" for head in heads) + "\n")
    for each in done:
        judged = each.judged
        shares = [*(judged.recall[cutoff] for cutoff in cutoffs), judged.ndcg, judged.reciprocal]
        cells = "".join(f"{share:11.3f}" for share in shares) + f"{each.p50:11.1f}{each.p95:11.1f}"
        out.write(f"{each.fusion:10}{cells}\n")
