"""The kinds of event in a journal: immutable values, named in the past tense.

`Event` is the union of all kinds that this version writes. A line of a journal is the envelope (`seq at turn kind`), the
fields of the event in the order given here, and `sum`; see `codec`. Rules that keep old journals readable: fields are only
added, and with defaults; a new meaning is a new kind; existing lines are never rewritten. A field without a default is on
every line; a field that equals its default is left out.

Every `seq` in a field is a position in the same journal, except in `Succession`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from sessions.events.messages import Attachment, ToolDefinition, Usage
from sessions.events.pruning import Edit
from sessions.events.tokens import TokenFeatures

FORMAT = 1
"""The version of the line format, written in each `session_opened`."""

MAIN_AGENT = "main"
"""The agent of sessions that name none."""


class _Kind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """Base class of all events; each kind sets its `tag`."""


class Succession(msgspec.Struct, frozen=True, kw_only=True):
    """The previous session of the same key, and the seq of the message there that opened this one (if that journal is
    damaged: the seq of its last intact line)."""

    session: str
    seq: int


class ChildOf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session that started a subagent, the seq of its `child_started` there, and the key of that conversation.

    The subagent has no other tools of its agent than `tools`, patterns in which `*` matches any text; None if it has all.
    """

    session: str
    seq: int
    key: str = ""
    tools: tuple[str, ...] | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for a failure: a stable code, and one sentence for a person."""

    code: str
    sentence: str


class RequestedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as the model requested it. `id` is the provider's; `arguments` is unvalidated JSON text."""

    id: str
    tool: str
    arguments: str


