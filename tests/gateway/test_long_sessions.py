"""Long sessions with a model that refuses requests longer than its window: invariants of each request, cycle and log, at
windows from 4k to 200k."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.long_session import THRESHOLDS, StrictModel, long_stage
from gateway.config.keys import CompactionKeys, FlushKeys
from gateway.conversations.turn.answering import OVERFLOWS
from plugins.api.pruning import PruningMode, PruningRules
from sessions.state.compaction import budget
from tests.gateway.long_session import assert_sound, hash_by_the_page, is_request, lines_of, talk


@pytest.mark.parametrize(
    ("window", "turns", "least", "mode"), [(4_000, 100, 40, "always"), (8_000, 150, 50, "always"), (200_000, 80, 3, "off")]
)
async def test_no_request_of_a_long_session_exceeds_the_window(
    window: int, turns: int, least: int, mode: PruningMode, tmp_path: Path
) -> None:
    model = StrictModel(window, seed=4)
    on = long_stage(tmp_path, model, pruning=PruningRules(mode=mode))
    async with on.playing():
        await talk(on, turns)
    assert model.refused == []
    assert {purpose for purpose, _ in model.asked} == {"answer", "flush", "summary"}
    assert_sound(on)
    made = [line for line in lines_of(on) if line["kind"] == "context_compacted"]
    allowed = budget(window, THRESHOLDS)
    assert len(made) >= least
    assert {line["by"] for line in made} == {"model_summary"}
    assert all(line["tokens_after"] < allowed.flush_at for line in made)  # or it would compact again at once (failure 1)
    assert {line["outcome"] for line in lines_of(on) if line["kind"] == "memory_flushed"} == {"written"}  # never twice (9)
    note = next((tmp_path / "workspace" / "memory").iterdir()).read_text()
    assert len(set(note.split("<!--"))) == len(note.split("<!--"))


async def test_the_page_computes_each_request_of_a_session_that_was_compacted_and_pruned(tmp_path: Path) -> None:
    on = long_stage(tmp_path, StrictModel(8_000, seed=5))
    async with on.playing():
        await talk(on, 60)
    lines = lines_of(on)
    assert sum(line["kind"] == "context_compacted" for line in lines) > 10
    assert [line["sha256"] for line in lines if is_request(line)] == [
        hash_by_the_page(lines[: line["seq"] - 1]) for line in lines if is_request(line)
    ]


@pytest.mark.parametrize("factor", [1.4, 2.0])
async def test_a_tokenizer_that_counts_more_than_estimated_is_learnt_before_it_refuses_anything(
    factor: float, tmp_path: Path
) -> None:
    """Newest results that are too long by themselves are shortened before the request (`Compactor._unstuck`)."""
    model = StrictModel(8_000, seed=4, factor=factor)
    on = long_stage(tmp_path, model)
    async with on.playing():
        await talk(on, 60)
    assert model.refused == []
    assert_sound(on)
    by = [line["by"] for line in lines_of(on) if line["kind"] == "context_compacted"]
    assert by.count("model_summary") > 0.9 * len(by)  # where there is little room an extract may stand for one


async def test_no_message_is_flushed_twice(tmp_path: Path) -> None:
    """Failure 9. The guard is `covered`, from which a flush of the same cycle continues."""
    model = StrictModel(32_000, seed=4)
    growing = CompactionKeys(memory_flush=FlushKeys(force_bytes=40_000))
    on = long_stage(tmp_path, model, compaction=growing)
    async with on.playing():
        await talk(on, 80)
    flushes = [request.context.messages[-1].text for request in model.requests if request.purpose == "flush"]
    asked = Counter(found for text in flushes for found in re.findall(r"Turn \d+, about", text))
    assert set(asked.values()) == {1}
    cycles = Counter(line["compaction"] for line in lines_of(on) if line["kind"] == "memory_flushed")
    assert max(cycles.values()) > 1


async def test_a_server_that_calls_everything_too_long_is_asked_a_few_times_however_long_the_conversation(
    tmp_path: Path,
) -> None:
    """Failure 3. The guard is `OVERFLOWS`: each refusal halves the view, which a long one allows many times."""
    model = StrictModel(200_000, seed=4)
    on = long_stage(tmp_path, model, longest=400)
    async with on.playing():
        await talk(on, 120)
        model.factor, before = 1e6, len(model.asked)
        await on.say("And now?", "last")
    (*_, ended) = (line for line in lines_of(on) if line["kind"] == "turn_ended")
    assert ended["error"]["code"] == "context_overflow"
    assert [purpose for purpose, _ in model.asked[before:]].count("answer") == OVERFLOWS + 1
    assert_sound(on)
