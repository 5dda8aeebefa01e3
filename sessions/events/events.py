"""The vocabulary of the log: what happened, in the past tense, one frozen value each.

`Event` is the union of all kinds that this version writes. A line of a journal is the envelope (`seq at turn kind`), the
fields of the event in the order given here, and `sum`; see `wire`. Rules that keep old journals readable for ever:
fields are only added, and with defaults; a new meaning is a new kind; old lines are never rewritten. A field without a
default stands on every line, one with a default only where it says something.

Every `seq` in a field is a position in the same journal, except in `Succession`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from sessions.events.messages import Attachment, ToolDefinition, Usage
from sessions.events.pruning import Edit
from sessions.events.token_features import TokenFeatures

FORMAT = 1
"""The version of the line format, written in each `session_opened`."""


class _Kind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The common form of all events; `tag` is given by each kind."""


class Succession(msgspec.Struct, frozen=True, kw_only=True):
    """The session before this one under the same key, and the seq of the message there that opened this one (where its
    journal is damaged: of its last good line)."""

    session: str
    seq: int


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why something did not come about: a stable code, and one sentence for a person."""

    code: str
    sentence: str


class RequestedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as the model asked for it. `id` is the provider's; `arguments` is JSON text, unchecked."""

    id: str
    tool: str
    arguments: str


