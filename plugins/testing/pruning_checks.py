"""What every pruning policy does. Inherit the class in a module of tests, and say which plugin is meant, a module or an
object with `propose_prunes`:

    class TestMine(PruningPolicyConformance):
        plugin = my_module

Each test is a method that pytest finds.
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
    """A conversation in which so many results of so many characters came."""
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
    """A view of these messages, behind a summary or not."""
    view = View().grown(UserMessage(text=SUMMARY.format("They said much.")), 0) if summarised else View()
    for placed, message in enumerate(messages, 4):
        view = view.grown(message, placed)
    return view


def context_of(view: View, asked_at: datetime | None) -> PruningContext:
    """What a policy is given of a view."""
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
    """See the module."""

    plugin: ClassVar[Any]
    seconds: ClassVar[float] = decision_hooks.SECONDS
    """How long an answer may take."""

    def hooks(self) -> Hooks:
        """Return the policy alone, as a third-party plugin."""
        return as_third_party(self.plugin, self.seconds)

    async def proposed(
        self, hooks: Hooks, view: View, window: int | None = 100_000, idle: float = 3600.0
    ) -> PruningProposal:
        """What the policy proposes at noon, when a model was asked `idle` seconds ago."""
        budget = PruningBudget(window=window, reserve=1000, rules=PruningRules())
        return await hooks.propose_prunes(view, context_of(view, NOON - timedelta(seconds=idle)), budget, NOON)

    def check_failures(self, what: str, failures: tuple[PluginFailed, ...]) -> None:
        """Whether nothing failed."""
        assert not failures, f"In a conversation with {what}: {'; '.join(failure.sentence for failure in failures)}"

    @check
    async def test_the_house_takes_it(self) -> None:
        """Fix what the message names: `propose_prunes` needs `@hookimpl`, is a plain function, and takes any of `context`,
        `budget` and `now` by these names."""
        self.hooks()

    @check
    async def test_every_conversation_has_an_answer(self) -> None:
        """Return a list of `Trim` and `Clear`, empty where nothing is to be done, within two seconds. Name only results of
        tools, by `context.sources[index]`: what people and models wrote is never edited. `budget.window` may be None."""
        for what, messages in STORIES.items():
            for window in (None, 300, 8_000, 1_000_000):
                hooks = self.hooks()
                for summarised in (False, True):
                    proposed = await self.proposed(hooks, view_of(messages, summarised=summarised), window)
                    self.check_failures(what, proposed.failures)

    @check
    async def test_a_long_conversation_is_answered_in_time(self) -> None:
        """It is asked before each request, also in a conversation of thousands of results: go over the messages once, and
        search no list inside a loop."""
        proposed = await self.proposed(self.hooks(), view_of(tuple(rounds(5_000, 400))))
        self.check_failures("5,000 results", proposed.failures)

    @check
    async def test_the_same_conversation_always_has_the_same_answer(self) -> None:
        """Decide by what you are given: keep nothing from one call to the next, read no clock (`now` is given), no file, no
        chance. A turn that goes on after a crash asks again, and must send the same bytes."""
        hooks = self.hooks()
        answers: dict[str, list[PruningProposal]] = {what: [] for what in STORIES}
        for what, messages in [*STORIES.items(), *reversed(STORIES.items()), *STORIES.items()]:
            answers[what].append(await self.proposed(hooks, view_of(messages), 8_000))
        for what, told in answers.items():
            assert all(one == other for one, other in pairwise(told)), (
                f"With {what} it answered differently at another time."
            )

    @check
    async def test_what_is_pruned_is_not_pruned_again_and_again(self) -> None:
        """An edit stays for ever. Look at `context.edited`, or return the same edit again; an edit that grows a little with
        each request changes what a provider's cache holds each time."""
        hooks, view = self.hooks(), view_of(STORIES["large results"])
        for _ in range(20):
            proposed = await self.proposed(hooks, view, 20_000)
            if not proposed.edits:
                return
            view = view.pruned(proposed.edits)
        raise AssertionError("It still proposes something new of the same conversation, the twentieth time.")
