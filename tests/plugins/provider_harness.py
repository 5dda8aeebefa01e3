"""A harness for chat providers in tests: requests, a provider with a transport that does not wait, and a fake server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from plugins.api.chat import ChatProvider, ChatRequest, Delta, Reasoning, Reply
from plugins.api.context import ProviderAccount, ProviderContext
from plugins.http.client import Limits, Timeouts, Transport
from plugins.support.errors import CredentialsRefused, NoSuchModel, ProviderError, RateLimited, Unreachable
from plugins.support.secrets import Secret
from plugins.testing.contexts import ManualClock
from plugins.testing.servers.faulty_server import FaultyServer
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolDefinition, ToolMessage, UserMessage
from sessions.state.context import Context

Server = TypeVar("Server", bound=FaultyServer[Any])

READ = ToolDefinition(name="read", description="Reads.", parameters={"type": "object", "properties": {}})


def question(*messages: Message, model: str, tools: tuple[ToolDefinition, ...] = (), **parameters: Any) -> ChatRequest:
    """Return a request with these messages, by default a greeting."""
    context = Context(
        instructions="Be brief.", tools=tools, parameters=parameters, messages=messages or (UserMessage(text="hi"),)
    )
    return ChatRequest(model=model, context=context, purpose="answer", session="s")


class ProviderClient:
    """A provider with a transport that does not wait; `slept` are the pauses in seconds that it would have made, `deltas`
    and `reasoning` are those of the last reply."""

    def __init__(self, provider: Any, slept: list[float], model: str) -> None:
        self.provider = provider
        self.slept = slept
        self.deltas: list[str] = []
        self.reasoning: list[str] = []
        self._model = model

    async def ask(self, request: ChatRequest | None = None) -> Reply:
        """Return the reply. Raises what the provider raises."""
        self.deltas, self.reasoning = [], []
        async with aclosing(self.provider.stream(request or question(model=self._model))) as stream:
            async for part in stream:
                if isinstance(part, Reply):
                    return part
                assert isinstance(part, Delta | Reasoning)
                assert part.text
                (self.deltas if isinstance(part, Delta) else self.reasoning).append(part.text)
        raise AssertionError("the stream ended without a reply or an error")


@asynccontextmanager
async def provider_context(
    settings: Any,
    *,
    timeouts: Timeouts | None = None,
    limits: Limits | None = None,
    environment: dict[str, str] | None = None,
    account: ProviderAccount | None = None,
) -> AsyncIterator[tuple[ProviderContext, list[float]]]:
    """Yield the context of a provider with a transport that does not wait, and the pauses that it would have made."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with Transport(sleep=sleep, chance=lambda: 1.0, timeouts=timeouts, limits=limits) as transport:
        yield (
            ProviderContext(
                settings=settings,
                folder=Path("unused"),
                workspace=Path("unused"),
                clock=ManualClock(),
                transport=transport,
                environment=environment or {},
                account=account or ProviderAccount(),
            ),
            slept,
        )


@asynccontextmanager
async def opened(
    kind: type[ChatProvider],
    *,
    model: str,
    timeouts: Timeouts | None = None,
    limits: Limits | None = None,
    environment: dict[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[ProviderClient]:
    """Yield the provider with these settings."""
    common: dict[str, Any] = {"timeouts": timeouts, "limits": limits, "environment": environment}
    async with provider_context(kind.Settings(**settings), **common) as (context, slept), kind(context) as provider:
        yield ProviderClient(provider, slept, model)


class Harness(Generic[Server]):
    """A chat provider and its fake server. `key` is the configured key, empty for none; `settings` are those of every
    provider."""

    def __init__(
        self, kind: type[ChatProvider], server: Callable[..., Server], *, model: str, key: str, **settings: Any
    ) -> None:
        self.kind = kind
        self.server = server
        self.model = model
        self.key = key
        self.settings = settings

    def request(self, *messages: Message, **options: Any) -> ChatRequest:
        """Return a request as `question` does."""
        return question(*messages, **{"model": self.model, **options})

    @asynccontextmanager
    async def asking(self, url: str, *, key: str | None = None, **options: Any) -> AsyncIterator[ProviderClient]:
        """Yield the provider with the server at this address, or with its default address if it is empty."""
        key = self.key if key is None else key
        address = {"base_url": url} if url else {}
        options = {"model": self.model, "api_key": Secret(key) if key else None, **address, **self.settings, **options}
        async with opened(self.kind, **options) as client:
            yield client

    @asynccontextmanager
    async def serving(
        self, *answers: Any, server: Server | None = None, **options: Any
    ) -> AsyncIterator[tuple[ProviderClient, Server]]:
        """Yield the provider and a fake server, by default one that gives these answers."""
        async with (server or self.server(*answers)).serving() as running, self.asking(running.url, **options) as client:
            yield client, running


def as_messages(reply: Reply, seq: int = 0) -> tuple[AssistantMessage | ToolMessage, ...]:
    """Return a reply and the results of its calls as the transcript has them: with ids of its own for the calls."""
    calls = tuple(ToolCall(id=f"call_{seq}_{n}", tool=c.tool, arguments=c.arguments) for n, c in enumerate(reply.calls))
    answer = AssistantMessage(text=reply.text, calls=calls, opaque=reply.opaque)
    return answer, *(ToolMessage(id=call.id, tool=call.tool, text="a result") for call in calls)


MEANINGS: tuple[tuple[int, type[ProviderError], int], ...] = (
    (401, CredentialsRefused, 1),
    (402, RateLimited, 1),
    (403, CredentialsRefused, 1),
    (404, NoSuchModel, 1),
    (429, RateLimited, 4),
    (500, Unreachable, 4),
    (502, Unreachable, 4),
    (503, Unreachable, 4),
)
"""The error for each status of every provider, and the number of requests until it is raised."""
