"""Conformance checks for pruning and compaction policies. Inherit a class in a test module, and set the plugin, a module or
an object with `propose_prunes` or `plan_compaction`:

    class TestMine(PruningPolicyConformance):
        plugin = my_module
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar, get_args

from plugins.api.compaction import CompactionBudget, CompactionContext
from plugins.api.pruning import PruningBudget, PruningContext, PruningRules
from plugins.host.hook_calls import DECISION_SECONDS
from plugins.host.hooks import CompactionProposal, Hooks, PruningProposal
from plugins.testing.checks import check
from plugins.testing.contexts import NOON
from sessions.events.events import PluginFailed, Trigger
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from sessions.state.view import SUMMARY, View
from sessions.state.view_size import CharacterCount

T = TypeVar("T")


def rounds(count: int, size: int) -> Iterator[Message]:
    """Return a conversation with `count` tool results of `size` characters."""
    yield UserMessage(text="Read everything. 😀")
    for number in range(count):
        call = ToolCall(id=f"call_{number}_0", tool=("read", "shell", "memory_search")[number % 3], arguments="{}")
        yield AssistantMessage(text="", calls=(call,))
        yield ToolMessage(id=call.id, tool=call.tool, text=f"{number} 四 " * (size // 4))
        yield AssistantMessage(text="Next.")
        yield UserMessage(text="Go on.")


PRUNABLE: dict[str, tuple[Message, ...]] = {
    "nothing": (),
    "a greeting": (UserMessage(text="hi"),),
    "small results": tuple(rounds(5, 100)),
    "large results": tuple(rounds(30, 20_000)),
    "one result that is larger than all": (*rounds(1, 900_000), *rounds(3, 50)),
    "empty results": tuple(rounds(4, 0)),
}


def view_of(messages: tuple[Message, ...], *, summarised: bool = False) -> View:
    """Return a view of these messages, optionally after a summary."""
    view = View().grown(UserMessage(text=SUMMARY.format("They said much.")), 0) if summarised else View()
    for placed, message in enumerate(messages, 4):
        view = view.grown(message, placed)
    return view


def context_of(view: View, asked_at: datetime | None) -> PruningContext:
    """Return the context that a policy receives for a view."""
    tally = CharacterCount()
    tally.follow(tuple(view.messages))
    return PruningContext(
        messages=tally.messages,
        sources=tuple(view.sources),
        sizes=tuple(tally.sizes),
        characters=tally.characters,
        edited=view.edited,
        asked_at=asked_at,
    )


def _third_party(plugin: Any, seconds: float) -> Hooks:
    """Return hooks with only this plugin, treated as third-party, with a timeout for decisions. Fail if it is refused."""
    hooks = Hooks(seconds)
    hooks.register("policy", plugin)
    assert not hooks.refused, hooks.refused[0].sentence
    return hooks


async def _check_deterministic(cases: dict[str, T], decide: Callable[[T], Awaitable[object]]) -> None:
    """Fail if a decision about one of the cases depends on when it is asked for."""
    first = {what: await decide(case) for what, case in cases.items()}
    for what, case in [*reversed(cases.items()), *cases.items()]:
        assert await decide(case) == first[what], f"With {what} it answered differently at another time."


class PruningPolicyConformance:
    """Checks for a pruning policy."""

    plugin: ClassVar[Any]
    seconds: ClassVar[float] = DECISION_SECONDS
    """The maximum duration of a decision."""

    def hooks(self) -> Hooks:
        """Return the policy alone, as a third-party plugin."""
        return _third_party(self.plugin, self.seconds)

    async def proposed(self, hooks: Hooks, view: View, window: int | None = 100_000) -> PruningProposal:
        """Return the policy's proposal at noon, an hour after the last model request."""
        budget = PruningBudget(window=window, reserve=1000, rules=PruningRules())
        return await hooks.propose_prunes(view, context_of(view, NOON - timedelta(hours=1)), budget, NOON)

    def check_failures(self, what: str, failures: tuple[PluginFailed, ...]) -> None:
        """Fail if the policy failed."""
        assert not failures, f"In a conversation with {what}: {'; '.join(failure.sentence for failure in failures)}"

    @check
    async def test_its_hook_is_valid(self) -> None:
        """Fix what the message names: `propose_prunes` needs `@hookimpl`, is a synchronous function, and takes any of
        `context`, `budget` and `now` by these names."""
        self.hooks()

    @check
    async def test_every_conversation_is_decided(self) -> None:
        """Return a list of `Trim` and `Clear` within two seconds, empty if there is nothing to do. Name only tool
        results, by `context.sources[index]`: messages of people and models are never edited. `budget.window` may be
        None."""
        for what, messages in PRUNABLE.items():
            for window in (None, 300, 8_000, 1_000_000):
                hooks = self.hooks()
                for summarised in (False, True):
                    proposed = await self.proposed(hooks, view_of(messages, summarised=summarised), window)
                    self.check_failures(what, proposed.failures)

    @check
    async def test_a_long_conversation_is_decided_in_time(self) -> None:
        """The policy is called before each request, also in conversations with thousands of results: iterate over the
        messages once, and search no list inside a loop."""
        proposed = await self.proposed(self.hooks(), view_of(tuple(rounds(5_000, 400))))
        self.check_failures("5,000 results", proposed.failures)

    @check
    async def test_it_is_deterministic(self) -> None:
        """Decide by the arguments alone: keep nothing between calls, and use no clock (`now` is given), files or random
        numbers. A turn that is resumed after a crash calls the policy again, and must send the same bytes."""
        hooks = self.hooks()
        await _check_deterministic(PRUNABLE, lambda messages: self.proposed(hooks, view_of(messages), 8_000))

    @check
    async def test_it_stops_proposing_edits(self) -> None:
        """Edits are permanent. Check `context.edited`, or return the same edit again; an edit that grows a little with
        each request invalidates the provider's cache each time."""
        hooks, view = self.hooks(), view_of(PRUNABLE["large results"])
        for _ in range(20):
            proposed = await self.proposed(hooks, view, 20_000)
            if not proposed.edits:
                return
            view = view.pruned(proposed.edits)
        raise AssertionError("It still proposes something new of the same conversation, the twentieth time.")


