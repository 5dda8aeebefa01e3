"""The transcript: the state of a session, folded from its journal by `reducer.evolve`.

It holds only what the next turn, the next command and a restart need; the rest stays in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, get_args

import msgspec

from sessions.events.errors import SessionsError
from sessions.events.events import (
    MAIN_AGENT,
    ActionPattern,
    ApprovalAsked,
    ApprovalGiven,
    CallRef,
    ChildOf,
    ChildStarted,
    InstructionsSet,
    MessageReceived,
    Succession,
    TurnEnded,
)
from sessions.events.messages import Attachment, Message, Usage
from sessions.state.compaction_cycle import CompactionCut, CompactionCycle
from sessions.state.persistent_list import PersistentList, plain
from sessions.state.request_sizes import RequestSizes
from sessions.state.view import View

FOLD = 21
"""The version of the fold. A checkpoint of another version is ignored."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The destination of an answer: a channel, and the channel's own names of a chat and of a thread, if any."""

    channel: str
    chat: str
    thread: str = ""


class PendingDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to be delivered: the seq of the event that holds it, the destination, and the files that tools returned.

    `answers` is the id of the message in a group that it answers. So many `chars` of its text and `delivered_files` have
    been delivered in `parts`; the next part was `attempted`, and what came of it is not known.
    """

    of: int
    to: Address
    files: tuple[Attachment, ...] = ()
    answers: str = ""
    chars: int = 0
    delivered_files: int = 0
    parts: int = 0
    attempted: bool = False


class Destination(NamedTuple):
    """Where an answer is delivered, and the id of the message that it answers in a group, else ""."""

    address: Address
    answers: str


def reply_address(messages: Iterable[MessageReceived]) -> Destination | None:
    """Return the destination of the answer to these messages: where the last one that came over a channel was sent from."""
    last = next((message for message in reversed(tuple(messages)) if message.reply_to), None)
    if last is None:
        return None
    address = Address(channel=last.channel, chat=last.reply_to, thread=last.thread)
    return Destination(address, last.id if last.chat == "group" else "")


def due_deliveries(ended: TurnEnded, seq: int, turn: OpenTurn) -> tuple[PendingDelivery, ...]:
    """Return the deliveries due after a turn: its last text with the files of its tools, or its error. A cancelled or silent
    turn has none.

    Args:
        ended: The end of the turn.
        seq: The seq of that event.
        turn: The turn.
    """
    if (to := turn.reply_to) is None:
        return ()
    if ended.outcome == "replied" and turn.said:
        return (PendingDelivery(of=turn.said, to=to, files=turn.files, answers=turn.answers),)
    return (PendingDelivery(of=seq, to=to, answers=turn.answers),) if ended.error is not None else ()


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the running turn without a result. `began` is True once its `tool_called` is in the log."""

    ref: CallRef
    tool: str
    arguments: str
    began: bool = False
    repeatable: bool = False


class ApprovalQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question about a call of the running turn, in the event `seq`. `during` is True if the call asked while it ran,
    `answer` is None while the question is open, `answered` is the seq of the answer. `receipts` are the channel's
    identifiers of the posts with the question."""

    asked: ApprovalAsked
    seq: int = 0
    during: bool = False
    answer: ApprovalGiven | None = None
    answered: int = 0
    receipts: tuple[str, ...] = ()


RECENT_ANSWERS = 50
"""The number of answered questions that a transcript remembers."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, and the pattern of its calls that a person has approved for the rest of the session."""

    tool: str
    pattern: ActionPattern


class OpenTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that has started and not ended. `replies` counts its model calls, resumptions included; `crashes` counts the
    resumptions that were not preceded by an orderly shutdown."""

    ordinal: int
    at: str
    takes: tuple[int, ...]
    provider: str
    model: str
    window: int | None
    reserve: int
    resumed: int = 0
    crashes: int = 0
    interrupted: bool = False
    replies: int = 0
    calls: tuple[OpenCall, ...] = ()
    finished: bool = False
    """True if the last reply requested no tools: only `turn_ended` is missing."""
    started: int = 0
    """The seq of its `turn_started`."""
    group: bool = False
    """True if other people read the chat too."""
    reply_to: Address | None = None
    """The destination of the answer on a plugin's channel."""
    answers: str = ""
    """The id of the message in a group that it answers."""
    said: int = 0
    """The seq of the last answer that has a text and requests no tools."""
    questions: tuple[ApprovalQuestion, ...] = ()
    """The questions about calls without a result."""
    parked: str = ""
    """The id of the question that the turn waits for; empty while it runs."""
    files: tuple[Attachment, ...] = ()
    """The files that its tools have returned."""
    senders: tuple[str, ...] = ()
    """The `client` of each message that it answers: on a channel, who sent it."""

    def question(self, approval: str) -> ApprovalQuestion | None:
        """Return the question with this id, or None."""
        return next((each for each in self.questions if each.asked.approval == approval), None)

    @property
    def answered(self) -> int:
        """The seq of the last answer to a question."""
        return max((question.answered for question in self.questions), default=0)

    @property
    def asked(self) -> bool:
        """True if a model was already asked for an answer."""
        return self.replies > self.resumed

    @property
    def name(self) -> str:
        """The `provider:model` with which the turn started."""
        return f"{self.provider}:{self.model}"


class WaitingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A received message that no turn has taken and no command has answered."""

    seq: int
    message: MessageReceived


class StartedChild(msgspec.Struct, frozen=True, kw_only=True):
    """A subagent that the session has started with the event `seq`."""

    seq: int
    started: ChildStarted
    ended: bool = False

    @property
    def origin(self) -> str:
        """The name of the command or the call that started it."""
        return self.started.origin


RECENT_CHILDREN = 50
"""The number of ended subagents that a transcript remembers, so that a command that runs again starts no other one."""


class Unfolding(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions for folding a whole journal after a revert enlarged the view: up to the event `until`, which is the
    revert, nothing is cut, but messages placed before `keep_from` are skipped; then the summary of compaction `to` is put
    first."""

    until: int
    to: int
    keep_from: int
    summary: str = ""


PINNED = "pinned"
"""The setting of a conversation that people want at the top of their lists; `true`."""


class Title(msgspec.Struct, frozen=True, kw_only=True):
    """The title of a conversation, empty if a person removed it, and the person who gave it; nobody if a model made it."""

    text: str
    by: str


class ForkOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a fork continues, and the seq of the last event that they share."""

    session: str
    seq: int


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """The folded state of one session. `head` is the last seq, `turn` the number of the newest turn."""

    session: str = ""
    key: str = ""
    person: str = ""
    agent: str = MAIN_AGENT
    """The agent that answers."""
    parent: ChildOf | None = None
    """The session that started this one as a subagent."""
    children: tuple[StartedChild, ...] = ()
    """The subagents that run, and the last ones that have ended, in the order of their starts."""
    opened_at: str = ""
    succeeds: Succession | None = None
    head: int = 0
    bytes: int = 0
    """The length of the journal."""
    at: str = ""
    turn: int = 0
    open_turn: OpenTurn | None = None
    waiting: tuple[WaitingMessage, ...] = ()
    view: View = View()
    cycle: CompactionCycle = CompactionCycle()
    cuts: tuple[CompactionCut, ...] = ()
    """All compactions, oldest first, including reverted ones."""
    cut: int = 0
    """The compaction whose summary is in the view; 0 if none."""
    summary: str = ""
    """That summary."""
    unfolding: Unfolding | None = None
    """Set only while a whole journal is folded after a revert."""
    stale: Unfolding | None = None
    """A revert whose view has not been rebuilt yet; see `recorder.fold_reverted`."""
    instructions: InstructionsSet | None = None
    instructed: int = 0
    """The seq of `instructions`."""
    settings: dict[str, str] = {}
    title: Title | None = None
    """The title; None if the conversation never had one."""
    beginning: str = ""
    """The beginning of the first message that is no command, on one line: a name as long as there is no title."""
    archived: bool = False
    replied: int = 0
    """The seq of the newest end of a turn, or answer to a command."""
    used: str = ""
    """The time of that, or of a newer message."""
    origin: ForkOrigin | None = None
    """The session that this one was forked from."""
    channel: str = ""
    """The channel of the first message."""
    usage: Usage = Usage()
    spent: dict[str, dict[str, Usage]] = {}
    """Tokens by purpose (`answer`, …), then by the `provider:model` that replied."""
    inherited: Usage = Usage()
    """Tokens used by the parent session up to the fork; not included in `usage`."""
    last_usage: Usage | None = None
    """The provider's last count, as long as the counted beginning of the view is unchanged."""
    counts: RequestSizes = RequestSizes()
    """The known sizes of requests."""
    withheld: frozenset[tuple[str, str]] = frozenset()
    """Files that a model was not shown, which the person was told: pairs of the model and the file's hash."""
    asked_at: str = ""
    """The time of the last request for an answer; empty if there was none."""
    closed: str | None = None
    answers: tuple[ApprovalGiven, ...] = ()
    """The last answers to questions, so that a later one is told who was first."""
    grants: tuple[Grant, ...] = ()
    """The calls that a person has approved for the rest of the session."""
    owed: tuple[PendingDelivery, ...] = ()
    """Answers to be delivered on channels of plugins, oldest first."""

    @property
    def messages(self) -> PersistentList[Message]:
        """The messages that the model is shown."""
        return self.view.messages

    @property
    def open_children(self) -> tuple[StartedChild, ...]:
        """The subagents that have not ended."""
        return tuple(child for child in self.children if not child.ended)

    @property
    def settled(self) -> bool:
        """True if no turn, message or command is pending."""
        return self.open_turn is None and not self.waiting

    @property
    def finished(self) -> bool:
        """True if the next start has nothing to resume: also no open compaction or flush, no pending note and no pending
        delivery, and no running subagent."""
        return not self.open_children and self.settled and not self.cycle.open and not self.cycle.owed and not self.owed


def open_turn(transcript: Transcript) -> OpenTurn:
    """Return the running turn. Raises SessionsError if there is none."""
    if transcript.open_turn is None:
        raise SessionsError("no turn is running")
    return transcript.open_turn


def to_checkpoint(transcript: Transcript) -> bytes:
    """Encode a transcript as a checkpoint for the catalog."""
    return msgspec.msgpack.encode(transcript, enc_hook=plain)


def from_checkpoint(data: bytes) -> Transcript:
    """Decode a transcript written by `to_checkpoint`. Raises msgspec.MsgspecError."""
    return _decode(data)


def _grow(type_: type, value: object) -> object:
    (item,) = get_args(type_)
    return PersistentList(msgspec.convert(value, list[item]))  # type: ignore[valid-type]  # the type that the field declares


# Of each type, msgspec examines the fields when it is first used, and crashes if two threads do so at once: here one does.
_decode = msgspec.msgpack.Decoder(Transcript, dec_hook=_grow).decode
msgspec.msgpack.Decoder(list[Message])  # which `_grow` converts
