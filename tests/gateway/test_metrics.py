"""`/metrics`: the counts are correct, and Prometheus can read the page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.stage import MemoryLog
from gateway.metrics.counters import SECONDS, Counters
from gateway.metrics.process import LongestLag, LoopLag
from gateway.metrics.prometheus import CONTENT_TYPE, Counter, Histogram, counter, gauge, histograms, page
from gateway.metrics.session_meter import SessionMeter
from gateway.status.overview import Overview
from plugins.testing.contexts import ManualClock
from sessions.events.events import (
    CallRef,
    CommandAnswered,
    Event,
    Failure,
    ModelReplied,
    PluginFailed,
    RequestedCall,
    RequestSent,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from sessions.events.messages import Usage
from sessions.state.transcript import Transcript
from sessions.store.protocols import START
from sessions.store.recorder import Recorder
from tests.gateway.exposition import Samples, read
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.stories import opened, received
from tests.waiting import VirtualTime, deadline

Script = list[dict[str, Any]]

SECRET = "a-second-token-that-is-long-enough"


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name][tuple(labels.items())]


async def scraped(on: Gateway) -> Samples:
    async with on.http.get(f"{on.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == CONTENT_TYPE
        return read(await answer.text())


# --- the page ---------------------------------------------------------------------------------------------------------


async def test_the_metrics_count_what_the_gateway_did(tmp_path: Path) -> None:
    script: Script = [
        {"text": "Let me look.", "calls": [{"tool": "read", "arguments": {"path": "no-such-file-of-mine.md"}}]},
        {"error": "stream_cut"},
        {"text": "It is not there."},
        {"error": "credentials_refused"},
        {"text": "never said"},
    ]
    async with gateway(tmp_path / "home", script=script) as on:
        client = await on.connect()
        await client.send("What is in my note on the unicorn?", session="my-secret-plans")
        await client.until_event("turn_ended")
        await client.send("And now?", session="my-secret-plans")
        await client.until_event("turn_ended")
        await client.command("/nonsense", session="my-secret-plans")
        async with deadline():
            while value(samples := await scraped(on), "exuvia_pending_bytes"):
                await asyncio.sleep(0.01)  # an event that nobody waits for is not durable yet

        assert value(samples, "exuvia_turns_total", outcome="replied") == 1
        assert value(samples, "exuvia_turns_total", outcome="failed") == 1
        assert value(samples, "exuvia_turns_total", outcome="abandoned") == 0
        assert value(samples, "exuvia_turn_errors_total", code="credentials_refused") == 1
        assert value(samples, "exuvia_provider_errors_total", provider="scripted", kind="stream_cut") == 1
        assert value(samples, "exuvia_provider_errors_total", provider="scripted", kind="credentials_refused") == 1
        assert value(samples, "exuvia_circuit_breaker_state", provider="scripted", state="closed") == 1
        assert value(samples, "exuvia_circuit_breaker_state", provider="scripted", state="open") == 0
        assert value(samples, "exuvia_messages_total") == 3
        assert value(samples, "exuvia_commands_total", outcome="failed") == 1
        assert value(samples, "exuvia_tool_calls_total", outcome="failed") == 1
        counted = {step: value(samples, "exuvia_turn_step_seconds_count", step=step) for step in Counters().steps}
        assert counted == {"durable": 3, "waiting": 2, "first_text": 2, "answer": 2, "tool": 1, "end": 2}
        assert value(samples, "exuvia_turn_seconds_count") == 2
        assert value(samples, "exuvia_tokens_total", model="script", direction="input") > 0
        assert value(samples, "exuvia_sync_seconds_count") >= 6
        now = {"sessions": 1, "open_conversations": 1, "running_turns": 0, "websockets": 1, "subscriptions": 1, "ready": 1}
        assert {name: value(samples, f"exuvia_{name}") for name in now} == now
        assert value(samples, "exuvia_storage_failed") == 0
        assert value(samples, "process_resident_memory_bytes") > 10_000_000
        assert value(samples, "process_open_fds") > 3


async def test_the_metrics_contain_no_people_sessions_or_arguments(tmp_path: Path) -> None:
    script: Script = [
        {"text": "Look.", "calls": [{"tool": "unicorn_tool", "arguments": {"path": "unicorn.md"}}]},
        {"text": "No."},
    ]
    async with gateway(tmp_path / "home", script=script) as on:
        client = await on.connect()
        await client.send("unicorn", session="unicorn")
        await client.until_event("turn_ended")
        async with on.http.get(f"{on.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            text = await answer.text()
        assert "unicorn" not in text
        assert "owner" not in text
        assert not any(session in text for session in on.journals())


async def test_metrics_are_for_the_owner_only(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home", settings={"people.ana.token": SECRET}) as on:
        for path in ("/metrics", "/status.json"):
            for headers, status in (
                ({}, 401),
                ({"Authorization": "Bearer wrong"}, 401),
                ({"Authorization": f"Bearer {SECRET}"}, 403),
                ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}, 403),
                ({"Authorization": f"Bearer {TOKEN}"}, 200),
            ):
                async with on.http.get(on.url + path, headers=headers) as answer:
                    assert (path, headers, answer.status) == (path, headers, status)


async def test_the_documentation_lists_every_metric_and_field(tmp_path: Path) -> None:
    written = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    metrics, _, status = written.partition("## `GET /status.json`")

    def first_cells(text: str) -> set[str]:
        return {name for cell in re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}

    async with gateway(tmp_path / "home") as on:
        client = await on.connect()
        await client.chat("hello")
        async with on.http.get(f"{on.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            shown = set(re.findall(r"^# TYPE (\w+)", await answer.text(), re.MULTILINE))
        families = shown | {family.name for family in Counters().families()}  # some have nothing to show yet
        families |= {"exuvia_channel_connected", "exuvia_channel_waiting_replies"}  # there is no channel
        families |= {name for name in first_cells(metrics) if name.startswith("exuvia_cluster_")}  # test_cluster has one
        assert first_cells(metrics) == families
        assert first_cells(status) == set(Overview.__struct_fields__)
    (rules,) = re.findall(r"```promql\n(.*?)```", metrics, re.DOTALL)
    assert {re.sub("_bucket$", "", name) for name in re.findall(r"exuvia_\w+", rules)} <= families


# --- the format -------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(min_size=1), st.lists(st.floats(0, 1e9)), min_size=1, max_size=50))
def test_any_labels_and_values_produce_a_valid_page(values: Mapping[str, list[float]]) -> None:
    observed = {label: Histogram((0.5, 1, 1e6)) for label in values}
    counted = Counter("kind")
    for label, each in values.items():
        counted.add(label, by=len(each))
        for one in each:
            observed[label].observe(one)
    samples = read(page([counter("a_total", "A.", counted), histograms("b_seconds", "B.", "kind", observed)]))
    for label, each in values.items():
        written = label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        assert samples["a_total"][(("kind", written),)] == len(each)
        assert samples["b_seconds_sum"][(("kind", written),)] == pytest.approx(sum(each))


def test_a_value_equal_to_a_bound_counts_below_it() -> None:
    observed = Histogram((1.0, 2.0))
    for each in (0.5, 1.0, 1.5, 2.0, 2.5):
        observed.observe(each)
    assert observed.counts == [2, 2, 1]
    assert (observed.count, observed.mean) == (5, 1.5)


def test_label_values_beyond_the_limit_are_counted_as_other() -> None:
    counted = Counter("model", "direction", most=4)
    for number in range(10):
        counted.add(f"model-{number}", "input", by=3)
        counted.add(f"model-{number}", "output")
    counted.add("model-0", "input")
    assert counted.counts == {
        ("model-0", "input"): 4,
        ("model-0", "output"): 1,
        ("model-1", "input"): 3,
        ("model-1", "output"): 1,
        ("other", "other"): 32,
    }
    assert counted.total == 41


def test_unknown_values_have_no_line() -> None:
    assert page([gauge("a", "A.", None), gauge("b", "B.", 0.25, x="y")]) == '# HELP b B.\n# TYPE b gauge\nb{x="y"} 0.25\n'


# --- the meter --------------------------------------------------------------------------------------------------------


class Metered:
    """A recorder on a log in memory with its meter, and the clock of both."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog()
        self.figures = Counters()
        self.recorder = Recorder(self.log, START, Transcript(), self.clock.now)
        self.meter = SessionMeter(self.recorder, self.figures, clock=self.clock.monotonic)
        self.recorder.append(opened())

    def note(self, event: Event, *, after: float = 0.0, turn: int | None = 1) -> int:
        self.clock.move(after)
        return self.recorder.append(event, turn=turn)

    async def sync(self, *, after: float = 0.0) -> None:
        self.clock.move(after)
        await self.log.close()

    def observed(self) -> dict[str, float]:
        return {step: seen.sum for step, seen in self.figures.steps.items() if seen.count}


