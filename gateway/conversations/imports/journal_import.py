"""Writes imported conversations into journals.

Whatever of a branch is here already is kept, so that an import that was killed is completed by the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Literal, Protocol

import msgspec

from gateway.conversations.imports.branches import (
    ExistingBranch,
    ImportSource,
    Placement,
    branches_of,
    place,
    times_of,
)
from gateway.conversations.imports.import_log import began_at, known_conversation
from gateway.conversations.imports.readers.import_values import LeftOut, SourceCall, SourceConversation, SourceMessage
from gateway.conversations.routing.conversation_runner import CatalogWriter
from gateway.support.errors import Conflict, OwnedElsewhere
from sessions.events.errors import JournalDamaged
from sessions.events.events import (
    FORMAT,
    CallRef,
    Event,
    ImportOrigin,
    MessageImported,
    ReplyImported,
    RequestedCall,
    SessionArchived,
    SessionOpened,
    SessionTitled,
    ToolReturned,
)
from sessions.state.transcript import Transcript
from sessions.state.truncation import head_and_tail
from sessions.store.catalog import Catalog
from sessions.store.fork import Fork, fork
from sessions.store.log_writer import LineTooLong
from sessions.store.protocols import START, Log, LogReader, Position, Store
from sessions.store.recorder import Recorder, open_session

PENDING_BYTES = 1024 * 1024
"""Bytes of a journal that are written before they are synced."""

CUT_BYTES = 512 * 1024
"""Bytes that are kept of a text that does not fit a line."""


NO_RESULT = "The program that this was imported from has no result of it."
"""The output of a call without a result."""

EMPTY = Transcript()


class ImportedBranch(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a branch: `messages` were added to the session of a `key`."""

    key: str
    session: str
    messages: int
    outcome: Literal["new", "forked", "continued", "unchanged"]


class ConversationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a conversation."""

    branches: tuple[ImportedBranch, ...] = ()
    left: tuple[LeftOut, ...] = ()


class JournalKeeper(Protocol):
    """Who may have a conversation open meanwhile."""

    def importing(self, person: str, key: str) -> AbstractAsyncContextManager[None]:
        """Keep a conversation closed for as long as the block runs. Raises Conflict if it is in use."""
        ...

    async def copy(self, parent: str, session: str, key: str, *, now: datetime, at: int) -> Fork:
        """Copy a session up to an event into a new one; see `sessions.store.fork.fork`."""
        ...


class UnusedHome:
    """The `JournalKeeper` of a home on which no gateway runs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @asynccontextmanager
    async def importing(self, person: str, key: str) -> AsyncIterator[None]:
        """Do nothing; see `JournalKeeper.importing`."""
        yield

    async def copy(self, parent: str, session: str, key: str, *, now: datetime, at: int) -> Fork:
        """Copy a session; see `JournalKeeper.copy`."""
        return await fork(self._store, parent, session, key, now, at=at)


