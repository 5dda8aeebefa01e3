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

from plugins.secrets import Secret
from sessions.context import Context
from sessions.events import StopReason
from sessions.messages import ToolDefinition, Usage
from sessions.sight import Sight

if TYPE_CHECKING:
    from plugins.facts.facts import Facts
    from plugins.facts.persons import PersonsFacts
    from plugins.memory.memory import Memory
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
    resolved. `folder` is its own, made when it is first used; `workspace` is the assistant's, and `protected` says which of
    its files, by their paths in it, no tool may change now. `environment` holds the process's environment variables.
    `told` is what this chat provider's server said of its models when it was asked last, perhaps elsewhere.
    `memory` and `facts` are the workspace's, for tools; None for what is opened before them. `account` is, for an embedding
    provider, that of the chat provider of the same name.
    """

    settings: Any
    folder: Path
    workspace: Path
    clock: Clock
    transport: Transport
    environment: Mapping[str, str]
    protected: Callable[[], Sequence[str]] = tuple
    told: ModelList | None = None
    memory: Memory | None = None
    facts: Facts | None = None
    account: ProviderAccount | None = None


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a plugin that has none."""


# --- chat providers ---------------------------------------------------------------------------------------------------


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a model. `purpose` is `answer`, `flush`, `summary`, …; `session` names the conversation, stable
    over its requests, for providers that route by it. The attachments that its messages still have are pictures that the
    model takes, by its `ModelLimits.sight`; `pictures` holds the base64 of each by its `sha256`. `window` is how many tokens
    the model is to take in, for servers that ask for it; None leaves it to the provider. `others` says that another
    model stands ready to answer instead, so that waiting long for this one is no use. `compact_at` is from how many tokens
    on the service may compact by itself what it is shown, if it can; None: not at all."""

    model: str
    context: Context
    purpose: str
    session: str
    pictures: Mapping[str, bytes] = {}
    window: int | None = None
    others: bool = False
    compact_at: int | None = None


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


# --- commands ---------------------------------------------------------------------------------------------------------


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the conversation, or what stands beside it, for people. `of_command`: it is a command or the answer to
    one, which is the gateway's."""

    seq: int
    at: str
    who: Literal["person", "assistant", "tool", "gateway"]
    text: str
    of_command: bool = False


class CommandHelp(msgspec.Struct, frozen=True, kw_only=True):
    """A command as `/help` lists it."""

    name: str
    usage: str
    summary: str


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """A session's queue: its mode, how many messages wait, and how many may."""

    mode: str
    waiting: int
    limit: int


class ContextItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the next request holds: which part of it (`Tool results`), the tool's or the note's name, estimated
    tokens, and how it begins."""

    part: str
    name: str
    tokens: int
    text: str


class PrunedReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of the next request are trimmed, how many cleared, and how many characters that saves."""

    trimmed: int = 0
    cleared: int = 0
    saved: int = 0


class ContextReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the next request holds, in the order in which the model reads it; the tokens of all items together are its size.
    `window` is in tokens, `reserve` what compaction keeps free of it, `counted` what the provider counted for the last
    request; None where unknown."""

    items: tuple[ContextItem, ...]
    window: int | None
    counted: int | None
    reserve: int | None = None
    pruned: PrunedReport = PrunedReport()


class CompactionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction: its number, when (RFC 3339) and why it was made, how many messages it removed, the estimated size of the
    next request before and after in tokens, who wrote the summary and which model was asked for it, the identifiers that it
    names or lost, what was found wrong with it, and why the model's own was not taken (`failed`, "" if it was). `noted` says
    that the summary goes into the day's note, `in_force` that it was not taken back."""

    number: int
    at: str
    why: str
    messages: int
    tokens_before: int
    tokens_after: int
    by: str
    summary: str
    model: str = ""
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    failed: str = ""
    noted: bool = False
    in_force: bool = True


class NoteEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A note: its path below the workspace, its size, and when it was changed last, as people say it."""

    path: str
    bytes: int
    changed: str


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered: how many notes, sessions and pieces of both can be found, `how` they are (`by words`), the notes
    that changed last, and what is to be known besides, in sentences."""

    notes: int
    sessions: int
    chunks: int
    how: str
    latest: tuple[NoteEntry, ...] = ()
    remarks: tuple[str, ...] = ()


