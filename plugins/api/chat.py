"""The API of chat providers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

import msgspec

from plugins.api.context import PluginContext
from plugins.api.models import ModelLimits, ModelList
from sessions.events.events import StopReason
from sessions.events.messages import Usage
from sessions.state.context import Context

if TYPE_CHECKING:
    pass


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Text that is JSON: any object, or one that keeps to a JSON Schema. `strict` is for services that know such a word."""

    name: str = "answer"
    schema: dict[str, Any] | None = None
    description: str = ""
    strict: bool | None = None


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for beside its messages. `must_call`: the answer is a call, of `tool` where that is named;
    `one_call`: of one tool at most; `form` is that of its text. A provider that cannot have `must_call` or `form` raises
    BadRequest with a sentence, rather than answer something else."""

    require_tool: bool = False
    tool: str | None = None
    single_tool_call: bool = False
    response_format: ResponseFormat | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a model. `purpose` is `answer`, `flush`, `summary`, …; `session` names the conversation, stable
    over its requests, for providers that route by it. The attachments that its messages still have are pictures that the
    model takes, by its `ModelLimits.sight`; `pictures` holds the base64 of each by its `sha256`. `window` is how many tokens
    the model is to take in, for servers that ask for it; None leaves it to the provider. `others` says that another
    model stands ready to answer instead, so that waiting long for this one is no use. `compact_at` is from how many tokens
    on the service may compact by itself what it is shown, if it can; None: not at all. Of the context's `parameters`
    (`temperature`, `top_p`, `max_tokens`, `stop`, a list of texts, `seed`, `presence_penalty`, `frequency_penalty`) a
    provider takes those that its service has."""

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
    """A piece of the answer's text, in order; never empty."""

    text: str


class CallDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of a reply. `id` is the provider's own, or empty; `arguments` is JSON text as the model wrote it."""

    id: str
    tool: str
    arguments: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer: `text` equals all deltas joined. `usage` is None where the provider does not count. `model` is
    what the provider says answered, or the one asked. `compacted` says that the service was not sent what it had compacted
    by itself: `usage` tells what was sent, not how large the messages are."""

    text: str
    model: str
    stop: StopReason
    calls: tuple[CallDraft, ...] = ()
    usage: Usage | None = None
    opaque: str | None = None
    compacted: bool = False


@runtime_checkable
class ChatProvider(Protocol):
    """A source of chat models. One instance serves all sessions at once."""

    name: ClassVar[str]
    """The word before the colon in `provider:model`."""
    Settings: ClassVar[type]
    """A msgspec Struct: the form of `[providers.<name>]` in the configuration, every field with a default."""

    def __init__(self, context: PluginContext) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def default_model(self) -> str | None:
        """The model that `agent.model = "auto"` takes, or None when this provider is not set up to be used (no key)."""
        ...

    def explain_default(self) -> str:
        """Why `default_model` is what it is, as the end of a sentence: `OPENAI_API_KEY is set`."""
        ...

    def limits(self, model: str) -> ModelLimits:
        """What is known of a model without asking anyone."""
        ...

    def stream(self, request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        """Answer: any number of deltas, then exactly one `Reply`, then the end. Raises a ProviderError otherwise; an end
        without a `Reply` is taken for StreamCut. Closing the iterator early (`aclose`) stops the request."""
        ...


@runtime_checkable
class ListsModels(Protocol):
    """What a chat provider may be able to do besides."""

    async def models(self) -> ModelList:
        """The models that it can be asked for now, from where asking costs nothing. Raises a ProviderError."""
        ...


@runtime_checkable
class HasAddress(Protocol):
    """What a chat or embedding provider may be able to do besides."""

    def address(self, model: str) -> str:
        """Where requests for a model are sent, without what is secret; empty where they do not leave this process and those
        that it starts. People are told it."""
        ...


@runtime_checkable
class DiscoversModel(Protocol):
    """What a chat provider may be able to do besides, whose server may be anybody's."""

    async def discover(self) -> None:
        """Ask the server that is set up which models it has, unless it is known which one is meant; `default_model` and
        `why` say from then on what was found. Called every half a minute while `auto` chooses this provider: ask once. Does
        not raise because of the server."""
        ...


@runtime_checkable
class DiscoversServers(Protocol):
    """What a chat provider may be able to do besides, whose server may run on this machine."""

    async def discover_server(self) -> None:
        """See whether it runs; `default_model` and `why` say from then on what was found. Nothing of a conversation is sent.
        Costs no more than a connection where no server is, and does not raise because of one."""
        ...
