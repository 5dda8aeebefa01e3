"""Conformance checks for compaction policies. Inherit the class in a test module, and set the plugin, a module or an
object with `plan_compaction`:

    class TestMine(CompactionPolicyConformance):
        plugin = my_module
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar, get_args

from plugins.api.compaction import CompactionBudget, CompactionContext
from plugins.host import decision_hooks
from plugins.host.hooks import CompactionProposal, Hooks
from plugins.testing.checks import check
from plugins.testing.contexts import as_third_party
from sessions.events.events import Trigger
from sessions.events.messages import AssistantMessage, Message, UserMessage


def talk(turns: int, size: int = 200, *, cuts: int | None = None) -> CompactionContext:
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


STORIES = {
    "two turns": talk(2),
    "ten turns": talk(10),
    "one place to cut": talk(30, cuts=1),
    "long turns": talk(12, size=40_000),
    "no place to cut": talk(1),
}


class CompactionPolicyConformance:
    """Checks for a compaction policy."""

    plugin: ClassVar[Any]
    seconds: ClassVar[float] = decision_hooks.SECONDS
    """The maximum duration of a decision."""

    def hooks(self) -> Hooks:
        """Return the policy alone, as a third-party plugin."""
        return as_third_party(self.plugin, self.seconds)

    async def planned(self, hooks: Hooks, context: CompactionContext, trigger: Trigger = "budget") -> CompactionProposal:
        """Return the policy's decision."""
        budget = CompactionBudget(window=32_000, below=20_000, recent=8_000, recent_messages=3)
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
        for context in STORIES.values():
            hooks = self.hooks()
            for trigger in get_args(Trigger):
                await self.planned(hooks, context, trigger)

    @check
    async def test_a_long_conversation_is_decided_in_time(self) -> None:
        """A conversation may have ten thousand messages: iterate over them once, and search no list inside a loop."""
        await self.planned(self.hooks(), talk(5_000))

    @check
    async def test_it_is_deterministic(self) -> None:
        """Decide by the arguments alone: keep nothing between calls, and use no clock, files or random numbers."""
        hooks = self.hooks()
        answers: dict[str, list[CompactionProposal]] = {what: [] for what in STORIES}
        for what, context in [*STORIES.items(), *reversed(STORIES.items()), *STORIES.items()]:
            answers[what].append(await self.planned(hooks, context))
        for what, told in answers.items():
            assert all(one == other for one, other in pairwise(told)), (
                f"With {what} it answered differently at another time."
            )