class MemoryFound(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found: where each piece stands (`MEMORY.md#L3-L7`) and its text, best first; remarks in sentences."""

    hits: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...] = ()


class ConversationView(Protocol):
    """What a command may know and do of the conversation that it was typed in."""

    @property
    def person(self) -> str: ...
    @property
    def client(self) -> str: ...
    @property
    def channel(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def session(self) -> str: ...

    def commands(self) -> Sequence[CommandHelp]:
        """All commands that exist, in the order of their names."""
        ...

    def local(self, at: str) -> datetime:
        """The time of an event (`HistoryEntry.at`, …) in the time zone of the people here."""
        ...

    def status(self) -> str:
        """What `/status` shows."""
        ...

    def model(self) -> str:
        """The `provider:model` in use and why, as a sentence."""
        ...

    def models(self) -> Sequence[str]:
        """The `provider:model` of each provider that could answer now."""
        ...

    async def choose_model(self, name: str | None) -> str:
        """Use `provider:model` from the next turn on, or the configured one for None; returns what is now in use, raises
        CommandFailed with a sentence when there is no such provider."""
        ...

    async def history(self, count: int, *, commands: bool = False) -> Sequence[HistoryEntry]:
        """The last `count` messages, oldest first; with `commands`, those and their answers among them."""
        ...

    def queue(self) -> QueueState:
        """What waits, and by which mode it is taken."""
        ...

    async def choose_queue(self, mode: str | None) -> None:
        """Take messages by another mode from now on, or by the configured one for None. The mode must be one that exists."""
        ...

    def verbose(self) -> bool:
        """Whether clients are to show what happens beside the conversation."""
        ...

    async def choose_verbose(self, on: bool | None) -> None:
        """Change that; None returns to the configuration."""
        ...

    def spent(self) -> Mapping[str, Mapping[str, Usage]]:
        """The session's tokens by purpose and model, as the providers counted them."""
        ...

    def inherited(self) -> Usage:
        """The tokens that had been spent before, where it is the fork of another session."""
        ...

    async def context(self) -> ContextReport:
        """What the next request would hold if it were sent now."""
        ...

    async def compact(self, focus: str) -> CompactionEntry:
        """Summarise all but the newest messages; CommandFailed with a sentence where nothing was changed."""
        ...

    async def compactions(self, count: int) -> Sequence[CompactionEntry]:
        """The last `count` compactions, the newest last."""
        ...

    async def revert(self, number: int) -> int:
        """Take back a compaction and those on top of it; returns the estimated tokens of the next request, CommandFailed
        with a sentence where that cannot be done."""
        ...

    async def remember(self, text: str) -> str:
        """Write something into the notes at once; returns where it stands (`MEMORY.md#L12-L12`), CommandFailed with a
        sentence where it cannot be written."""
        ...

    async def forget_lines(self, place: str) -> str:
        """Take lines out of a note (`MEMORY.md#L3-L4`); returns what stood there, CommandFailed with a sentence where that
        cannot be done."""
        ...

    async def distill(self) -> tuple[int, int]:
        """Make of this person's daily facts few that stay; returns how many were looked through and how many were made.
        CommandFailed with a sentence where that cannot be done now."""
        ...

    @property
    def facts(self) -> PersonsFacts:
        """The small facts, as they may be told here."""
        ...

    async def message(self, session: str, seq: int) -> str:
        """The message with this seq in a session of this person; empty where there is none."""
        ...

    async def memory(self) -> MemoryReport:
        """What is remembered."""
        ...

    async def search_memory(self, query: str) -> MemoryFound:
        """What the memory has for a query, of what may be shown here; CommandFailed where it cannot be used."""
        ...

    def stop_turn(self) -> bool:
        """Cancel the running turn; False if none runs."""
        ...

    async def start_anew(self) -> str:
        """Open the key's next session and return its id."""
        ...


class CommandFailed(Exception):
    """A command could not be done; `str(error)` is one sentence for the person."""


CommandTime: TypeAlias = Literal["now", "between_turns"]


@runtime_checkable
class Command(Protocol):
    """Something a person types after a slash."""

    name: ClassVar[str]
    """Without the slash, in lower case."""
    usage: ClassVar[str]
    """`/model [provider:model]`"""
    summary: ClassVar[str]
    """One sentence for `/help`."""
    when: ClassVar[CommandTime]
    """`now` runs beside a running turn, for 30 seconds at most; `between_turns` waits for its end, and `/stop` ends it."""

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Do it and return the answer in Markdown. `argument` is the text after the name, stripped."""
        ...


Provided: TypeAlias = ChatProvider | Tool | Command