class CallRef(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A reference to a tool call: `of` is the seq of its `model_replied`, `index` its position there, from 0."""

    of: int
    index: int


class ImportOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The program that an imported conversation comes from, and the conversation's id there."""

    program: str
    conversation: str


class SessionOpened(_Kind, tag="session_opened", frozen=True, kw_only=True):
    """The first event of every journal.

    `key` is the `person`'s name for the conversation. `calibrations` holds what the previous session learned about each
    `provider:model`, in the order of `Calibration.factors`. `agent` answers in this session; it never changes. `parent` is
    set for a subagent, `imported` for an imported conversation: where it comes from.
    """

    format: int
    session: str
    key: str
    person: str
    succeeds: Succession | None = None
    calibrations: dict[str, tuple[float, ...]] = {}
    agent: str = MAIN_AGENT
    parent: ChildOf | None = None
    imported: ImportOrigin | None = None


class MessageReceived(_Kind, tag="message_received", frozen=True, kw_only=True):
    """A person's message or command arrived.

    `id` was chosen by the client, `sender` was determined by the gateway. `reply_to` is the chat on a plugin's `channel` to
    which the answer is delivered, and `thread` the thread of that chat; empty if clients read the log. `edits` is the id of
    a waiting message that this one replaces.
    """

    id: str
    client: str
    sender: str
    channel: str
    chat: Literal["private", "group"]
    text: str
    attachments: tuple[Attachment, ...]
    reply_to: str = ""
    thread: str = ""
    edits: str = ""


class MessageImported(_Kind, tag="message_imported", frozen=True, kw_only=True):
    """A person's message was imported from another program, where its id is `id`. The event's time is that of the message,
    and no turn takes it: it is in the view from here on."""

    id: str
    sender: str
    text: str
    attachments: tuple[Attachment, ...] = ()


class ReplyImported(_Kind, tag="reply_imported", frozen=True, kw_only=True):
    """A reply was imported from another program, where its id is `id`. The event's time is that of the reply. `model` is as
    named there, empty if it is not known; `reasoning` is shown to people and is not part of the view. After it, each of
    the `calls` has a `tool_returned`; none of them runs again."""

    id: str
    model: str
    text: str
    reasoning: str = ""
    calls: tuple[RequestedCall, ...] = ()


class MessageWithdrawn(_Kind, tag="message_withdrawn", frozen=True, kw_only=True):
    """The waiting message `of` was deleted on its channel by `by`: no turn takes it."""

    of: int
    by: str


class LoadedNote(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a note that is part of the instructions."""

    path: str
    digest: str
    text: str


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a model was not shown: its hash, and the reason as a sentence for the person."""

    sha256: str
    sentence: str


class AttachmentsWithheld(_Kind, tag="attachments_withheld", frozen=True, kw_only=True):
    """The model was given only the names of these files. Written once for each file and model, to inform the person."""

    model: str
    files: tuple[Withheld, ...]


class InstructionsSet(_Kind, tag="instructions_set", frozen=True, kw_only=True):
    """The instructions, tools, notes and parameters of every request from here on; written only when they change."""

    text: str
    tools: tuple[ToolDefinition, ...]
    notes: tuple[LoadedNote, ...]
    parameters: dict[str, str | int | float | bool | None]


class TurnStarted(_Kind, tag="turn_started", frozen=True, kw_only=True):
    """A turn took these messages from the inbox. `window` and `reserve` are tokens; `window` is null if unknown."""

    takes: tuple[int, ...]
    provider: str
    model: str
    window: int | None
    reserve: int


class TurnJoined(_Kind, tag="turn_joined", frozen=True, kw_only=True):
    """The running turn took these messages too, after its last tool result."""

    takes: tuple[int, ...]


class TurnResumed(_Kind, tag="turn_resumed", frozen=True, kw_only=True):
    """A turn continued after the gateway had stopped in the middle of it; `attempt` counts from 1."""

    attempt: int


class TurnInterrupted(_Kind, tag="turn_interrupted", frozen=True, kw_only=True):
    """The gateway was shut down in the middle of the turn; the next start resumes it."""

    reason: str


class RecalledHit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A search result from memory.

    `path`, `lines` (first and last) and `headings` locate it in its document; `text` is the excerpt shown to the model,
    `digest` identifies the passage, `score` is the search score.
    """

    path: str
    lines: tuple[int, int]
    digest: str
    text: str
    score: float
    headings: tuple[str, ...] = ()


class MemoryRecalled(_Kind, tag="memory_recalled", frozen=True, kw_only=True):
    """The memory was searched with `query` for the turn's messages; the hits are shown to the model after those messages,
    between lines that contain `mark`. The search took `millis`."""

    query: str
    hits: tuple[RecalledHit, ...]
    mark: str
    millis: int


class RequestSent(_Kind, tag="request_sent", frozen=True, kw_only=True):
    """A request was sent to a model.

    `sha256` is the hash of the context's canonical JSON, `tokens` the estimated size, `units` the token features from which
    it was estimated. `model` is the `provider:model` if it differs from the turn's.
    """

    purpose: str
    sha256: str
    messages: int
    tokens: int
    units: TokenFeatures | None = None
    model: str = ""


StopReason: TypeAlias = Literal["end", "calls", "length", "refused", "cancelled"]


class ModelReplied(_Kind, tag="model_replied", frozen=True, kw_only=True):
    """A model's complete reply.

    `reply` counts the turn's model calls, retries and resumptions included. `provider` is set if it differs from the turn's.
    `compacted` is True if the provider's service had compacted the conversation by itself, so `usage` does not cover the
    whole view. `reasoning` is shown to people and is not part of the view; the model took `reasoning_millis` to stream it.
    `cost` is what the reply cost, in millionths of the currency that was configured, None if its price was unknown.
    `notice` is a sentence of the gateway that people are shown below the reply; it is not part of the view.
    """

    reply: int
    model: str
    text: str
    calls: tuple[RequestedCall, ...]
    stop: StopReason
    usage: Usage | None
    opaque: str | None = None
    provider: str = ""
    compacted: bool = False
    reasoning: str = ""
    reasoning_millis: int = 0
    cost: int | None = None
    notice: str = ""


class ToolCalled(_Kind, tag="tool_called", frozen=True, kw_only=True):
    """A tool is about to run. The event is durable before a tool that must not be repeated runs."""

    call: CallRef
    repeatable: bool


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace file that a tool changed: the SHA-256 of its content before and after, null where there was no file. The
    content before is kept as an attachment."""

    path: str
    before: str | None
    after: str | None


class ActionPattern(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a call that an approval rule matches besides the tool: a command's `argv`, a `host`, a `path` of the
    workspace. An empty field matches everything."""

    argv: tuple[str, ...] = ()
    host: str = ""
    path: str = ""


Decision: TypeAlias = Literal["approve", "deny"]
ApprovalScope: TypeAlias = Literal["once", "session", "always"]


class ApprovalAsked(_Kind, tag="approval_asked", frozen=True, kw_only=True):
    """A person is asked whether a tool call may run.

    `what` and `detail` are shown to the person, `why` is the reason for asking. `digest` covers them and everything else
    that the call depends on: the call is refused if it differs when the call is about to run. `choices` are the scopes that
    are offered, `expires` is the time (RFC 3339) after which the answer is `deny`. `pattern` is what a rule would match.
    """

    approval: str
    call: CallRef
    tool: str
    what: str
    digest: str
    choices: tuple[ApprovalScope, ...]
    expires: str
    detail: str = ""
    why: str = ""
    pattern: ActionPattern = ActionPattern()


class ApprovalGiven(_Kind, tag="approval_given", frozen=True, kw_only=True):
    """A question was answered, `by` a person over a `channel`; by nobody if it expired, which `reason` says."""

    approval: str
    decision: Decision
    scope: ApprovalScope
    by: str
    channel: str
    reason: str = ""


class TurnParked(_Kind, tag="turn_parked", frozen=True, kw_only=True):
    """The turn waits for the answer to a question. Nothing of it runs until then."""

    approval: str


Outcome: TypeAlias = Literal["returned", "failed", "unknown", "refused"]


class ToolReturned(_Kind, tag="tool_returned", frozen=True, kw_only=True):
    """A tool call has a result.

    The outcome `unknown` means that the call began, but its result was lost. If `output` holds only the beginning and the
    end, `cut_from` is the original length in bytes and `whole` the SHA-256 of the attachment with the complete output.

    People are also shown how long it ran (`millis`), the exit code of a command, the `diff` of a change, and files in
    `attachments`. `changes` lists the workspace files that it changed, so that the change can be undone.
    """

    call: CallRef
    outcome: Outcome
    output: str
    cut_from: int | None = None
    whole: str | None = None
    millis: int | None = None
    exit_code: int | None = None
    diff: str = ""
    attachments: tuple[Attachment, ...] = ()
    changes: tuple[ChangedFile, ...] = ()


TurnOutcome: TypeAlias = Literal["replied", "silent", "cancelled", "failed", "abandoned"]


class TurnEnded(_Kind, tag="turn_ended", frozen=True, kw_only=True):
    """A turn ended, `millis` after it started or was last resumed. If it was `dropped`, because a heartbeat found nothing to
    say, all its messages leave the model's view."""

    outcome: TurnOutcome
    millis: int
    error: Failure | None = None
    dropped: bool = False


class ContextPruned(_Kind, tag="context_pruned", frozen=True, kw_only=True):
    """Some messages are shortened in the model's view from here on. Edits of the same message combine; see `pruning`."""

    edits: tuple[Edit, ...]


Trigger: TypeAlias = Literal["budget", "threshold", "ratio", "messages", "journal", "overflow", "command", "new"]
"""The reason for a compaction or flush: the window's budget; a configured number of tokens, share or number of messages; the
growth of the journal; a request that the provider refused as too long; `/compact`; `/new`."""


class CompactionBegan(_Kind, tag="compaction_began", frozen=True, kw_only=True):
    """The messages before `keep_from` are about to be replaced by a summary.

    `compaction` numbers the session's cycles from 1; `focus` is what the person asked the summary to focus on;
    `tokens_before` is the estimated size of the next request.
    """

    compaction: int
    trigger: Trigger
    keep_from: int
    tokens_before: int
    focus: str = ""


FlushOutcome: TypeAlias = Literal["written", "nothing", "skipped", "failed"]


class MemoryFlushed(_Kind, tag="memory_flushed", frozen=True, kw_only=True):
    """The model was asked what to keep in memory of everything up to `covers_to`.

    If the outcome is `written`, `text` is appended to the note at `path` (relative to the workspace) as a section marked
    with `digest`, unless it is already there. `reason` is a sentence if the flush was skipped or failed.
    """

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
    """The messages before `keep_from` were replaced by `summary` in the model's view.

    `by` names the summarizer, `checks` lists problems found in this or an earlier attempt, `failed` says why the model's own
    summary was rejected. `kept` and `lost` are identifiers from the removed messages that the summary does or does not
    contain. `usage` is that of `model`. `path` is the note to which the summary is appended too, or empty.
    """

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
    """The text for a note in the event `of` (a `memory_flushed`, `context_compacted`, or a `message_received` that asks to
    remember something) was written to the file `path`."""

    of: int
    path: str


class CompactionAbandoned(_Kind, tag="compaction_abandoned", frozen=True, kw_only=True):
    """A cycle ended without changing the view; `reason` is a sentence. `failed` is True if it counts as a failed attempt."""

    compaction: int
    reason: str
    failed: bool = False


class CompactionReverted(_Kind, tag="compaction_reverted", frozen=True, kw_only=True):
    """The view of compaction `to` (0: none) was restored: its summary, and everything from `keep_from` on."""

    to: int
    keep_from: int


class SessionForked(_Kind, tag="session_forked", frozen=True, kw_only=True):
    """This journal began as a copy of the first `parent_seq` lines of `parent`; from here on it is a separate session. The
    messages `left` were waiting there and are answered only in the parent."""

    session: str
    key: str
    parent: str
    parent_seq: int
    left: tuple[int, ...] = ()


class ReplyDelivered(_Kind, tag="reply_delivered", frozen=True, kw_only=True):
    """The answer `of` (a `model_replied`, a failed `turn_ended`, or a `command_answered`) was delivered on a plugin's
    channel; `receipt` is the channel's identifier for it. With `failed`, a sentence, delivery was abandoned.

    With `more` it was a part of the answer: `chars` of its text and `files` of its files have been delivered, and the rest
    follows.
    """

    of: int
    channel: str
    receipt: str = ""
    failed: str = ""
    chars: int = 0
    files: int = 0
    more: bool = False


class DeliveryAttempted(_Kind, tag="delivery_attempted", frozen=True, kw_only=True):
    """The channel is about to be passed the part of the answer `of` that follows `chars` of its text and `files` of its
    files. With `failed`, a sentence, it has certainly not reached the service."""

    of: int
    channel: str
    chars: int = 0
    files: int = 0
    failed: str = ""


class SettingChanged(_Kind, tag="setting_changed", frozen=True, kw_only=True):
    """A setting of this session changed; null restores the configured value."""

    name: str
    value: str | None
    by: str


class SessionTitled(_Kind, tag="session_titled", frozen=True, kw_only=True):
    """The conversation has a title, given `by` a person, or made by a `model` if that is empty. An empty title of a person
    removes it. After a person's, no model makes one."""

    title: str
    by: str
    model: str = ""
    usage: Usage | None = None


class SessionArchived(_Kind, tag="session_archived", frozen=True, kw_only=True):
    """The conversation was archived, or is no longer."""

    archived: bool
    by: str


class RequestRepeated(_Kind, tag="request_repeated", frozen=True, kw_only=True):
    """A person had an earlier request sent again, perhaps changed, outside the conversation. The answer is not kept.

    `request` is the seq of the `request_sent`, in the `session` if that is not this one. `sha256`, `tokens` and `model` (the
    `provider:model`) are those of the repeated request. `usage` is missing if the provider did not report it, or the answer
    was stopped.
    """

    request: int
    sha256: str
    tokens: int
    model: str
    by: str
    session: str = ""
    usage: Usage | None = None


class CommandAnswered(_Kind, tag="command_answered", frozen=True, kw_only=True):
    """The command received at seq `answers` was executed."""

    answers: int
    answer: str
    failed: bool


class UndoneFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of `/undo` for a file: its former content was `restored`, it was `removed` because it was new, or `kept`.

    `why` completes the sentence: the reason for keeping it, or a restriction.
    """

    path: str
    outcome: Literal["restored", "removed", "kept"]
    why: str = ""

    @property
    def sentence(self) -> str:
        """Return what was done as a sentence without its subject, which is the path."""
        done = {"restored": "has its former content again", "removed": "was new and is removed", "kept": "is left as it is"}
        return f"{done[self.outcome]}{f': {self.why}' if self.why else ''}."


class ChangesUndone(_Kind, tag="changes_undone", frozen=True, kw_only=True):
    """The command received at seq `answers` undid what tools had changed in files during the turn `of`. The model is shown
    the text `told` as a message; nothing if it is empty, because nothing was undone."""

    of: int
    answers: int
    files: tuple[UndoneFile, ...]
    told: str = ""


class ChildStarted(_Kind, tag="child_started", frozen=True, kw_only=True):
    """A subagent is to work on a `task` in the conversation `child`, and may use so many `tokens`.

    `origin` names the command or the tool call that started it. Its result comes as a message with the same `channel`,
    `chat`, `reply_to` and `thread` as the one that asked for it. It has only the tools that match `tools`, or all of its
    agent if that is None.
    """

    child: str
    task: str
    origin: str
    tokens: int
    channel: str
    chat: Literal["private", "group"]
    reply_to: str = ""
    thread: str = ""
    tools: tuple[str, ...] | None = None


ChildOutcome: TypeAlias = Literal["replied", "failed", "stopped", "over_budget"]


class ChildEnded(_Kind, tag="child_ended", frozen=True, kw_only=True):
    """The turn of the subagent `child` ended with the event `seq` of its `session`, and its result was received as a message
    unless a person stopped it."""

    child: str
    session: str
    seq: int
    outcome: ChildOutcome


class SessionClosed(_Kind, tag="session_closed", frozen=True, kw_only=True):
    """The session accepts no more messages; its key continues in another journal."""

    reason: str


class JournalErased(_Kind, tag="journal_erased", frozen=True, kw_only=True):
    """On a person's order, the content of earlier events was removed from this journal, whose sums were computed again.

    `seqs` are the first and last seq of each range of events that lost content; the rest of their envelopes is unchanged.
    `erasure` is the id of the order, `by` the person who gave it.
    """

    erasure: str
    seqs: tuple[tuple[int, int], ...]
    by: str


class PluginFailed(_Kind, tag="plugin_failed", frozen=True, kw_only=True):
    """A plugin's code failed and the conversation continued without it; `off` is True if that hook was disabled."""

    plugin: str
    hook: str
    sentence: str
    off: bool = False


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a kind that this version does not know. Its line is kept unchanged."""

    kind: str
    line: bytes


Event: TypeAlias = (
    SessionOpened
    | MessageReceived
    | MessageImported
    | ReplyImported
    | MessageWithdrawn
    | InstructionsSet
    | TurnStarted
    | TurnJoined
    | TurnResumed
    | TurnInterrupted
    | MemoryRecalled
    | RequestSent
    | ModelReplied
    | ApprovalAsked
    | TurnParked
    | ApprovalGiven
    | ToolCalled
    | ToolReturned
    | TurnEnded
    | SettingChanged
    | SessionTitled
    | RequestRepeated
    | SessionArchived
    | CommandAnswered
    | ChildStarted
    | ChildEnded
    | JournalErased
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
    | DeliveryAttempted
    | ChangesUndone
)


def kind_of(event: type[Event]) -> str:
    """Return the name of an event's kind, as written in its line."""
    return str(event.__struct_config__.tag)


KINDS: dict[str, type[Event]] = {kind_of(kind): kind for kind in get_args(Event)}


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its envelope. `at` is RFC 3339 in UTC with milliseconds, for display only; `turn` is the turn's number
    or None."""

    seq: int
    at: str
    turn: int | None
    event: Event | UnknownEvent
