"""Pruning in turns: before each request, recorded in the log before it is sent, with the same bytes ever after."""

from __future__ import annotations

import asyncio
import io
import random
import re
import threading
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.pruned_session import repeats
from benchmarks.stage import Answer, Instrument, Model, Stage, hangs_after, says
from exuvia import Clear, PruningContext, hookimpl
from gateway.cli.context import show_context
from gateway.conversations.commands.context_report import pruned
from gateway.support.home import Home
from plugins.api.chat import CallDraft, ChatRequest, Delta, Reply
from plugins.api.models import ModelLimits
from plugins.api.pruning import HardClear, PrunedTools, PruningRules, SoftTrim
from plugins.host.hooks import Hooks
from sessions.events.codec import decode
from sessions.events.events import ContextPruned, PluginFailed, RequestSent, ToolReturned
from sessions.events.messages import ToolMessage, UserMessage
from sessions.events.pruning import Trim
from sessions.events.tokens import estimate
from sessions.state.context import Gauge, assemble
from sessions.state.reducer import evolve, project
from sessions.state.transcript import Transcript
from sessions.state.truncation import RESULT_SHARE
from tests.gateway.gateways import gateway
from tests.shelf import Shelf
from tests.stored import stored

OFF = PruningRules(mode="off")
ALWAYS = PruningRules(mode="always")


class Windowed(Model):
    """A model with a window of so many tokens."""

    def __init__(self, window: int | None, *answers: Answer) -> None:
        super().__init__(*answers)
        self.window = window

    def limits(self, model: str) -> ModelLimits:
        return ModelLimits(window=self.window)


