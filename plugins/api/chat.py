"""Chat providers: the protocol, and the values of a request and its reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits, ModelList
from sessions.events.events import StopReason
from sessions.events.messages import Usage
from sessions.state.context import Context


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a reply in JSON.

    Attributes:
        name: A name for the schema.
        schema: A JSON Schema that the reply must match; None for any JSON object.
        description: A description of the schema for the model.
        strict: Passed on to services that support strict schemas.
    """

    name: str = "answer"
    schema: dict[str, Any] | None = None
    description: str = ""
    strict: bool | None = None


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a request besides its messages.

    A provider that does not support `require_tool` or `response_format` raises `BadRequest`; it never ignores them.

    Attributes:
        require_tool: The reply must call a tool.
        tool: The name of the tool that must be called; None for any tool.
        single_tool_call: The reply may call at most one tool.
        response_format: The format of the reply's text.
    """

    require_tool: bool = False
    tool: str | None = None
    single_tool_call: bool = False
    response_format: ResponseFormat | None = None


SHOWN_PURPOSES = ("answer", "api", "what_if")
"""The purposes of requests whose reasoning somebody can read."""


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a chat model.

    Attributes:
        model: The name of the model at the provider.
        context: Instructions, messages, tools and parameters. Of the parameters (`temperature`, `effort`, `top_p`,
            `max_tokens`, `stop` (a list of strings), `seed`, `presence_penalty`, `frequency_penalty`) a provider sends those
            that its service supports; `effort` only if it is one of the model's `ModelLimits.efforts`.
        purpose: `answer`, `flush`, `summary` and so on.
        session: An id that is the same for all requests of a conversation, for providers that route by it.
        pictures: The Base64 data of the attachments in the messages, by SHA-256. The gateway includes only pictures that
            `ModelLimits.vision` allows.
        window: The context window in tokens to request from the server; None for the provider's default.
        has_fallback: Another model is configured as a fallback, so a long wait for this one is not worthwhile.
        compact_at: The number of tokens at which the service may compact the conversation itself, if it supports that;
            None to disable.
        options: Options such as required tool calls.
    """

    model: str
    context: Context
    purpose: str
    session: str
    pictures: Mapping[str, bytes] = {}
    window: int | None = None
    has_fallback: bool = False
    compact_at: int | None = None
    options: RequestOptions = RequestOptions()


class Delta(msgspec.Struct, frozen=True):
    """A piece of the reply's text. Never empty; pieces arrive in order."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """A piece of the model's reasoning, or of the service's summary of it. Never empty; pieces arrive in order.

    People may read it. It is not part of the reply's text: it is neither sent back nor recalled.
    """

    text: str


class CallDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call in a reply.

    Attributes:
        id: The id that the provider assigned, or "".
        tool: The name of the tool.
        arguments: The arguments as JSON text, exactly as the model wrote them. They may be invalid.
    """

    id: str
    tool: str
    arguments: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A complete reply.

    Attributes:
        text: The text, equal to all deltas joined.
        model: The model that replied, as reported by the provider, or else the requested one.
        stop: The reason why the model stopped.
        calls: The tool calls, in order.
        usage: The token usage; None if the provider does not report it.
        opaque: Data of the provider's own to be sent back with later requests, such as encrypted reasoning.
        compacted: The service compacted the conversation, so `usage` covers less than all messages.
        cost: What the service says that the request cost, in millionths of a US dollar; None if it does not say. It counts
            instead of the price of the tokens.
    """

    text: str
    model: str
    stop: StopReason
    calls: tuple[CallDraft, ...] = ()
    usage: Usage | None = None
    opaque: str | None = None
    compacted: bool = False
    cost: int | None = None


StreamPart: TypeAlias = Delta | Reasoning | Reply
"""A part of the stream of a reply."""


@runtime_checkable
class ChatProvider(Protocol):
    """A source of chat models. One instance serves all sessions concurrently."""

    name: ClassVar[str]
    """The provider's name: the part before the colon in `provider:model`."""
    Settings: ClassVar[type]
    """A msgspec Struct with the fields of `[providers.<name>]`. Every field needs a default."""

    def __init__(self, context: ProviderContext) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def default_model(self) -> str | None:
        """Return the model for `agent.model = "auto"`, or None if the provider is not configured (no API key)."""
        ...

    def explain_default(self) -> str:
        """Return the reason for the result of `default_model`, as the end of a sentence: `OPENAI_API_KEY is set`."""
        ...

    def limits(self, model: str) -> ModelLimits:
        """Return what is known about a model without sending a request."""
        ...

    def stream(self, request: ChatRequest) -> AsyncIterator[StreamPart]:
        """Send a request and stream the reply. Closing the iterator (`aclose`) cancels the request.

        Yields:
            Any number of deltas, and pieces of reasoning if the service shows it, then exactly one `Reply`. If the stream
            ends without a `Reply`, the gateway treats it as `StreamCut`.

        Raises:
            ProviderError: The model could not reply.
        """
        ...


@runtime_checkable
class ListsModels(Protocol):
    """Optional: a chat provider that can list its models."""

    async def models(self) -> ModelList:
        """Return the models that are currently available. The request must be free of charge.

        Raises:
            ProviderError: The list is not available.
        """
        ...


@runtime_checkable
class HasAddress(Protocol):
    """Optional: a chat or embedding provider that reports where its requests go."""

    def address(self, model: str) -> str:
        """Return the address that requests for a model are sent to, without secrets; "" if they stay on this machine.

        The console shows this address before people send a message.
        """
        ...


@runtime_checkable
class DiscoversModel(Protocol):
    """Optional: a chat provider that finds its default model by asking a configured server."""

    async def discover(self) -> None:
        """Ask the server for its models if no default is known.

        `default_model` and `explain_default` then return the result. Called every 30 seconds while `auto` selects this
        provider; send at most one request. Must not raise if the server fails.
        """
        ...


@runtime_checkable
class DiscoversServers(Protocol):
    """Optional: a chat provider that detects a server running on this machine."""

    async def discover_server(self) -> None:
        """Check whether the server is running. `default_model` and `explain_default` then return the result.

        Must send nothing from conversations, take no longer than a connection attempt, and not raise if the server fails.
        """
        ...