def started(*takes: int) -> TurnStarted:
    return TurnStarted(takes=takes, provider="p", model="m", window=None, reserve=0)


def asked() -> RequestSent:
    return RequestSent(purpose="answer", sha256="", messages=1, tokens=1)


def replied(*calls: str) -> ModelReplied:
    wanted = tuple(RequestedCall(id=tool, tool=tool, arguments="{}") for tool in calls)
    return ModelReplied(
        reply=0, model="m-2026", text="t", calls=wanted, stop="end", usage=Usage(input=10, output=2, cached=4)
    )


async def test_each_step_of_a_turn_is_measured() -> None:
    stage = Metered()
    heard: list[bool] = []
    piece = stage.meter.first_text_observer(lambda: heard.append(True))
    message = stage.note(received("hello"), turn=None)
    await stage.sync(after=0.01)
    stage.note(started(message), after=2)
    stage.note(asked(), after=0.5)
    stage.clock.move(0.25)
    piece()
    stage.clock.move(0.5)
    piece()
    of = stage.note(replied("read"), after=1)
    ref = CallRef(of=of, index=0)
    stage.note(ToolCalled(call=ref, repeatable=True))
    stage.note(ToolReturned(call=ref, outcome="returned", output=""), after=4)
    stage.note(asked())
    stage.note(replied(), after=1)  # nothing of it was streamed
    stage.note(TurnEnded(outcome="replied", millis=1))
    assert "end" not in stage.observed(), "a turn has not ended before that is on the disk"
    await stage.sync(after=0.125)

    assert heard == [True, True]
    assert stage.observed() == {
        "durable": pytest.approx(0.01),
        "waiting": pytest.approx(2.01),
        "first_text": pytest.approx(0.25),
        "answer": pytest.approx(1.75 + 1),
        "tool": pytest.approx(4),
        "end": pytest.approx(0.125),
    }
    assert stage.figures.turn_seconds.sum == pytest.approx(0.5 + 1.75 + 4 + 1 + 0.125)
    assert stage.figures.tokens.counts == {("m-2026", "input"): 20, ("m-2026", "output"): 4}
    assert stage.figures.cached_tokens.counts == {("m-2026",): 8}