def works(*tools: str) -> Answer:
    """Return a model that answers each message of a person with calls of these tools, and their results with a word."""

    async def answer(request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        asks = isinstance(request.context.messages[-1], UserMessage)
        calls = tuple(CallDraft(id="c", tool=tool, arguments="{}") for tool in tools) if asks else ()
        if not asks:
            yield Delta("done")
        yield Reply(text="" if asks else "done", model=request.model, stop="calls" if calls else "end", calls=calls)

    return answer


def results(request: ChatRequest) -> list[str]:
    return [message.text for message in request.context.messages if isinstance(message, ToolMessage)]


def reproduced(lines: list[bytes]) -> int:
    """Return how many requests the journal's lines rebuild to their recorded hash; fail at one that they do not."""
    transcript, before, gauge, count = Transcript(), None, Gauge(), 0
    for line in lines:
        recorded = decode(line)
        if isinstance(recorded.event, RequestSent):
            before = assemble(transcript, before)
            assert gauge.measure(before).sha256 == recorded.event.sha256, recorded.seq
            count += 1
        transcript = evolve(transcript, recorded)
    return count


@pytest.mark.parametrize("rules", [OFF, PruningRules(), ALWAYS])
async def test_a_result_that_is_too_large_is_shortened_before_the_next_call_of_the_same_turn(rules: PruningRules) -> None:
    model = Windowed(1000, works("tool"))
    stage = Stage(model, Instrument("tool", lambda: "a" * 50_000 + "z" * 50_000), pruning=rules)
    async with stage.playing():
        await stage.say("go")
    (text,) = results(model.requests[1])
    assert estimate(text) <= RESULT_SHARE * 1000
    assert text.startswith("aaa")
    assert "100,000 characters" in text
    (returned,) = stage.told(ToolReturned)
    assert len(returned.output) == 100_000
    kinds = [kind for kind in stage.kinds if kind in ("tool_returned", "context_pruned", "request_sent")]
    assert kinds == ["request_sent", "tool_returned", "context_pruned", "request_sent"]
    assert reproduced(stage.log.written) == 2


async def test_a_message_that_is_too_large_for_the_window_is_shown_as_head_and_tail() -> None:
    model = Windowed(1000, says("well"))
    stage = Stage(model)
    async with stage.playing():
        await stage.say("a" * 99_999 + "z")
        await stage.say("and?", "m2")
    (first, *_), (again, *_) = (request.context.messages for request in model.requests)
    assert estimate(first.text) <= 500
    assert "100,000 characters" in first.text
    assert again == first
    assert len(stage.told(ContextPruned)) == 1


async def test_a_model_with_a_smaller_window_is_shown_shorter_results() -> None:
    model = Windowed(None, works("tool"))
    stage = Stage(model, Instrument("tool", lambda: "x" * 6000), pruning=OFF)
    longest = []
    async with stage.playing():
        for number, window in enumerate((None, 10_000, 2000, None, 2000, 10_000, 1000)):
            model.window = window
            await stage.say("go", f"m{number}")
            longest.append([estimate(text) for text in results(model.requests[-1])])
    first = [sizes[0] for sizes in longest]
    bounds = [1500, 1500, 600, 600, 600, 600, 300]  # how dense a text is for the model may make it a little shorter
    assert all(0.97 * bound <= size <= bound for size, bound in zip(first, bounds, strict=True))
    assert all(size <= 300 for size in longest[-1])
    assert all(size <= 600 for size in longest[-2][:5])
    assert longest[-2][5] == 1500


async def test_without_a_known_window_nothing_is_shortened() -> None:
    model = Windowed(None, works("tool"))
    stage = Stage(model, Instrument("tool", lambda: "x" * 100_000), pruning=ALWAYS)
    async with stage.playing():
        for number in range(5):
            await stage.say("go", f"m{number}")
    assert stage.told(ContextPruned) == []


async def test_old_results_are_pruned_once_the_cache_is_cold_and_stay_so() -> None:
    model = Windowed(4000, works("tool"))
    stage = Stage(model, Instrument("tool", lambda: "x" * 4500))
    async with stage.playing():
        for number in range(6):
            await stage.say("go", f"m{number}")
        assert stage.told(ContextPruned) == []
        stage.clock.move(301)
        await stage.say("later", "cold")
        first_after = results(model.requests[-2])
        await stage.say("at once", "warm")
    (pruned,) = stage.told(ContextPruned)
    # the third-last assistant message is the last word on the fifth result
    assert [len(text) > 4000 for text in first_after] == [False] * 5 + [True]
    assert {edit.by for edit in pruned.edits} == {"tool_pruning"}
    assert results(model.requests[-1])[:6] == first_after
    assert reproduced(stage.log.written) == 16


async def test_a_restart_sends_the_same_bytes() -> None:
    model = Windowed(4000, works("tool"))
    stage = Stage(model, Instrument("tool", lambda: "x" * 4500), pruning=ALWAYS)
    async with stage.playing():
        for number in range(6):
            await stage.say("go", f"m{number}")
    again = Windowed(4000, says("back"))
    restarted = Stage(again, lines=list(stage.log.written), pruning=OFF)
    async with restarted.playing():
        await restarted.say("still there?", "after")
    last, first = model.requests[-1].context.messages, again.requests[0].context.messages
    assert tuple(first[: len(last)]) == last
    assert stage.told(ContextPruned) != []


async def test_a_turn_that_is_resumed_prunes_what_its_tool_returned_before_the_crash() -> None:
    model = Windowed(1000, says("", "tool"), hangs_after(""))
    stage = Stage(model, Instrument("tool", lambda: "x" * 90_000), pruning=OFF)
    async with stage.playing():
        stage.hear("go")
        await stage.until(lambda: len(model.requests) == 2)
    cut = next(n for n, line in enumerate(stage.log.written) if b'"kind":"tool_returned"' in line)
    again = Windowed(1000, says("back"))
    restarted = Stage(again, lines=stage.log.written[: cut + 1], pruning=OFF)
    async with restarted.playing():
        await restarted.until_settled()
    assert estimate(results(again.requests[0])[0]) <= RESULT_SHARE * 1000


# --- plugins ----------------------------------------------------------------------------------------------------------


class Tidy:
    """A third-party policy that clears every result of the tool `secret`."""

    @hookimpl
    def propose_prunes(self, context: PruningContext) -> list[Clear]:
        pairs = zip(context.sources, context.messages, strict=True)
        return [Clear(of=of, note="[withheld]") for of, message in pairs if isinstance(message, ToolMessage)]


class Broken:
    """A third-party policy that fails in another way each time."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    @hookimpl
    def propose_prunes(self, context: PruningContext) -> Any:
        answer = self._answers.pop(0) if self._answers else []
        if isinstance(answer, BaseException):
            raise answer
        return answer


async def test_a_third_party_policys_edits_and_failures_are_logged_and_the_turn_continues() -> None:
    hooks = Hooks()
    nonsense = [Clear(of=10**6, note=""), Trim(of=1, head=-3, tail=0), "?"]
    hooks.register("broken", Broken(SystemExit(1), nonsense, KeyboardInterrupt()))
    hooks.register("tidy", Tidy())
    model = Windowed(1000, works("tool"))
    stage = Stage(model, Instrument("tool", lambda: "secret " * 20), hooks=hooks)
    async with stage.playing():
        for number in range(3):
            await stage.say("go", f"m{number}")
    assert results(model.requests[-1]) == ["[withheld]"] * 3
    failures = stage.told(PluginFailed)
    assert [(failed.plugin, failed.hook, failed.off) for failed in failures] == [
        ("broken", "propose_prunes", False),
        ("broken", "propose_prunes", False),
        ("broken", "propose_prunes", True),
    ]
    assert failures[0].sentence == "SystemExit: 1"
    assert len(hooks.refused) == 1
    assert {edit.by for event in stage.told(ContextPruned) for edit in event.edits} == {"tidy"}
    assert reproduced(stage.log.written) == 6


async def test_cancelling_a_turn_does_not_wait_for_a_third_party_policy() -> None:
    hang, hooks = threading.Event(), Hooks()

    class Slow:
        @hookimpl
        def propose_prunes(self) -> list[Clear]:
            hang.wait()
            return []

    hooks.register("slow", Slow())
    stage = Stage(Windowed(1000, says("hi")), hooks=hooks)
    async with stage.playing():
        stage.hear("go")
        await stage.until(lambda: stage.turn.running)
        await asyncio.sleep(0.02)
        assert stage.turn.cancel()
        await stage.until_settled()
    hang.set()
    assert stage.told(RequestSent) == []


FAILING = """
from exuvia import hookimpl

@hookimpl
def propose_prunes(context):
    raise RuntimeError("too hot")
"""


async def test_a_real_gateway_prunes_as_configured_and_reports_savings_and_failing_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("failing_package", "failing", FAILING)
    asks: dict[str, Any] = {"text": "", "calls": [{"tool": "read", "arguments": {"path": "big.txt"}}]}
    settings = {
        "plugins.allow": ["failing"],
        "agent.context_window": 12_000,
        "pruning.mode": "always",
        "pruning.min_prunable_chars": 0,
        "pruning.hard_clear.placeholder": "[gone]",
    }
    home = tmp_path / "home"
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "big.txt").write_text("a line of text\n" * 800)
    async with gateway(home, script=[asks, {"text": "Seen."}] * 6, settings=settings) as running:
        client = await running.connect()
        for number in range(6):
            assert await client.chat(f"look {number}") == ""  # the first reply only asks for the tool
        told = await client.command("/context")
        status = await client.command("/status")
    assert re.search(r"^Pruned: \d trimmed, [1-9] cleared, saving \d\d,\d{3} characters", told, re.MULTILINE)
    assert "'failing' (propose_prunes) is not used: it is disabled until a restart (RuntimeError: too hot)." in status
    (journal,) = (home / "sessions").iterdir()
    events = [decode(line).event for line in journal.read_bytes().splitlines(keepends=True)]
    assert [event.off for event in events if isinstance(event, PluginFailed)] == [False, False, True]
    edits = [edit for event in events if isinstance(event, ContextPruned) for edit in event.edits]
    assert {edit.note for edit in edits if isinstance(edit, Clear)} == {"[gone]"}
    for turn in range(1, 7):
        assert show_context(Home(home), "main", io.StringIO(), turn=turn, call=None, as_json=False) == 0


# --- any session -------------------------------------------------------------------------------------------------------


RULES = st.builds(
    PruningRules,
    mode=st.sampled_from(["off", "cache-ttl", "always"]),
    ttl=st.sampled_from([0.0, 60.0, 300.0]),
    keep_last_assistants=st.integers(0, 4),
    soft_trim_ratio=st.floats(0, 1),
    hard_clear_ratio=st.floats(0, 1),
    min_prunable_chars=st.integers(0, 5000),
    soft_trim=st.builds(
        SoftTrim, max_chars=st.integers(0, 900), head_chars=st.integers(0, 900), tail_chars=st.integers(0, 900)
    ),
    hard_clear=st.builds(HardClear, enabled=st.booleans(), placeholder=st.text(st.characters(codec="utf-8"), max_size=40)),
    tools=st.builds(PrunedTools, deny=st.sampled_from([(), ("a",), ("*",)])),
)


@settings(max_examples=40, deadline=None)
@given(RULES, st.sampled_from([256, 1000, 4000]), st.lists(st.tuples(st.integers(0, 5000), st.sampled_from("aé日😀"))))
def test_whatever_the_rules_a_replay_sees_what_was_sent_and_a_view_only_ever_shrinks(
    rules: PruningRules, window: int, outputs: list[tuple[int, str]]
) -> None:
    asyncio.run(_played(rules, window, outputs))


async def _played(rules: PruningRules, window: int, outputs: list[tuple[int, str]]) -> None:
    sizes = iter(outputs)
    model = Windowed(window, works("a", "b"))

    def output() -> str:
        size, letter = next(sizes, (10, "x"))
        return letter * size

    stage = Stage(model, Instrument("a", output), Instrument("b", output), pruning=rules)
    async with stage.playing():
        for number in range(1 + len(outputs) // 2):
            stage.clock.move(100)
            await stage.say("go" * 20 * (number % 3), f"m{number}")
    assert project(stage.log.written) == stage.recorder.transcript
    assert reproduced(stage.log.written) == len(model.requests)
    for before, after in pairwise(model.requests):
        pairs = zip(before.context.messages, after.context.messages, strict=False)
        assert all(len(one.text) >= len(other.text) for one, other in pairs)


# --- long sessions ----------------------------------------------------------------------------------------------------


TURNS = 150


@pytest.mark.parametrize("rules", [PruningRules(), ALWAYS], ids=["cache-ttl", "always"])
@pytest.mark.parametrize("window", [4000, 8000, 200_000])
async def test_hundreds_of_turns_with_huge_results_keep_what_pruning_promises(
    tmp_path: Path, window: int, rules: PruningRules
) -> None:
    chance = random.Random(f"{window}{rules.mode}")
    model = Windowed(window, works("a", "b"))

    def output() -> str:
        return "y" * int(10 ** chance.uniform(1, 5.3))  # up to 200,000 characters

    stage = Stage(model, Instrument("a", output), Instrument("b", output), pruning=rules)
    async with stage.playing():
        for number in range(TURNS):
            stage.clock.move(chance.choice([1, 1, 1, 1000]))
            await stage.say("go", f"m{number}")
            for request in model.requests:
                assert max(map(estimate, results(request)), default=0) <= RESULT_SHARE * window
            model.requests.clear()
    path = tmp_path / "sessions" / "20261121-120000-aaaaaa.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"".join(stage.log.written))
    assert stored(path).verify().events == len(stage.log.written)
    assert reproduced(stage.log.written) == 2 * TURNS
    for turn in range(TURNS, 0, -TURNS // 6):
        assert show_context(Home(tmp_path), "main", io.StringIO(), turn=turn, call=None, as_json=False) == 0
    edits = [edit for event in stage.told(ContextPruned) for edit in event.edits]
    assert {edit.by for edit in edits} == {"oversize", "tool_pruning"} if window < 200_000 else {"tool_pruning"}
    assert all(edit.saved > 0 for edit in edits)


async def test_a_busy_session_mostly_resends_the_same_prefix() -> None:
    chance = random.Random(4)
    model = Windowed(20_000, works("tool"))
    tool = Instrument("tool", lambda: "y" * int(10 ** chance.uniform(2, 4)))
    stage = Stage(model, tool, pruning=msgspec.structs.replace(ALWAYS, min_prunable_chars=10_000))
    async with stage.playing():
        for number in range(100):
            await stage.say("go", f"m{number}")
    assert {type(edit) for event in stage.told(ContextPruned) for edit in event.edits} == {Trim, Clear}
    pairs = zip(model.requests, model.requests[1:], strict=False)
    shares = [repeats(request.context, before.context) for before, request in pairs]
    assert sum(repeated for _, repeated in shares) >= 0.9 * sum(size for size, _ in shares)


async def test_the_report_of_the_context_counts_what_is_trimmed_and_cleared() -> None:
    tool = Instrument("tool", lambda: "x" * 4500)
    stage = Stage(Windowed(4000, works("tool")), tool, pruning=msgspec.structs.replace(ALWAYS, min_prunable_chars=10_000))
    async with stage.playing():
        for number in range(8):
            await stage.say("go", f"m{number}")
    told = pruned(stage.recorder.transcript.view)
    shown = results(stage.model.requests[-1])
    assert told.cleared == sum(text.startswith("[Old") for text in shown) > 0
    assert told.trimmed == sum(text.startswith("x") and len(text) < 4500 for text in shown) > 0
    assert told.saved == 8 * 4500 - sum(map(len, shown))