def conversation(turns: int, size: int = 200, *, cuts: int | None = None) -> CompactionContext:
    """Return a conversation with this number of turns. It can be cut before each turn but the first, or only before the
    last `cuts` of them."""
    messages: list[Message] = []
    for number in range(turns):
        messages += [UserMessage(text=f"question {number}"), AssistantMessage(text="an answer " * (size // 10))]
    places = tuple(range(4, 4 + 2 * turns))
    allowed = places[2::2]
    return CompactionContext(
        messages=tuple(messages),
        places=places,
        sizes=tuple(size // 4 for _ in messages),
        head=300,
        cuts=allowed if cuts is None else allowed[len(allowed) - cuts :],
    )


CUTTABLE = {
    "two turns": conversation(2),
    "ten turns": conversation(10),
    "one place to cut": conversation(30, cuts=1),
    "long turns": conversation(12, size=40_000),
    "no place to cut": conversation(1),
}


class CompactionPolicyConformance:
    """Checks for a compaction policy."""

    plugin: ClassVar[Any]
    seconds: ClassVar[float] = DECISION_SECONDS
    """The maximum duration of a decision."""

    def hooks(self) -> Hooks:
        """Return the policy alone, as a third-party plugin."""
        return _third_party(self.plugin, self.seconds)

    async def planned(self, hooks: Hooks, context: CompactionContext, trigger: Trigger = "budget") -> CompactionProposal:
        """Return the policy's decision."""
        budget = CompactionBudget(window=32_000, target=20_000, keep_tokens=8_000, keep_messages=3)
        planned = await hooks.plan_compaction(context, budget, trigger)
        assert not planned.failures, "; ".join(failure.sentence for failure in planned.failures)
        return planned

    @check
    async def test_its_hook_is_valid(self) -> None:
        """Fix what the message names: `plan_compaction` needs `@hookimpl`, is a synchronous function, and takes any of
        `context`, `budget` and `trigger` by these names."""
        self.hooks()

    @check
    async def test_every_conversation_is_decided(self) -> None:
        """Return one of `context.cuts`, or None to leave the decision to the next plugin, within two seconds and for
        every trigger. Any other seq could separate a call from its result, and counts as a failure."""
        for context in CUTTABLE.values():
            hooks = self.hooks()
            for trigger in get_args(Trigger):
                await self.planned(hooks, context, trigger)

    @check
    async def test_a_long_conversation_is_decided_in_time(self) -> None:
        """A conversation may have ten thousand messages: iterate over them once, and search no list inside a loop."""
        await self.planned(self.hooks(), conversation(5_000))

    @check
    async def test_it_is_deterministic(self) -> None:
        """Decide by the arguments alone: keep nothing between calls, and use no clock, files or random numbers."""
        hooks = self.hooks()
        await _check_deterministic(CUTTABLE, lambda context: self.planned(hooks, context))
