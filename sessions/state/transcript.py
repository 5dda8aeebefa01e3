"""The transcript: what a journal's events amount to. Everything else reads this fold.

`folding.evolve` makes the next one of it. What it holds is only what the next turn, the next command and a restart need; the
rest stays in the journal.
"""

from __future__ import annotations

from typing import get_args

import msgspec

from sessions.events.errors import SessionsError
from sessions.events.events import CallRef, InstructionsSet, MessageReceived, Succession
from sessions.events.messages import Message, Usage
from sessions.state.compaction_cycle import CompactionCut, CompactionCycle
from sessions.state.pending_deliveries import Address, PendingDelivery
from sessions.state.persistent_list import PersistentList, plain
from sessions.state.request_sizes import RequestSizes
from sessions.state.view import View

FOLD = 15
"""The version of this fold. A checkpoint of another version is not used."""


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the running turn that has no result yet. `began` once its `tool_called` stands in the log."""

    ref: CallRef
    tool: str
    arguments: str
    began: bool = False
    repeatable: bool = False


class OpenTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that has started and not ended. `replies` counts its model calls, resumptions included; `crashes` the
    resumptions that no stop on purpose explains."""

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
    """The last reply asked for nothing more: only `turn_ended` is missing."""
    started: int = 0
    """The seq of its `turn_started`."""
    group: bool = False
    """Others read along."""
    reply_to: Address | None = None
    """Where its answer is to be delivered on a plugin's channel."""
    said: int = 0
    """The seq of its last answer with a text and without calls."""

    @property
    def asked(self) -> bool:
        """Whether a model was asked for an answer already."""
        return self.replies > self.resumed

    @property
    def name(self) -> str:
        """The `provider:model` that the turn started with."""
        return f"{self.provider}:{self.model}"


class WaitingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was received and neither taken by a turn nor answered."""

    seq: int
    message: MessageReceived


class Unfolding(msgspec.Struct, frozen=True, kw_only=True):
    """How a view that a revert made larger again is folded from the whole journal: up to the event `until`, which reverts,
    nothing is cut, but what was placed before `keep_from` is not held; then the summary of compaction `to` comes first."""

    until: int
    to: int
    keep_from: int
    summary: str = ""


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """One session, folded. `head` is the last seq, `turn` the ordinal of the newest turn."""

    session: str = ""
    key: str = ""
    person: str = ""
    opened_at: str = ""
    succeeds: Succession | None = None
    head: int = 0
    bytes: int = 0
    """How long the journal is."""
    at: str = ""
    turn: int = 0
    open_turn: OpenTurn | None = None
    waiting: tuple[WaitingMessage, ...] = ()
    view: View = View()
    cycle: CompactionCycle = CompactionCycle()
    cuts: tuple[CompactionCut, ...] = ()
    """Every compaction, the newest last; those that were reverted too."""
    cut: int = 0
    """The compaction whose summary stands in the view; 0 if none."""
    summary: str = ""
    """That summary."""
    unfolding: Unfolding | None = None
    """Only while a whole journal is folded for a view that a revert made larger."""
    stale: Unfolding | None = None
    """A revert happened and the view is not yet that which it asked for; see `opening.unfolded`."""
    instructions: InstructionsSet | None = None
    instructed: int = 0
    """The seq at which these were set."""
    settings: dict[str, str] = {}
    usage: Usage = Usage()
    spent: dict[str, dict[str, Usage]] = {}
    """Tokens by purpose (`answer`, …) and, in that, by the `provider:model` that replied."""
    inherited: Usage = Usage()
    """The tokens of the session that this one is a fork of, up to where it was copied; none of them are in `usage`."""
    last_usage: Usage | None = None
    """What the provider counted last, while the beginning that it counted stands."""
    counts: RequestSizes = RequestSizes()
    """What is known of the size of requests."""
    withheld: frozenset[tuple[str, str]] = frozenset()
    """Files that a model was not shown and the person was told so: the model, and the file's hash."""
    asked_at: str = ""
    """When a model was last asked for an answer; empty if never."""
    closed: str | None = None
    owed: tuple[PendingDelivery, ...] = ()
    """Answers that are to be delivered on channels of plugins, oldest first."""

    @property
    def messages(self) -> PersistentList[Message]:
        """What the model is shown."""
        return self.view.messages

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do: no turn to finish, no message to take, no command to answer."""
        return self.open_turn is None and not self.waiting

    @property
    def finished(self) -> bool:
        """Whether the next start has nothing to do here either: no compaction or flush to close, no section to append,
        no answer to deliver."""
        return self.settled and not self.cycle.open and not self.cycle.owed and not self.owed


def open_turn(transcript: Transcript) -> OpenTurn:
    """The turn that is running; SessionsError if none is."""
    if transcript.open_turn is None:
        raise SessionsError("no turn is open")
    return transcript.open_turn


def to_checkpoint(transcript: Transcript) -> bytes:
    """The transcript as bytes for the catalog."""
    return msgspec.msgpack.encode(transcript, enc_hook=plain)


def from_checkpoint(data: bytes) -> Transcript:
    """The transcript that `to_checkpoint` wrote; msgspec.MsgspecError if it is not one."""
    return msgspec.msgpack.decode(data, type=Transcript, dec_hook=_grow)


def _grow(type_: type, value: object) -> object:
    (item,) = get_args(type_)
    return PersistentList(msgspec.convert(value, list[item]))  # type: ignore[valid-type]  # what the field says