class CallRef(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Which call: `of` is the seq of its `model_replied`, `index` its place there, from 0."""

    of: int
    index: int


class SessionOpened(_Kind, tag="session_opened", frozen=True, kw_only=True):
    """The first event of every journal. `key` is the name that its `person` uses for the conversation. `calibrations` are
    what the session before it had learnt of each `provider:model`, in the order of `Calibration.factors`."""

    format: int
    session: str
    key: str
    person: str
    succeeds: Succession | None = None
    calibrations: dict[str, tuple[float, ...]] = {}


class MessageReceived(_Kind, tag="message_received", frozen=True, kw_only=True):
    """A person's message or command arrived. `id` is the client's own; `sender` was decided by the gateway. `reply_to` is
    where the answer is to be delivered on a plugin's `channel`; empty where clients read the log."""

    id: str
    client: str
    sender: str
    channel: str
    chat: Literal["private", "group"]
    text: str
    attachments: tuple[Attachment, ...]
    reply_to: str = ""


class LoadedNote(msgspec.Struct, frozen=True, kw_only=True):
    """A note that stands in the instructions, as it was then."""

    path: str
    digest: str
    text: str


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a model was not shown: its hash, and why as a sentence for the person."""

    sha256: str
    sentence: str


class AttachmentsWithheld(_Kind, tag="attachments_withheld", frozen=True, kw_only=True):
    """The model is told of these files only that they are there. Written once for each file
    and model, for the person to know."""

    model: str
    files: tuple[Withheld, ...]


class InstructionsSet(_Kind, tag="instructions_set", frozen=True, kw_only=True):
    """What stands before the conversation in every request from here on; written only when it changed."""

    text: str
    tools: tuple[ToolDefinition, ...]
    notes: tuple[LoadedNote, ...]
    parameters: dict[str, str | int | float | bool | None]


class TurnStarted(_Kind, tag="turn_started", frozen=True, kw_only=True):
    """The turn takes these messages from the inbox. `window` and `reserve` are tokens; `window` is null if unknown."""

    takes: tuple[int, ...]
    provider: str
    model: str
    window: int | None
    reserve: int


class TurnJoined(_Kind, tag="turn_joined", frozen=True, kw_only=True):
    """The running turn takes these messages too, behind the last result of its tools."""

    takes: tuple[int, ...]


class TurnResumed(_Kind, tag="turn_resumed", frozen=True, kw_only=True):
    """A turn that a stop of the gateway interrupted goes on; `attempt` counts from 1."""

    attempt: int


class TurnInterrupted(_Kind, tag="turn_interrupted", frozen=True, kw_only=True):
    """The gateway stops, as it was asked to, in the middle of the turn; the next start resumes it."""

    reason: str


class RecalledHit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that the memory had for a message: in which document, from which line to which, under which `headings`. The
    `text` is what is shown of it, `digest` names what was found, `score` is as the search had it."""

    path: str
    lines: tuple[int, int]
    digest: str
    text: str
    score: float
    headings: tuple[str, ...] = ()


class MemoryRecalled(_Kind, tag="memory_recalled", frozen=True, kw_only=True):
    """The memory was asked for what bears on the messages of the turn, by the text `query`, and what it had is shown to the
    model behind them, between lines with the `mark`. It took `millis`."""

    query: str
    hits: tuple[RecalledHit, ...]
    mark: str
    millis: int


class RequestSent(_Kind, tag="request_sent", frozen=True, kw_only=True):
    """A model is asked. `sha256` is that of the canonical JSON of the context, `tokens` our estimate of its size, `units`
    what that was estimated from. `model` is the `provider:model` where the turn started with another."""

    purpose: str
    sha256: str
    messages: int
    tokens: int
    units: TokenFeatures | None = None
    model: str = ""


StopReason: TypeAlias = Literal["end", "calls", "length", "refused", "cancelled"]


class ModelReplied(_Kind, tag="model_replied", frozen=True, kw_only=True):
    """The model's whole answer. `reply` counts the turn's model calls, retries and resumptions included. `provider` is
    named where it is another than the one that the turn started with. `compacted`: the provider was not sent what it had
    compacted by itself, so `usage` is not that of the whole view."""

    reply: int
    model: str
    text: str
    calls: tuple[RequestedCall, ...]
    stop: StopReason
    usage: Usage | None
    opaque: str | None = None
    provider: str = ""
    compacted: bool = False


class ToolCalled(_Kind, tag="tool_called", frozen=True, kw_only=True):
    """A tool is about to run; durable before an unrepeatable one does."""

    call: CallRef
    repeatable: bool


Outcome: TypeAlias = Literal["returned", "failed", "unknown", "refused"]


class ToolReturned(_Kind, tag="tool_returned", frozen=True, kw_only=True):
    """A call has its result. `unknown`: it began and nobody knows how it ended. Where `output` is only a head and a tail,
    `cut_from` is the original length in bytes and `whole` the attachment (its SHA-256) that keeps all of it."""

    call: CallRef
    outcome: Outcome
    output: str
    cut_from: int | None = None
    whole: str | None = None


TurnOutcome: TypeAlias = Literal["replied", "silent", "cancelled", "failed", "abandoned"]


class TurnEnded(_Kind, tag="turn_ended", frozen=True, kw_only=True):
    """The turn is over; `millis` since it started or was last resumed."""

    outcome: TurnOutcome
    millis: int
    error: Failure | None = None


class ContextPruned(_Kind, tag="context_pruned", frozen=True, kw_only=True):
    """From here on the model is shown less of these messages. Edits of one message meet; see `pruning`."""

    edits: tuple[Edit, ...]


Trigger: TypeAlias = Literal["budget", "threshold", "ratio", "messages", "journal", "overflow", "command", "new"]
"""Why a compaction or a flush began: the window's budget; a configured number of tokens, share or count of messages; the
growth of the journal; the provider's refusal; `/compact`; `/new`."""


class CompactionBegan(_Kind, tag="compaction_began", frozen=True, kw_only=True):
    """What stands before `keep_from` is to leave the view. `compaction` counts the session's cycles from 1; `focus` is what
    the person asked to keep in mind; `tokens_before` our estimate of the next request."""

    compaction: int
    trigger: Trigger
    keep_from: int
    tokens_before: int
    focus: str = ""


FlushOutcome: TypeAlias = Literal["written", "nothing", "skipped", "failed"]


class MemoryFlushed(_Kind, tag="memory_flushed", frozen=True, kw_only=True):
    """The model was asked what must last of everything up to `covers_to`. Where the outcome is `written`, `text` is appended
    to the note at `path` (below the workspace) as a section marked with `digest`, if it does not stand there. `reason` is a
    sentence where it was skipped or failed."""

    compaction: int
    outcome: FlushOutcome
    covers_to: int
    path: str = ""
    text: str = ""
    digest: str = ""
    reason: str = ""
    model: str = ""
    usage: Usage | None = None


class ContextCompacted(_Kind, tag="context_compacted", frozen=True, kw_only=True):
    """The messages before `keep_from` have left the view, and `summary` stands in their place. `by` names who wrote it,
    `checks` says what was found wrong with it or with an earlier try, `failed` why the model's own was not taken. `kept` and
    `lost` are identifiers of what left that the summary names, or does not. `usage` is that of `model`. `path` is the note
    that the summary is appended to as well, empty for none."""

    compaction: int
    keep_from: int
    summary: str
    by: str
    tokens_before: int
    tokens_after: int
    messages: int = 0
    checks: tuple[str, ...] = ()
    failed: str = ""
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    model: str = ""
    usage: Usage | None = None
    path: str = ""


class NoteAppended(_Kind, tag="note_appended", frozen=True, kw_only=True):
    """What the event `of` (a `memory_flushed` or `context_compacted`, or a `message_received` that asks to remember
    something) had for a note stands in the file `path`."""

    of: int
    path: str


class CompactionAbandoned(_Kind, tag="compaction_abandoned", frozen=True, kw_only=True):
    """The cycle ended and the view stayed as it was; `reason` is a sentence. `failed`: it counts against further tries."""

    compaction: int
    reason: str
    failed: bool = False


class CompactionReverted(_Kind, tag="compaction_reverted", frozen=True, kw_only=True):
    """The view is again what it was under compaction `to` (0: none): its summary, and everything from `keep_from` on."""

    to: int
    keep_from: int


class SessionForked(_Kind, tag="session_forked", frozen=True, kw_only=True):
    """This journal began as a copy of the first `parent_seq` lines of `parent`; from here on it is a session of its own.
    The messages `left` waited there for their turn, which they have in the parent alone."""

    session: str
    key: str
    parent: str
    parent_seq: int
    left: tuple[int, ...] = ()


class ReplyDelivered(_Kind, tag="reply_delivered", frozen=True, kw_only=True):
    """The answer `of` (a `model_replied`, a `turn_ended` that failed, or a `command_answered`) was delivered on a plugin's
    channel; `receipt` is what that calls it. With `failed`, a sentence, it was given up."""

    of: int
    channel: str
    receipt: str = ""
    failed: str = ""


class SettingChanged(_Kind, tag="setting_changed", frozen=True, kw_only=True):
    """A setting of this session got a value; null returns to the configured one."""

    name: str
    value: str | None
    by: str


class CommandAnswered(_Kind, tag="command_answered", frozen=True, kw_only=True):
    """The command received at seq `answers` is done."""

    answers: int
    answer: str
    failed: bool


class SessionClosed(_Kind, tag="session_closed", frozen=True, kw_only=True):
    """Nothing more is taken here; the key goes on in another journal."""

    reason: str


class PluginFailed(_Kind, tag="plugin_failed", frozen=True, kw_only=True):
    """A plugin's code failed and the conversation went on without it; `off`: that hook is switched off."""

    plugin: str
    hook: str
    sentence: str
    off: bool = False


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a kind that this version does not know. Its line stays in the journal as it is."""

    kind: str
    line: bytes


Event: TypeAlias = (
    SessionOpened
    | MessageReceived
    | InstructionsSet
    | TurnStarted
    | TurnJoined
    | TurnResumed
    | TurnInterrupted
    | MemoryRecalled
    | RequestSent
    | ModelReplied
    | ToolCalled
    | ToolReturned
    | TurnEnded
    | SettingChanged
    | CommandAnswered
    | SessionClosed
    | PluginFailed
    | AttachmentsWithheld
    | ContextPruned
    | CompactionBegan
    | MemoryFlushed
    | ContextCompacted
    | NoteAppended
    | CompactionAbandoned
    | CompactionReverted
    | SessionForked
    | ReplyDelivered
)


def kind_of(event: type[Event]) -> str:
    """The name of an event's kind as it stands on the line."""
    return str(event.__struct_config__.tag)


KINDS: dict[str, type[Event]] = {kind_of(kind): kind for kind in get_args(Event)}


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its envelope. `at` is RFC 3339 in UTC with milliseconds, for people; `turn` the ordinal or null."""

    seq: int
    at: str
    turn: int | None
    event: Event | UnknownEvent
