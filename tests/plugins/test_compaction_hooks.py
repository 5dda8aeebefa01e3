"""Asking plugins where to cut, and telling them of compactions: whatever one does, the others are heard."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from exuvia import AfterCompaction, BeforeCompaction, CompactionBudget, CompactionContext, UserMessage, hookimpl
from plugins.api import hookspecs
from plugins.host.hooks import CompactionProposal, Hooks
from plugins.host.validation import NOTIFICATION_HOOKS
from sessions.events.events import PluginFailed

CONTEXT = CompactionContext(
    messages=(UserMessage(text="a"), UserMessage(text="b"), UserMessage(text="c")),
    places=(3, 5, 7),
    sizes=(10, 10, 10),
    head=5,
    cuts=(5, 7),
)
BUDGET = CompactionBudget(window=1000, target=625, keep_tokens=300, keep_messages=3)
BEGINS = BeforeCompaction(
    session="s", person="owner", key="main", compaction=1, trigger="budget", focus="", keep_from=5, tokens_before=700
)


class Plans:
    """A plugin that answers what the test says."""

    def __init__(self, act: Callable[[CompactionContext], Any]) -> None:
        self._act = act

    @hookimpl
    def plan_compaction(self, context: CompactionContext, budget: CompactionBudget, trigger: str) -> Any:
        assert (budget, trigger) == (BUDGET, "budget")
        return self._act(context)


class Hears:
    """A plugin that does what the test says when it is told something."""

    def __init__(self, act: Callable[[BeforeCompaction], Awaitable[object]]) -> None:
        self._act = act

    @hookimpl
    async def before_compaction(self, compaction: BeforeCompaction) -> None:
        await self._act(compaction)


def planning(*acts: Callable[[CompactionContext], Any]) -> Hooks:
    hooks = Hooks(0.2)
    for number, act in enumerate(acts):
        assert hooks.register(f"plugin{number}", Plans(act)), hooks.refused
    return hooks


def hearing(*acts: Callable[[BeforeCompaction], Awaitable[object]], seconds: float = 0.05) -> Hooks:
    hooks = Hooks(notification_seconds=seconds)
    for number, act in enumerate(acts):
        assert hooks.register(f"plugin{number}", Hears(act)), hooks.refused
    return hooks


async def ask(hooks: Hooks) -> CompactionProposal:
    return await hooks.plan_compaction(CONTEXT, BUDGET, "budget")


def raises(error: BaseException) -> Callable[[object], Any]:
    def act(_: object) -> Any:
        raise error

    return act


async def test_the_first_answer_counts_and_nobody_behind_it_is_asked() -> None:
    asked: list[int] = []

    def third(_: CompactionContext) -> int:
        asked.append(3)
        return 5

    hooks = planning(lambda _: None, lambda context: context.cuts[-1], third)
    assert await ask(hooks) == CompactionProposal(keep_from=7, failures=())
    assert asked == []


async def test_without_an_answer_there_is_no_plan() -> None:
    nothing = CompactionProposal(keep_from=None, failures=())
    assert await ask(Hooks()) == nothing
    assert await ask(planning(lambda _: None)) == nothing


class Seven(int):
    """A number that says it is whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda _: 3, "it returned 3, which is not in context.cuts"),
        (lambda _: -(10**30), f"it returned {-(10**30)}, which is not in context.cuts"),
        (lambda _: True, "it returned bool instead of a seq or None"),
        (lambda _: 5.0, "it returned float instead of a seq or None"),
        (lambda _: Seven(1), "it returned Seven instead of a seq or None"),
        (lambda _: [7], "it returned list instead of a seq or None"),
        (raises(SystemExit(3)), "SystemExit: 3"),
        (raises(asyncio.CancelledError()), "CancelledError"),
    ],
)
async def test_a_nonsense_answer_is_named_and_the_next_one_is_asked(
    act: Callable[[CompactionContext], Any], sentence: str
) -> None:
    failure = PluginFailed(plugin="plugin0", hook="plan_compaction", sentence=sentence)
    assert await ask(planning(act, lambda _: 5)) == CompactionProposal(keep_from=5, failures=(failure,))


async def test_a_number_with_too_many_digits_to_be_written_is_refused_too() -> None:
    planned = await ask(planning(lambda _: 10**5000))
    assert planned.keep_from is None
    assert len(planned.failures) == 1


async def test_everybody_is_told_one_after_the_other() -> None:
    heard: list[tuple[str, BeforeCompaction]] = []

    async def first(compaction: BeforeCompaction) -> None:
        await asyncio.sleep(0.01)
        heard.append(("first", compaction))

    async def second(compaction: BeforeCompaction) -> None:
        heard.append(("second", compaction))

    assert await hearing(first, second, seconds=5).before_compaction(BEGINS) == ()
    assert heard == [("first", BEGINS), ("second", BEGINS)]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("too hot"), "ValueError: too hot"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
async def test_one_that_fails_is_named_and_the_others_are_told(error: BaseException, sentence: str) -> None:
    heard: list[BeforeCompaction] = []

    async def well(compaction: BeforeCompaction) -> None:
        heard.append(compaction)

    failures = await hearing(raises(error), well).before_compaction(BEGINS)
    assert failures == (PluginFailed(plugin="plugin0", hook="before_compaction", sentence=sentence),)
    assert heard == [BEGINS]


async def test_one_that_takes_too_long_is_stopped_and_the_third_time_is_the_last() -> None:
    stopped: list[int] = []

    async def slow(_: BeforeCompaction) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(1)

    hooks = hearing(slow)
    told = [await hooks.before_compaction(BEGINS) for _ in range(4)]
    sentence = "it did not return within 0.05 seconds"
    assert [[(failure.sentence, failure.off) for failure in failures] for failures in told] == [
        [(sentence, False)],
        [(sentence, False)],
        [(sentence, True)],
        [],
    ]
    assert len(stopped) == 3
    (refusal,) = hooks.refused
    assert refusal.sentence.endswith(f"it is disabled until a restart ({sentence}).")


async def test_one_that_does_not_let_itself_be_stopped_is_left_behind() -> None:
    free = asyncio.Event()

    async def stubborn(_: BeforeCompaction) -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    (failure,) = await hearing(stubborn).before_compaction(BEGINS)
    assert failure.sentence == "it did not return within 0.05 seconds"
    free.set()
    await asyncio.sleep(0)


async def test_cancelling_whoever_tells_cancels_whoever_is_told() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(_: BeforeCompaction) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    telling = asyncio.create_task(hearing(slow, seconds=60).before_compaction(BEGINS))
    await began.wait()
    telling.cancel()
    await asyncio.wait([telling])
    assert telling.cancelled()
    assert ended.is_set()


class Plain:
    @hookimpl
    def after_compaction(self, compaction: AfterCompaction) -> None:
        return None


class Awaited:
    @hookimpl
    async def plan_compaction(self) -> int | None:
        return None


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [(Plain(), "after_compaction must be an async function"), (Awaited(), "plan_compaction must be a plain function")],
)
async def test_a_notice_is_async_and_a_decision_is_not(plugin: object, reason: str) -> None:
    hooks = Hooks()
    assert not hooks.register("odd", plugin)
    assert reason in hooks.refused[0].sentence


def test_the_notices_are_the_hooks_that_are_async() -> None:
    specs = {name: spec for name, spec in vars(hookspecs).items() if hasattr(spec, "exuvia_spec")}
    assert {name for name, spec in specs.items() if inspect.iscoroutinefunction(spec)} == NOTIFICATION_HOOKS
    assert len(specs) > len(NOTIFICATION_HOOKS)
