"""The kit for policies, summarizers and flushes: the built-ins pass, and what is broken in one way fails the check for
it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from exuvia import (
    AskModel,
    Clear,
    CompactionContext,
    CompactionInput,
    CompactionPolicyConformance,
    Edit,
    FlushConformance,
    FlushResult,
    FlushRules,
    PruningContext,
    PruningPolicyConformance,
    Summarizer,
    SummarizerConformance,
    Summary,
    Trim,
    hookimpl,
)
from plugins.commands.builtin import LazyExtract, LazyMemoryFlush, LazyModelSummary
from plugins.policies import tool_pruning
from sessions.events.messages import ToolMessage
from tests.conformance.biting import bites, checks_of

# --- the built-ins ----------------------------------------------------------------------------------------------------


class TestToolPruning(PruningPolicyConformance):
    plugin: ClassVar[Any] = tool_pruning


class TestModelSummary(SummarizerConformance):
    summarizer = LazyModelSummary


class TestExtract(SummarizerConformance):
    summarizer = LazyExtract


class TestMemoryFlush(FlushConformance):
    flush = LazyMemoryFlush


# --- broken pruning policies ------------------------------------------------------------------------------------------


class Prunes:
    """A plugin that proposes what a function says."""

    def __init__(self, act: Callable[[PruningContext], Any]) -> None:
        self._act = act

    @hookimpl
    def propose_prunes(self, context: PruningContext, budget: Any, now: datetime) -> Any:
        return self._act(context)


def results(context: PruningContext) -> list[int]:
    pairs = zip(context.sources, context.messages, strict=True)
    return [of for of, message in pairs if isinstance(message, ToolMessage)]


def clears(context: PruningContext) -> list[Edit]:
    return [Clear(of=of, note="gone") for of in results(context)]


class Wishing:
    @hookimpl
    def propose_prunes(self, context: PruningContext, request_options: object) -> list[Edit]:
        return []


def takes_long(context: PruningContext) -> list[Edit]:
    time.sleep(len(context.messages) / 20_000)
    return []


class Alternating:
    """Keeps count of how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, context: PruningContext) -> list[Edit]:
        self.asked += 1
        return clears(context)[:: 1 + self.asked % 2]


def nibbles(context: PruningContext) -> list[Edit]:
    now = {of: context.edited[of].edit.head if of in context.edited else 5_000 for of in results(context)}  # type: ignore[union-attr]
    return [Trim(of=of, head=head - 100, tail=10) for of, head in now.items()]


PRUNING: dict[str, Any] = {
    "test_its_hook_is_valid": Wishing(),
    "test_every_conversation_is_decided": Prunes(lambda context: [Clear(of=context.sources[0], note="gone")]),
    "test_a_long_conversation_is_decided_in_time": Prunes(takes_long),
    "test_it_is_deterministic": Prunes(Alternating()),
    "test_it_stops_proposing_edits": Prunes(nibbles),
}


@pytest.mark.parametrize("check", PRUNING)
def test_a_broken_pruning_fails_the_check_for_it(check: str, tmp_path: Path) -> None:
    assert set(PRUNING) == checks_of(PruningPolicyConformance)
    broken = {"plugin": PRUNING[check], "seconds": 0.5}
    bites(PruningPolicyConformance, check, {"plugin": Prunes(clears)}, broken, tmp_path)


# --- broken compaction policies ---------------------------------------------------------------------------------------


class Plans:
    """A plugin that answers what a function says."""

    def __init__(self, act: Callable[[CompactionContext], Any]) -> None:
        self._act = act

    @hookimpl
    def plan_compaction(self, context: CompactionContext, budget: Any, trigger: str) -> Any:
        return self._act(context)


class Awaited:
    @hookimpl
    async def plan_compaction(self, context: CompactionContext) -> int:
        return context.cuts[-1]


def sleeps(context: CompactionContext) -> int | None:
    time.sleep(len(context.messages) / 10_000)
    return None


