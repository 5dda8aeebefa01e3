"""The delay of the event loop while plugins misbehave: sleep, raise, leak tasks and flood the log.

The limit is 50 ms. The delay is measured by a timer with a period of one millisecond.
"""

from __future__ import annotations

import asyncio
import io
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

import structlog

from benchmarks.figures import Figure, figure
from benchmarks.setting import Setting
from exuvia import EndedTurn, PruningBudget, PruningContext, PruningRules, hookimpl
from gateway.support import logs
from plugins.host.hooks import Hooks
from plugins.support import task_leaks
from sessions.events.pruning import Edit
from sessions.state.view import View

BAR_MILLIS = 50.0

CALLS = 5
"""Calls of each hook in one run."""

LINES = 2000
"""Log lines of one call."""

TURN = EndedTurn(session="s", person="owner", key="main", turn=1, outcome="replied", millis=1)

CONTEXT = PruningContext(messages=(), sources=(), sizes=(), characters=0, edited=MappingProxyType({}))

BUDGET = PruningBudget(window=10_000, reserve=1000, rules=PruningRules())


class Sleeps:
    """A plugin whose decision hook blocks its thread for 100 ms."""

    @hookimpl
    def propose_prunes(self, context: PruningContext) -> Sequence[Edit]:
        time.sleep(0.1)
        return []


class Raises:
    """A plugin whose hooks raise exceptions."""

    @hookimpl
    def propose_prunes(self, context: PruningContext) -> Sequence[Edit]:
        raise SystemExit(context)

    @hookimpl
    async def turn_ended(self, turn: EndedTurn) -> None:
        raise KeyboardInterrupt(turn)


class Leaks:
    """A plugin whose notification hook leaks a hundred tasks."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    @hookimpl
    async def turn_ended(self, turn: EndedTurn) -> None:
        self.tasks = [asyncio.create_task(asyncio.sleep(3600)) for _ in range(100)]


class Floods:
    """A plugin whose decision hook logs thousands of lines."""

    @hookimpl
    def propose_prunes(self, context: PruningContext) -> Sequence[Edit]:
        for number in range(LINES):
            logging.getLogger("a_plugin").error("line %s", number)
        return []


def run(setting: Setting) -> list[Figure]:
    """Measure the longest delay of each run."""
    logs.configure("error", "text", io.StringIO())
    try:
        return asyncio.run(_measure(setting.runs))
    finally:
        structlog.reset_defaults()


async def _measure(runs: int) -> list[Figure]:
    asyncio.get_running_loop().set_task_factory(task_leaks.task_factory)
    kinds: dict[str, Callable[[], object]] = {"sleeps": Sleeps, "raises": Raises, "leaks tasks": Leaks, "floods": Floods}
    measured = {"no plugin": [await _longest(Hooks()) for _ in range(runs)]}
    for what, kind in kinds.items():
        measured[f"a plugin that {what}"] = [await _longest(_with([kind()])) for _ in range(runs)]
    measured["all four plugins"] = [await _longest(_with(kind() for kind in kinds.values())) for _ in range(runs)]
    return [
        figure("misbehaving-plugins", f"longest loop delay, {what}", "ms", delays, against="bar", reference=BAR_MILLIS)
        for what, delays in measured.items()
    ]


def _with(plugins: Iterable[object]) -> Hooks:
    hooks = Hooks()
    for number, plugin in enumerate(plugins):
        hooks.register(f"plugin_{number}", plugin)
    return hooks


async def _longest(hooks: Hooks) -> float:
    """Return the longest delay of the timer in milliseconds while the hooks are called."""
    late, done = [0.0], asyncio.Event()

    async def tick() -> None:
        while not done.is_set():
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append((time.perf_counter() - before - 0.001) * 1000)

    ticking = asyncio.create_task(tick())
    for _ in range(CALLS):
        await _once(hooks)
    await asyncio.sleep(task_leaks.GRACE + 0.1)  # leaked tasks are cancelled meanwhile
    done.set()
    await ticking
    return max(late)


async def _once(hooks: Hooks) -> None:
    calls: list[Awaitable[object]] = [
        hooks.propose_prunes(View(), CONTEXT, BUDGET, datetime.now(UTC)),
        hooks.turn_ended(TURN),
    ]
    await asyncio.gather(*calls)
