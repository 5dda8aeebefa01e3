"""The contract of commands: what a person types after a slash, and what it sees of the conversation and may do to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from sessions.events.messages import Usage

if TYPE_CHECKING:
    from plugins.api.facts.fact_events import FactHistory
    from plugins.api.facts.fact_values import Fact, Layer


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


class ModelsOffered(msgspec.Struct, frozen=True, kw_only=True):
    """The models of one provider that can be talked to, by their names there; `failed` says in a word or two why its list
    could not be had, empty where it could."""

    provider: str
    models: tuple[str, ...] = ()
    failed: str = ""


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered: how many notes, sessions and pieces of both can be found, `how` they are (`by words`), the notes
    that changed last, what is to be known besides, in sentences, and the date here (None where that is not known)."""

    notes: int
    sessions: int
    chunks: int
    how: str
    latest: tuple[NoteEntry, ...] = ()
    remarks: tuple[str, ...] = ()
    today: date | None = None


class MemoryFound(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found: where each piece stands (`MEMORY.md#L3-L7`) and its text, best first; remarks in sentences."""

    hits: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...] = ()


class FactsView(Protocol):
    """The facts as one person sees them in one chat: their own and everybody's; in a group, everybody's alone.

    Every method raises FactsError: NoSuchFact for a name that means no fact, FactsUnavailable if nothing can be done now.
    """

    async def listed(self, layer: Layer | None = None) -> Sequence[Fact]:
        """Return the facts of a layer, or all, oldest first."""
        ...

    async def pin(self, named: str, *, pinned: bool = True) -> Fact:
        """Keep a fact whatever comes, or no longer, and return it."""
        ...

    async def forget(self, named: str) -> Fact:
        """Delete a fact and return it."""
        ...

    async def daily(self) -> Sequence[Fact]:
        """Return the person's daily log, without what is everybody's."""
        ...

    async def clear(self) -> int:
        """Empty the daily log, pinned facts excepted, and return how many facts were deleted."""
        ...

    async def story(self, named: str) -> FactHistory:
        """Return the history of a fact."""
        ...


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

    async def offered_models(self) -> Sequence[ModelsOffered]:
        """The models of each provider that is set up and keeps a list of them, which its server may be asked for."""
        ...

    async def choose_model(self, name: str | None) -> str:
        """Use `provider:model` from the next turn on, or the configured one for None; returns what is now in use, and what
        is doubtful about it. Raises CommandFailed with a sentence when there is no such provider, or it does not list that
        model."""
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

    def spent_by_plugins(self) -> Mapping[str, Mapping[str, Usage]]:
        """What plugins have used beside all sessions since the gateway started, by `plugin:NAME` and model."""
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
    def facts(self) -> FactsView:
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
