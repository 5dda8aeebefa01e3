"""Conformance checks for pruning policies. Inherit the class in a test module, and set the plugin, a module or an object
with `propose_prunes`:

    class TestMine(PruningPolicyConformance):
        plugin = my_module
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, ClassVar

from plugins.api.pruning import PruningBudget, PruningContext, PruningRules
from plugins.host import decision_hooks
from plugins.host.hooks import Hooks, PruningProposal
from plugins.testing.checks import check
from plugins.testing.contexts import NOON, as_third_party
from sessions.events.events import PluginFailed
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from sessions.state.view import SUMMARY, View
from sessions.state.view_size import CharacterCount


def rounds(count: int, size: int) -> Iterator[Message]:
    """Return a conversation with `count` tool results of `size` characters."""
    yield UserMessage(text="Read everything. 😀")
    for number in range(count):
        call = ToolCall(id=f"call_{number}_0", tool=("read", "shell", "memory_search")[number % 3], arguments="{}")
        yield AssistantMessage(text="", calls=(call,))
        yield ToolMessage(id=call.id, tool=call.tool, text=f"{number} 四 " * (size // 4))
        yield AssistantMessage(text="Next.")
        yield UserMessage(text="Go on.")


STORIES: dict[str, tuple[Message, ...]] = {
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


class PruningPolicyConformance:
    """Checks for a pruning policy."""

    plugin: ClassVar[Any]
    seconds: ClassVar[float] = decision_hooks.SECONDS
    """The maximum duration of a decision."""

    def hooks(self) -> Hooks:
        """Return the policy alone, as a third-party plugin."""
        return as_third_party(self.plugin, self.seconds)

    async def proposed(
        self, hooks: Hooks, view: View, window: int | None = 100_000, idle: float = 3600.0
    ) -> PruningProposal:
        """Return the policy's proposal at noon, `idle` seconds after the last model request."""
        budget = PruningBudget(window=window, reserve=1000, rules=PruningRules())
        return await hooks.propose_prunes(view, context_of(view, NOON - timedelta(seconds=idle)), budget, NOON)

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
        for what, messages in STORIES.items():
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
        answers: dict[str, list[PruningProposal]] = {what: [] for what in STORIES}
        for what, messages in [*STORIES.items(), *reversed(STORIES.items()), *STORIES.items()]:
            answers[what].append(await self.proposed(hooks, view_of(messages), 8_000))
        for what, told in answers.items():
            assert all(one == other for one, other in pairwise(told)), (
                f"With {what} it answered differently at another time."
            )

    @check
    async def test_it_stops_proposing_edits(self) -> None:
        """Edits are permanent. Check `context.edited`, or return the same edit again; an edit that grows a little with
        each request invalidates the provider's cache each time."""
        hooks, view = self.hooks(), view_of(STORIES["large results"])
        for _ in range(20):
            proposed = await self.proposed(hooks, view, 20_000)
            if not proposed.edits:
                return
            view = view.pruned(proposed.edits)
        raise AssertionError("It still proposes something new of the same conversation, the twentieth time.")