class Wandering:
    """Goes on where it cut last."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self, context: CompactionContext) -> int | None:
        self.last += 1
        return context.cuts[self.last % len(context.cuts)] if context.cuts else None


COMPACTION: dict[str, Any] = {
    "test_its_hook_is_valid": Awaited(),
    "test_every_conversation_is_decided": Plans(lambda context: context.places[-1]),
    "test_a_long_conversation_is_decided_in_time": Plans(sleeps),
    "test_it_is_deterministic": Plans(Wandering()),
}


@pytest.mark.parametrize("check", COMPACTION)
def test_a_broken_compaction_fails_the_check_for_it(check: str, tmp_path: Path) -> None:
    assert set(COMPACTION) == checks_of(CompactionPolicyConformance)
    sound = Plans(lambda context: context.cuts[-1] if context.cuts else None)
    broken = {"plugin": COMPACTION[check], "seconds": 0.5}
    bites(CompactionPolicyConformance, check, {"plugin": sound}, broken, tmp_path)


# --- broken summarizers and flushes -----------------------------------------------------------------------------------


class Named:
    name: ClassVar[str] = "mine"


class Misnamed(LazyExtract):
    name: ClassVar[str] = "Mine!"


class Believing(Named):
    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        said = "\n".join(message.text for message in leaving.messages)[:20_000]
        return Summary(text=(await ask(system="", text=said, limit=leaving.limit)).text, by=self.name)


class Raising(Named):
    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        try:
            return Summary(text=(await ask(system="", text="well", limit=9)).text, by=self.name)
        except Exception as error:
            raise RuntimeError("no model") from error


class Greedy(Named):
    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        said = "\n".join(message.text for message in leaving.messages)
        await ask(system="", text=said, limit=leaving.limit)
        return Summary(text="They talked.", by=self.name)


class Copying(Named):
    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        return Summary(text="\n".join(message.text for message in leaving.messages), by=self.name)


class Sleepy(Named):
    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        time.sleep(0.6)  # noqa: ASYNC251 - what is wrong with it
        return Summary(text="They talked.", by=self.name)


SUMMARIZERS: dict[str, type[Summarizer]] = {
    "test_its_class_is_valid": Misnamed,
    "test_any_reply_leads_to_a_summary": Believing,
    "test_provider_errors_are_handled": Raising,
    "test_requests_fit_the_window": Greedy,
    "test_the_summary_respects_the_limit": Copying,
    "test_it_does_not_block_the_event_loop": Sleepy,
}


@pytest.mark.parametrize("check", SUMMARIZERS)
def test_a_broken_summarizer_fails_the_check_for_it(check: str, tmp_path: Path) -> None:
    assert set(SUMMARIZERS) == checks_of(SummarizerConformance)
    bites(SummarizerConformance, check, {"summarizer": LazyExtract}, {"summarizer": SUMMARIZERS[check]}, tmp_path)


class Shouting(LazyMemoryFlush):
    name: ClassVar[str] = "MINE"


class Empty(Named):
    async def flush(self, leaving: CompactionInput, ask: AskModel, rules: FlushRules) -> FlushResult:
        return FlushResult(outcome="written", text=(await ask(system="", text="well", limit=9)).text)


class Failing(Named):
    async def flush(self, leaving: CompactionInput, ask: AskModel, rules: FlushRules) -> FlushResult:
        try:
            await ask(system="", text="well", limit=9)
        except Exception as error:
            raise RuntimeError("no model") from error
        return FlushResult(outcome="nothing")


class Whole(Named):
    async def flush(self, leaving: CompactionInput, ask: AskModel, rules: FlushRules) -> FlushResult:
        said = "\n".join(message.text for message in leaving.messages)
        await ask(system="", text=said, limit=leaving.limit)
        return FlushResult(outcome="nothing")


class Tired(Named):
    async def flush(self, leaving: CompactionInput, ask: AskModel, rules: FlushRules) -> FlushResult:
        time.sleep(0.6)  # noqa: ASYNC251 - what is wrong with it
        return FlushResult(outcome="nothing")


FLUSHES: dict[str, Any] = {
    "test_its_class_is_valid": Shouting,
    "test_any_reply_leads_to_an_outcome": Empty,
    "test_provider_errors_are_handled": Failing,
    "test_requests_fit_the_window": Whole,
    "test_it_does_not_block_the_event_loop": Tired,
}


@pytest.mark.parametrize("check", FLUSHES)
def test_a_broken_flush_fails_the_check_for_it(check: str, tmp_path: Path) -> None:
    assert set(FLUSHES) == checks_of(FlushConformance)
    bites(FlushConformance, check, {"flush": LazyMemoryFlush}, {"flush": FLUSHES[check]}, tmp_path)