class PlannedImport:
    """A conversation, its branches, and the sessions that exist of it. Reads only.

    Args:
        logs: The logs of the sessions.
        source: The person and the program.
        conversation: The conversation.
        deleted: The ids of all deleted sessions.

    Raises:
        JournalDamaged, StorageFailed: A session of it cannot be read.
    """

    def __init__(
        self, logs: LogReader, source: ImportSource, conversation: SourceConversation, deleted: frozenset[str]
    ) -> None:
        self.source = source
        self.conversation = conversation
        self.branches, self._too_many = branches_of(conversation)
        self.began = began_at(conversation, self.branches[0])
        known = known_conversation(logs, source, conversation, self.began, deleted)
        self.existing = list(known.existing)
        self._deleted = deleted
        self._refused = "deleted here" if known.deleted else "its id belongs to another session" if known.taken else ""

    @property
    def name(self) -> str:
        """The name of the conversation for the report."""
        return self.conversation.title or self.conversation.name or self.conversation.id

    def left(self) -> list[LeftOut]:
        """Return what is left out of the whole conversation."""
        if self._refused:
            return [LeftOut(kind="conversations", reason=self._refused, name=self.name)]
        if not self._too_many:
            return []
        return [LeftOut(kind="messages", reason="of more than 64 branches", name=self.name, count=self._too_many)]

    @property
    def refused(self) -> bool:
        """True if nothing of the conversation is imported."""
        return bool(self._refused)

    def target(self, branch: Sequence[SourceMessage], placement: Placement) -> tuple[str, str]:
        """Return the session and the key to which a branch is added."""
        if placement.base is not None and not placement.fork_at:
            return placement.base.session, placement.base.key
        node = branch[placement.start].id if self.existing else ""
        at = branch[placement.start].at or self.began
        return self.source.session(self.conversation.id, at if node else self.began, node), self.source.key(
            self.conversation, node
        )

    def is_deleted(self, session: str) -> bool:
        """Return True if a session was deleted here."""
        return session in self._deleted

    def added(self, branch: Sequence[SourceMessage], placement: Placement) -> ImportedBranch:
        """Note a branch as added, without its seqs: a plan forks from nothing that it only planned."""
        session, key = self.target(branch, placement)
        outcome = outcome_of(branch, placement)
        self.note(branch, placement, range(1, len(branch) - placement.start + 1))
        return ImportedBranch(key=key, session=session, messages=len(branch) - placement.start, outcome=outcome)

    def note(self, branch: Sequence[SourceMessage], placement: Placement, seqs: Iterable[int]) -> None:
        """Note that the rest of a branch was added, whose last events are `seqs`."""
        session, key = self.target(branch, placement)
        base, end = placement.base, placement.end
        before = (base.messages[:end], base.seqs[:end]) if base is not None else ((), ())
        ids = (*before[0], *(message.id for message in branch[placement.start :]))
        grown = ExistingBranch(session=session, key=key, messages=ids, seqs=(*before[1], *seqs), used=False)
        self.existing = [*(each for each in self.existing if each.session != session), grown]


def missing_messages(plan: PlannedImport) -> frozenset[str]:
    """Return the ids of the messages that an import would add."""
    missing: set[str] = set()
    for branch in [] if plan.refused else plan.branches:
        placement = place(branch, plan.existing)
        if outcome_of(branch, placement) != "unchanged" and not plan.is_deleted(plan.target(branch, placement)[0]):
            missing |= {message.id for message in branch[max(0, placement.start - bool(placement.lacking)) :]}
            plan.added(branch, placement)
    return frozenset(missing)


def outcome_of(branch: Sequence[SourceMessage], placement: Placement) -> Literal["new", "forked", "continued", "unchanged"]:
    """Return what a placement does."""
    if placement.base is None:
        return "new"
    if placement.start == len(branch) and not placement.lacking:
        return "unchanged"
    return "forked" if placement.fork_at else "continued"


def planned(plan: PlannedImport) -> ConversationOutcome:
    """Return what an import would do, without doing it."""
    left = plan.left()
    done: list[ImportedBranch] = []
    for branch in [] if plan.refused else plan.branches:
        placement = place(branch, plan.existing)
        if outcome_of(branch, placement) != "unchanged" and plan.is_deleted(plan.target(branch, placement)[0]):
            left.append(LeftOut(kind="messages", reason="of a branch that was deleted here", name=plan.name))
        else:
            done.append(plan.added(branch, placement))
    return ConversationOutcome(branches=tuple(done), left=tuple(left))


