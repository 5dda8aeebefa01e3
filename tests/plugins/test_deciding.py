"""Asking plugins what to prune: whatever a stranger's does, the others are heard and nothing raises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from exuvia import Clear, PruningBudget, PruningContext, PruningRules, Trim, hookimpl
from plugins.host.hook_calls import DECISION_SECONDS, MAX_FAILURES
from plugins.host.hooks import Hooks, PruningProposal
from plugins.support.untrusted import PluginCallFailed
from plugins.testing.contexts import NOON
from sessions.events.events import PluginFailed
from sessions.events.messages import AssistantMessage, ToolMessage, UserMessage
from sessions.events.pruning import Edited
from sessions.state.view import View
from sessions.state.view_size import CharacterCount

VIEW = (
    View()
    .grown(UserMessage(text="hi"), 3, 2)
    .grown(AssistantMessage(text=""), 4)
    .grown(ToolMessage(id="c", tool="read", text="x" * 99), 5)
)
BUDGET = PruningBudget(window=1000, reserve=0, rules=PruningRules())
CLEARED = Clear(of=5, note="gone", by="sharp", saved=95)
NOTHING = PruningProposal(edits=(), failures=())


def context() -> PruningContext:
    tally = CharacterCount()
    tally.follow(tuple(VIEW.messages))
    return PruningContext(
        messages=tally.messages, sources=tuple(VIEW.sources), sizes=tuple(tally.sizes), characters=tally.characters
    )


class Sharp:
    """A plugin as an author writes it: clears every result."""

    @hookimpl
    def propose_prunes(self, context: PruningContext) -> list[Clear]:
        pairs = zip(context.sources, context.messages, strict=True)
        return [Clear(of=of, note="gone", by="me") for of, message in pairs if isinstance(message, ToolMessage)]


class Does:
    """A plugin that does what the test says."""

    def __init__(self, act: Callable[[PruningContext], Any]) -> None:
        self._act = act

    @hookimpl
    def propose_prunes(self, context: PruningContext, budget: PruningBudget, now: Any) -> Any:
        return self._act(context)


def hooks_with(plugins: Mapping[str, object], seconds: float = DECISION_SECONDS) -> Hooks:
    hooks = Hooks(seconds)
    for name, plugin in plugins.items():
        assert hooks.register(name, plugin), hooks.refused
    return hooks


async def ask(hooks: Hooks) -> PruningProposal:
    return await hooks.propose_prunes(VIEW, context(), BUDGET, NOON)


class Mute(PluginCallFailed):
    """An error that fails to say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


Huge = type("H" * 10_000, (), {})


def raises(error: BaseException) -> Callable[[PruningContext], Any]:
    def act(_: PruningContext) -> Any:
        raise error

    return act


def alters(context: PruningContext) -> Any:
    context.edited[5] = Edited(edit=CLEARED, size=0)  # type: ignore[index]


async def test_a_plugin_proposes_and_who_and_how_much_are_ours_to_say() -> None:
    assert await ask(hooks_with({"sharp": Sharp()})) == PruningProposal(edits=(CLEARED,), failures=())


