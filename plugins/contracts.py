"""What a plugin may provide, and what it is given.

A plugin's module holds hook implementations (see `hookspecs`) that return the classes described here. The gateway opens
each with a `House`, uses it, and closes it. Nothing here reaches upwards into the gateway.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import msgspec

from plugins.command_contract import Command
from plugins.secrets import Secret
from sessions.context import Context
from sessions.events import StopReason
from sessions.messages import ToolDefinition, Usage
from sessions.sight import Sight

if TYPE_CHECKING:
    from plugins.services import Ask, Embed, OwnLog, WorkspaceFacts, WorkspaceMemory
    from plugins.transport import Transport

S = TypeVar("S")


class Clock(Protocol):
    """The time, so that a test can set it."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward, for durations."""
        ...


Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=256, le=1_000_000_000)]
"""What may be a window or the limit of an answer; what is read from elsewhere and is less or more is an error there."""


class ToldLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many tokens a model takes in (`window`) and says at most (`output`), as far as somebody tells."""

    window: Tokens | None = None
    output: Tokens | None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said when it was asked for its models: each by its name, with what it tells of it. `address` is the
    server's, without what is secret in it."""

    address: str
    models: Mapping[str, ToldLimits]


class ProviderAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What `[providers.<name>]` says of an account: its keys, its address, and more headers."""

    api_key: tuple[Secret, ...] | None = None
    base_url: str | None = None
    headers: dict[str, Secret] = {}


class House(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin is given when it is opened.

    `settings` is its own section of the configuration, already of the type that its `Settings` names, with secrets
    resolved. `folder` is its own, made when it is first used; `workspace` is the assistant's, with the files of each person
    (docs/memory.md says whose they are), and `protected` says which of its files, by their paths in it, no tool may change
    now. `environment` holds the process's environment variables.
    `told` is what this chat provider's server said of its models when it was asked last, perhaps elsewhere.
    `memory` and `facts` are the workspace's, for tools; None for what is opened before them. `account` is, for an embedding
    provider, that of the chat provider of the same name. `ask` asks the configured model something beside every
    conversation, within two minutes, and `embed` the memory's provider for vectors, within one; what a model used is counted
    as `plugin:NAME`. `log` is the plugin's own. These three are None too for what is opened before: providers.
    """

    settings: Any
    folder: Path
    workspace: Path
    clock: Clock
    transport: Transport
    environment: Mapping[str, str]
    protected: Callable[[], Sequence[str]] = tuple
    told: ModelList | None = None
    memory: WorkspaceMemory | None = None
    facts: WorkspaceFacts | None = None
    account: ProviderAccount | None = None
    ask: Ask | None = None
    embed: Embed | None = None
    log: OwnLog | None = None


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a plugin that has none."""


# --- chat providers ---------------------------------------------------------------------------------------------------


class AnswerForm(msgspec.Struct, frozen=True, kw_only=True):
    """Text that is JSON: any object, or one that keeps to a JSON Schema. `strict` is for services that know such a word."""

    name: str = "answer"
    schema: dict[str, Any] | None = None
    description: str = ""
    strict: bool | None = None


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for beside its messages. `must_call`: the answer is a call, of `tool` where that is named;
    `one_call`: of one tool at most; `form` is that of its text. A provider that cannot have `must_call` or `form` raises
    BadRequest with a sentence, rather than answer something else."""

    must_call: bool = False
    tool: str | None = None
    one_call: bool = False
    form: AnswerForm | None = None


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
    others: bool = False
    compact_at: int | None = None
    wishes: Wishes = Wishes()


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


LimitSource: TypeAlias = Literal["configuration", "vendor", "table", "default"]
"""Where a limit is from: the configuration, what the model's server told, the shipped table, the program itself."""


class ModelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model: `window` and `output` in tokens, None where it is not; `sight` is which pictures it takes,
    None for none. A `small` model is offered no tools, told as little as can be and not asked to summarise. `window_from`
    and `output_from` tell where the two figures are from, if the provider does."""

    window: int | None = None
    output: int | None = None
    sight: Sight | None = None
    small: bool = False
    window_from: LimitSource | None = None
    output_from: LimitSource | None = None


@runtime_checkable
class ChatProvider(Protocol):
    """A source of chat models. One instance serves all sessions at once."""

    name: ClassVar[str]
    """The word before the colon in `provider:model`."""
    Settings: ClassVar[type]
    """A msgspec Struct: the form of `[providers.<name>]` in the configuration, every field with a default."""

    def __init__(self, house: House) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def default_model(self) -> str | None:
        """The model that `agent.model = "auto"` takes, or None when this provider is not set up to be used (no key)."""
        ...

    def why(self) -> str:
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
class LooksNearby(Protocol):
    """What a chat provider may be able to do besides, whose server may run on this machine."""

    async def look(self) -> None:
        """See whether it runs; `default_model` and `why` say from then on what was found. Nothing of a conversation is sent.
        Costs no more than a connection where no server is, and does not raise because of one."""
        ...


# --- tools ------------------------------------------------------------------------------------------------------------


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """For which call a tool runs. In a `group` others read along."""

    session: str
    person: str
    turn: int
    call: str
    group: bool = False


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returned, as text for the model."""

    text: str


@runtime_checkable
class Tool(Protocol):
    """Something the model may do. One instance serves all sessions."""

    definition: ClassVar[ToolDefinition]
    repeatable: ClassVar[bool]
    """Whether running it twice does the same as once: after a crash such a call is run again. False if in doubt."""

    def __init__(self, house: House) -> None: ...

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Do it. `arguments` is a JSON object that was not checked against the schema. Raises ToolFailed, whose sentence
        the model is shown. May be cancelled at any await; it then has five seconds to end."""
        ...


Provided: TypeAlias = ChatProvider | Tool | Command