class JournalImport:
    """Imports conversations.

    Args:
        store: The logs of the sessions.
        catalog: Their catalog.
        keeper: Who may have them open.
    """

    def __init__(self, store: Store, catalog: Catalog, keeper: JournalKeeper) -> None:
        self._store = store
        self._catalog = catalog
        self._keeper = keeper

    async def add(
        self, source: ImportSource, conversation: SourceConversation, deleted: frozenset[str]
    ) -> ConversationOutcome:
        """Add a conversation durably, as far as it is not here. Raises StorageFailed."""
        try:
            plan = await asyncio.to_thread(PlannedImport, self._store, source, conversation, deleted)
        except JournalDamaged as damaged:
            name = conversation.title or conversation.id
            why = LeftOut(kind="conversations", reason=f"its session {damaged.session} is damaged", name=name)
            return ConversationOutcome(left=(why,))
        left = plan.left()
        done: list[ImportedBranch] = []
        for branch in [] if plan.refused else plan.branches:
            added = await self._add_branch(plan, branch)
            if isinstance(added, LeftOut):
                left.append(added)
            else:
                done.append(added[0])
                left += added[1]
        return ConversationOutcome(branches=tuple(done), left=tuple(left))

    async def _add_branch(
        self, plan: PlannedImport, branch: Sequence[SourceMessage]
    ) -> tuple[ImportedBranch, list[LeftOut]] | LeftOut:
        placement = place(branch, plan.existing)
        outcome = outcome_of(branch, placement)
        session, key = plan.target(branch, placement)
        unchanged = ImportedBranch(key=key, session=session, messages=0, outcome="unchanged")
        if outcome == "unchanged":
            return unchanged, []
        if plan.is_deleted(session):
            return LeftOut(kind="messages", reason="of a branch that was deleted here", name=plan.name)
        try:
            async with self._keeper.importing(plan.source.person, key):
                return await self._write(plan, branch, placement)
        except (Conflict, OwnedElsewhere, JournalDamaged) as error:
            return LeftOut(kind="messages", reason=str(error), name=plan.name, count=len(branch) - placement.start)

    async def _write(
        self, plan: PlannedImport, branch: Sequence[SourceMessage], placement: Placement
    ) -> tuple[ImportedBranch, list[LeftOut]]:
        session, key = plan.target(branch, placement)
        outcome, times = outcome_of(branch, placement), times_of(branch, plan.began)
        if placement.base is not None and placement.fork_at:
            now = datetime.fromisoformat(times[placement.start])
            await self._keeper.copy(placement.base.session, session, key, now=now, at=placement.fork_at)
        writer = await self._open(plan.source.person, session, key, new=placement.base is None)
        try:
            if placement.base is None:
                writer.append(_opened(plan, session, key), plan.began)
            if not placement.start:
                for event in _beginning(plan, placement.base):
                    writer.append(event, plan.began)
            if placement.base is not None and placement.lacking:
                last = placement.start - 1
                seq = writer.complete(branch[last], placement.base, times[last])
                whole = msgspec.structs.replace(placement.base, seqs=(*placement.base.seqs[:-1], seq), lacking=0)
                placement = msgspec.structs.replace(placement, base=whole)
            seqs = []
            for index in range(placement.start, len(branch)):
                seqs.append(writer.add(plan.source.person, branch[index], times[index]))
                await writer.keep_up()
            await writer.finish()
        finally:
            await writer.close()
        writer.record(self._catalog)
        plan.note(branch, placement, seqs)
        added = len(branch) - placement.start
        left = [LeftOut(kind="messages", reason="too long, so that they were cut", name=plan.name, count=writer.cut)]
        return (
            ImportedBranch(key=key, session=session, messages=added, outcome=outcome),
            left if writer.cut else [],
        )

    async def _open(self, person: str, session: str, key: str, *, new: bool) -> _ImportWriter:
        if new:
            return _ImportWriter(await self._store.create(session))
        await self._catalog.current(person, key)
        opened = await open_session(self._store, self._catalog, session)
        return _ImportWriter(opened.log, opened.position, opened.transcript)


def _opened(plan: PlannedImport, session: str, key: str) -> SessionOpened:
    origin = ImportOrigin(program=plan.source.program, conversation=plan.conversation.id)
    return SessionOpened(format=FORMAT, session=session, key=key, person=plan.source.person, imported=origin)


