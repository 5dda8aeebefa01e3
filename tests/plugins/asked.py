"""A model as compactions ask it: it answers by a function, keeps what it was asked, and takes in no more than its window."""

from __future__ import annotations

from collections.abc import Callable

from plugins.api.compaction import CompactionInput, FlushRules
from plugins.api.plugin_services import ModelAnswer
from plugins.support.errors import ContextOverflow, ProviderError
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage
from sessions.events.tokens import estimate

Answer = Callable[[str], str | ProviderError]

SEEDS = FlushRules(
    system_prompt="Session nearing compaction. Store durable memories now.",
    prompt="Write any lasting notes to memory/YYYY-MM-DD.md; reply with NO_REPLY if nothing to store.",
)


class AskedModel:
    """`answers` is what it says to a request's text, one for each request, the last of them to all later ones; an error is
    raised. `window` counts everything that it is sent and may answer, in estimated tokens."""

    def __init__(self, *answers: str | ProviderError | Answer, window: int = 10**9) -> None:
        self._answers = answers
        self._window = window
        self.systems: list[str] = []
        self.texts: list[str] = []

    async def __call__(self, *, system: str, text: str, limit: int) -> ModelAnswer:
        self.systems.append(system)
        self.texts.append(text)
        if estimate(system) + estimate(text) + limit > self._window:
            raise ContextOverflow("The request was longer than the window.")
        answer = self._answers[min(len(self.texts), len(self._answers)) - 1]
        said = answer(text) if callable(answer) else answer
        if isinstance(said, ProviderError):
            raise said
        return ModelAnswer(text=said, model="scripted:asked", usage=Usage(input=100, output=10))


def leaving(*messages: Message, window: int = 100_000, summary: str = "", kept: tuple[Message, ...] = ()) -> CompactionInput:
    """Return the input of a compaction, with usual values for what a test does not name."""
    return CompactionInput(
        messages=messages,
        kept=kept,
        summary=summary,
        focus="",
        window=window,
        limit=min(6_000, max(160, window // 10)),
        language="en",
        day="2026-11-21",
    )


def person(text: str) -> UserMessage:
    return UserMessage(text=text)


def assistant(text: str, *calls: ToolCall) -> AssistantMessage:
    return AssistantMessage(text=text, calls=calls)


def called(tool: str, arguments: str) -> AssistantMessage:
    return AssistantMessage(text="", calls=(ToolCall(id="c", tool=tool, arguments=arguments),))


def returned(tool: str, text: str, *, failed: bool = False) -> ToolMessage:
    return ToolMessage(id="c", tool=tool, text=text, failed=failed)