async def test_messages_before_a_restart_and_abandoned_turns_are_not_measured() -> None:
    stage = Metered()
    stage.note(started(1))
    stage.note(TurnEnded(outcome="abandoned", millis=0, error=Failure(code="not_resumed", sentence="No.")))
    await stage.sync()
    assert stage.observed() == {}
    assert stage.figures.turn_seconds.count == 0
    assert stage.figures.turns.counts[("abandoned",)] == 1
    assert stage.figures.turn_errors.counts == {("not_resumed",): 1}


async def test_a_successful_turn_clears_the_last_error() -> None:
    stage = Metered()
    failure = Failure(code="rate_limited", sentence="Too many.")
    stage.note(started())
    stage.note(TurnEnded(outcome="failed", millis=0, error=failure))
    await stage.sync()
    assert stage.meter.last_error == failure
    stage.note(started(), turn=2)
    stage.note(TurnResumed(attempt=1), turn=2)
    stage.note(TurnEnded(outcome="replied", millis=0), turn=2)
    await stage.sync()
    assert stage.meter.last_error is None


async def test_a_failed_disk_and_a_failed_plugin_are_counted() -> None:
    stage = Metered()
    stage.note(received("hello"), turn=None)
    stage.note(PluginFailed(plugin="x", hook="run", sentence="It broke."))
    stage.clock.move(7)
    stage.log.fail()
    assert stage.figures.storage_failures.total == 1
    assert stage.figures.storage_failed == (7.0, "the disk is full")
    assert stage.figures.plugin_failures.counts == {("x", "run"): 1}
    assert stage.observed() == {}, "what never reached the disk took no time to reach it"
    assert stage.figures.messages.total == 0


async def test_events_are_counted_once_durable() -> None:
    stage = Metered()
    stage.note(received("hello"), turn=None)
    on_disk = stage.log.end
    stage.note(received("hello again", "m2"), turn=None)
    stage.log._durable(on_disk)
    assert stage.figures.messages.total == 1
    await stage.sync()
    assert stage.figures.messages.total == 2


async def test_an_answered_command_is_removed_from_the_meter() -> None:
    stage = Metered()
    for number in range(100):
        seq = stage.note(received("/status", f"m{number}"), turn=None)
        stage.note(CommandAnswered(answers=seq, answer="", failed=False), turn=None)
        await stage.sync()
    assert stage.figures.commands.counts[("answered",)] == 100
    assert not stage.meter._received
    assert not stage.meter._undurable


# --- the loop ---------------------------------------------------------------------------------------------------------


async def test_a_blocked_event_loop_is_measured_and_reported_for_minutes() -> None:
    observed = Histogram(SECONDS)
    with VirtualTime() as time:
        with LoopLag(observed) as lag:
            await asyncio.sleep(0)
            time.block(0.5)
            await asyncio.sleep(0.01)
            assert [lag.last_minute, lag.last_minute] == pytest.approx([0.25, 0.25])  # two who read do not share it
            assert lag.last_minutes == pytest.approx(0.25)
        assert observed.count == 1
        await asyncio.sleep(1)
        assert observed.count == 1, "the timer ends with the block"


def test_bucket_bounds_ascend() -> None:
    for observed in (Counters().turn_seconds, Counters().sync_seconds):
        assert all(low < high for low, high in pairwise(observed.bounds))


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 5)), min_size=1, max_size=60))
def test_the_longest_lag_is_that_of_its_window(steps: list[tuple[float, float]]) -> None:
    longest, now = LongestLag(60.0), 0.0
    all_: list[tuple[float, float]] = []
    for pause, delay in steps:
        now += pause
        all_.append((now, delay))
        longest.add(now, delay)
        assert longest.value == max(each for at, each in all_ if at > now - 60.0)