def _beginning(plan: PlannedImport, base: ExistingBranch | None) -> Iterator[Event]:
    """Yield the events that give a session its title and archive it, as far as an interrupted import has not."""
    if plan.conversation.title and not (base and base.titled):
        yield SessionTitled(title=plan.conversation.title, by=plan.source.person)
    if plan.conversation.archived and not (base and base.archived):
        yield SessionArchived(archived=True, by=plan.source.person)


def _imported(person: str, message: SourceMessage) -> Event:
    if not message.reply:
        return MessageImported(id=message.id, sender=person, text=message.text, attachments=message.attachments)
    calls = tuple(RequestedCall(id=call.id, tool=call.tool, arguments=call.arguments) for call in message.calls)
    return ReplyImported(id=message.id, model=message.model, text=message.text, reasoning=message.reasoning, calls=calls)


def _result(call: SourceCall, ref: CallRef) -> ToolReturned:
    output = call.output if call.outcome != "unknown" else NO_RESULT
    return ToolReturned(call=ref, outcome=call.outcome, output=output, attachments=call.attachments)


def _shortened(event: Event) -> Event:
    """Return an event whose texts fit a line."""
    match event:
        case ToolReturned(output=output):
            return msgspec.structs.replace(event, output=head_and_tail(output, CUT_BYTES))
        case ReplyImported(text=text, calls=calls):
            bare = tuple(msgspec.structs.replace(call, arguments="{}") for call in calls)
            return msgspec.structs.replace(event, text=head_and_tail(text, CUT_BYTES), reasoning="", calls=bare)
        case _:
            assert isinstance(event, MessageImported)
            return msgspec.structs.replace(event, text=head_and_tail(event.text, CUT_BYTES))


class _ImportWriter:
    """The recorder of a session whose events have times of their own. `cut` counts the shortened texts."""

    def __init__(self, log: Log, position: Position = START, transcript: Transcript = EMPTY) -> None:
        self._at = datetime.fromtimestamp(0, UTC)
        self._recorder = Recorder(log, position, transcript, lambda: self._at)
        self._pending = 0
        self.cut = 0

    def add(self, person: str, message: SourceMessage, at: str) -> int:
        """Append a message and the results of its calls; return the seq of the last event."""
        seq = self.append(_imported(person, message), at)
        return self._results(seq, message.calls, 0, at)

    def complete(self, message: SourceMessage, base: ExistingBranch, at: str) -> int:
        """Append the results that the last message of a session lacks; return the seq of the last event."""
        known = max(0, len(message.calls) - base.lacking)
        return self._results(base.seqs[-1] - known, message.calls, known, at)

    def _results(self, of: int, calls: Sequence[SourceCall], known: int, at: str) -> int:
        """Append the results of the calls of a reply, of which some are known; return the seq of the last event."""
        seq = of
        for index, call in enumerate(calls[known:], known):
            seq = self.append(_result(call, CallRef(of=of, index=index)), at)
        return seq

    def append(self, event: Event, at: str) -> int:
        """Append an event of a time; a text that is too long for a line is cut."""
        self._at = datetime.fromisoformat(at)
        before = self._recorder.log.end
        try:
            seq = self._recorder.append(event, urgent=True)
        except LineTooLong:
            self.cut += 1
            seq = self._recorder.append(_shortened(event), urgent=True)
        self._pending += self._recorder.log.end - before
        return seq

    async def keep_up(self) -> None:
        """Wait for the disk once enough is pending."""
        if self._pending > PENDING_BYTES:
            await self.finish()

    async def finish(self) -> None:
        """Wait until everything is durable."""
        self._pending = 0
        await self._recorder.until_durable(self._recorder.head)

    async def close(self) -> None:
        """Close the log."""
        await self._recorder.close()

    def record(self, catalog: Catalog) -> None:
        """Add the closed session to the catalog."""
        CatalogWriter(catalog).put(self._recorder)