async def test_nobody_who_is_asked_is_nothing_proposed() -> None:
    assert await ask(Hooks()) == NOTHING


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (raises(ValueError("too hot")), "ValueError: too hot"),
        (raises(SystemExit(3)), "SystemExit: 3"),
        (raises(KeyboardInterrupt()), "KeyboardInterrupt"),
        (raises(asyncio.CancelledError()), "CancelledError"),
        (raises(GeneratorExit()), "GeneratorExit"),
        (lambda _: None, "it returned NoneType instead of a list"),
        (lambda _: (edit for edit in [CLEARED]), "it returned generator instead of a list"),
        (lambda _: ["nonsense"], "it proposed an invalid edit: str is neither a Trim nor a Clear"),
        (lambda _: [Trim(of=4, head=1, tail=1)], "there is no tool result at seq 4"),
        (raises(Mute()), "it failed without a message"),
        (lambda _: Huge(), f"it returned {'H' * 10_000}"[:300]),
        (lambda _: [Huge()], f"it proposed an invalid edit: {'H' * 10_000}"[:300]),
        (alters, "TypeError: 'mappingproxy' object does not support item assignment"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
async def test_what_fails_is_named_and_the_others_are_heard(
    act: Callable[[PruningContext], Any], sentence: str, first: bool
) -> None:
    plugins = {"odd": Does(act), "sharp": Sharp()}
    hooks = hooks_with(dict(sorted(plugins.items(), reverse=first)))
    failure = PluginFailed(plugin="odd", hook="propose_prunes", sentence=sentence)
    assert await ask(hooks) == PruningProposal(edits=(CLEARED,), failures=(failure,))


async def test_what_can_be_done_of_a_proposal_is_done_and_the_rest_is_named_in_part() -> None:
    wanted = [*(Clear(of=100 + n, note="") for n in range(5)), Clear(of=5, note="gone")]
    proposed = await ask(hooks_with({"sharp": Does(lambda _: wanted)}))
    assert proposed.edits == (CLEARED,)
    (failure,) = proposed.failures
    assert failure.sentence.startswith("there is no tool result at seq 100; there")
    assert failure.sentence.endswith(" (and 2 more)")


async def test_edits_of_several_plugins_meet_whoever_is_asked_first() -> None:
    plugins = {
        "mild": Does(lambda _: [Trim(of=5, head=20, tail=5)]),
        "other": Does(lambda _: [Trim(of=5, head=5, tail=20)]),
    }
    answers = {(await ask(hooks_with(dict(order)))).edits for order in (plugins.items(), reversed(plugins.items()))}
    assert answers == {(Trim(of=5, head=5, tail=5, by="mild", saved=99 - 15),)}
    assert (await ask(hooks_with({**plugins, "sharp": Sharp()}))).edits == (CLEARED,)


async def test_three_failures_in_a_row_switch_a_hook_off_and_a_success_between_forgives() -> None:
    acts = iter([0, 0, 1, 0, 0, 0])

    def act(_: PruningContext) -> Any:
        if next(acts):
            return []
        raise ValueError("too hot")

    hooks = hooks_with({"odd": Does(act)})
    told = [[failure.off for failure in (await ask(hooks)).failures] for _ in range(6)]
    assert told == [[False], [False], [], [False], [False], [True]]
    assert await ask(hooks) == NOTHING
    (refusal,) = hooks.refused
    assert (refusal.plugin, refusal.hook) == ("odd", "propose_prunes")
    assert refusal.sentence.endswith(" is not used: it is disabled until a restart (ValueError: too hot).")
    assert MAX_FAILURES == 3


async def test_one_that_does_not_return_is_lost_at_once_and_holds_nobody_up() -> None:
    hang = threading.Event()
    hooks = hooks_with({"slow": Does(lambda _: hang.wait() and []), "sharp": Sharp()}, 0.05)
    proposed = await ask(hooks)
    failure = PluginFailed(plugin="slow", hook="propose_prunes", sentence="it did not return within 0.05 seconds", off=True)
    assert proposed == PruningProposal(edits=(CLEARED,), failures=(failure,))
    assert await ask(hooks) == PruningProposal(edits=(CLEARED,), failures=())
    assert len(hooks.refused) == 1
    hang.set()
    await asyncio.sleep(0.05)  # its late answer meets nobody


async def test_two_sessions_that_lose_the_same_plugin_at_once_switch_it_off_once() -> None:
    hang = threading.Event()
    hooks = hooks_with({"slow": Does(lambda _: hang.wait() and [])}, 0.05)
    answers = await asyncio.gather(ask(hooks), ask(hooks))
    assert [failure.off for answer in answers for failure in answer.failures] == [True, True]
    assert len(hooks.refused) == 1
    hang.set()


async def test_a_stranger_runs_beside_the_event_loop_and_a_built_in_on_it() -> None:
    threads = []

    def act(_: PruningContext) -> Any:
        threads.append(threading.current_thread())
        return []

    hooks = Hooks()
    hooks.register("stranger", Does(act))
    hooks.register("ours", Does(act), builtin=True)
    await ask(hooks)
    (stranger,) = [thread for thread in threads if thread is not threading.main_thread()]
    assert len(threads) == 2
    assert stranger.daemon  # one that never returns does not keep the gateway from ending


async def test_a_built_in_that_fails_is_named_like_a_stranger() -> None:
    hooks = Hooks()
    hooks.register("ours", Does(raises(ValueError("too hot"))), builtin=True)
    (failure,) = (await ask(hooks)).failures
    assert failure.sentence == "ValueError: too hot"


async def test_a_plugin_that_comes_later_is_asked_too() -> None:
    hooks = Hooks()
    assert await ask(hooks) == NOTHING
    hooks.register("sharp", Sharp())
    assert (await ask(hooks)).edits == (CLEARED,)


class Awaited:
    @hookimpl
    async def propose_prunes(self, context: PruningContext) -> list[Clear]:
        return []


class Curious:
    @hookimpl
    def propose_prunes(self, transcript: Any) -> list[Clear]:
        return []


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [(Awaited(), "propose_prunes must be a plain function"), (Curious(), "pluggy rejects it")],
)
async def test_a_decision_that_is_no_plain_function_of_what_is_promised_is_refused_at_the_door(
    plugin: object, reason: str
) -> None:
    hooks = Hooks()
    assert not hooks.register("odd", plugin)
    (refusal,) = hooks.refused
    assert reason in refusal.sentence
    assert await ask(hooks) == NOTHING
