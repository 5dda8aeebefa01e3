"""Asking a chat provider in a test: a question, the provider on a transport that does not wait, and what it said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from plugins.api.chat import ChatProvider, ChatRequest, Delta, Reply
from plugins.api.context import ProviderContext
from plugins.http.client import Limits, Timeouts, Transport
from plugins.testing.contexts import ManualClock
from sessions.events.messages import Message, ToolDefinition, UserMessage
from sessions.state.context import Context

READ = ToolDefinition(name="read", description="Reads.", parameters={"type": "object", "properties": {}})


def question(*messages: Message, model: str, tools: tuple[ToolDefinition, ...] = (), **parameters: Any) -> ChatRequest:
    """A request with these messages, or with a greeting."""
    context = Context(
        instructions="Be brief.", tools=tools, parameters=parameters, messages=messages or (UserMessage(text="hi"),)
    )
    return ChatRequest(model=model, context=context, purpose="answer", session="s")


class Asked:
    """A provider on a transport that does not wait; `slept` are the pauses that it would have made, in seconds, `deltas`
    the pieces of the last answer."""

    def __init__(self, provider: Any, slept: list[float], model: str) -> None:
        self.provider = provider
        self.slept = slept
        self.deltas: list[str] = []
        self._model = model

    async def ask(self, request: ChatRequest | None = None) -> Reply:
        """The reply; an error is raised as the provider raises it."""
        self.deltas = []
        async with aclosing(self.provider.stream(request or question(model=self._model))) as stream:
            async for part in stream:
                if isinstance(part, Reply):
                    return part
                assert isinstance(part, Delta)
                self.deltas.append(part.text)
        raise AssertionError("the stream ended without a reply or an error")


@asynccontextmanager
async def opened(
    kind: type[ChatProvider],
    *,
    model: str,
    timeouts: Timeouts | None = None,
    limits: Limits | None = None,
    environment: dict[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[Asked]:
    """The provider with these settings."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with Transport(sleep=sleep, chance=lambda: 1.0, timeouts=timeouts, limits=limits) as transport:
        context = ProviderContext(
            settings=kind.Settings(**settings),
            folder=Path("unused"),
            workspace=Path("unused"),
            clock=ManualClock(),
            transport=transport,
            environment=environment or {},
        )
        async with kind(context) as provider:
            yield Asked(provider, slept, model)
