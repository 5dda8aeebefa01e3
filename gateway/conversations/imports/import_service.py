"""The import into one home: conversations, facts and schedules, which only the process that has the home writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gateway.conversations.imports.branches import NAME_CHARACTERS, ImportSource, fault_of
from gateway.conversations.imports.import_files import ImportFiles, KeptFile, fault_of_file
from gateway.conversations.imports.import_log import DELETED
from gateway.conversations.imports.import_report import ImportedItems
from gateway.conversations.imports.journal_import import (
    ConversationOutcome,
    JournalImport,
    PlannedImport,
    missing_messages,
    planned,
)
from gateway.conversations.imports.readers.import_values import LeftOut, SourceConversation, SourceFile, SourceSchedule
from gateway.conversations.schedules.parsing import parse_rule
from gateway.conversations.schedules.recurrence import is_zone
from gateway.conversations.schedules.schedules import (
    SCHEDULES,
    SchedulePaused,
    ScheduleRefused,
    ScheduleResumed,
    Schedules,
    ScheduleSet,
    SchedulesUnusable,
)
from gateway.support.errors import sentence_of
from plugins.api.fact_values import FactsError, InvalidFact
from plugins.facts.fact_book import FactBook
from plugins.facts.fact_export import parse_facts
from plugins.facts.facts import Facts
from sessions.events.errors import JournalDamaged, SessionsError
from sessions.store.lazy_log import LogFormat
from sessions.store.protocols import LogReader

EXISTS = "already exists"
"""The end of the sentence about a fact that is known."""


class ImportRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of an import: a conversation, facts, or a schedule of a program."""

    program: str
    conversation: SourceConversation | None = None
    file: SourceFile | None = None
    facts: list[dict[str, Any]] | None = None
    schedule: SourceSchedule | None = None


class ImportHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that were ever imported, by what they were in the source, and those that were ever paused or resumed."""

    imported: dict[tuple[str, str], str] = {}
    touched: frozenset[str] = frozenset()


def _fold_history(
    history: ImportHistory,
    event: ScheduleSet | SchedulePaused | ScheduleResumed,
    *,
    seq: int,
    at: str,
    turn: int | None,
    size: int,
) -> ImportHistory:
    if not isinstance(event, ScheduleSet):
        return msgspec.structs.replace(history, touched=history.touched | {event.schedule})
    if not event.message.startswith("import:"):
        return history
    known = {**history.imported, (event.person, event.message): event.schedule}
    return msgspec.structs.replace(history, imported=known)


HISTORY: LogFormat[ScheduleSet | SchedulePaused | ScheduleResumed, ImportHistory] = LogFormat(
    name=SCHEDULES.name,
    events=(ScheduleSet, SchedulePaused, ScheduleResumed),
    empty=ImportHistory(),
    fold=_fold_history,
)
"""What the log of schedules says about earlier imports."""


class ImportPlanner:
    """Says what an import would do. Reads only, also while a gateway runs.

    Args:
        sessions: The logs of the sessions.
        root: The other logs of the home.
        limit: Returns the maximum size of a file in bytes.
        facts: Returns the facts.
        now: Returns the current time in UTC.
        zone: Returns the name of a person's time zone, "" for the system's.
    """

    def __init__(
        self,
        sessions: LogReader,
        root: LogReader,
        *,
        limit: Callable[[], int],
        facts: Callable[[], FactBook],
        now: Callable[[], datetime],
        zone: Callable[[str], str],
    ) -> None:
        self._sessions = sessions
        self._root = root
        self._limit = limit
        self._facts = facts
        self._now = now
        self._zone = zone

    async def conversation(self, source: ImportSource, conversation: SourceConversation) -> ConversationOutcome:
        """Say what would become of a conversation."""
        if fault := fault_of(conversation):
            return _left_out(conversation, fault)
        return planned(PlannedImport(self._sessions, source, conversation, DELETED.read(self._root)))

    async def file(self, source: ImportSource, file: SourceFile) -> KeptFile:
        """Say what would become of a file."""
        return KeptFile(reason=fault_of_file(file, self._limit()))

    async def missing(self, source: ImportSource, conversation: SourceConversation) -> frozenset[str]:
        """Return the ids of the messages that would be added. Raises StorageFailed."""
        if fault_of(conversation):
            return frozenset()
        try:
            plan = PlannedImport(self._sessions, source, conversation, DELETED.read(self._root))
        except JournalDamaged:
            return frozenset()
        return missing_messages(plan)

    async def facts(self, source: ImportSource, entries: Sequence[dict[str, Any]]) -> ImportedItems:
        """Say what would become of facts."""
        return parsed_facts(source, entries, self._facts(), self._now())[1]

    async def schedule(self, source: ImportSource, wanted: SourceSchedule) -> ImportedItems:
        """Say what would become of a schedule."""
        if (source.person, _message(source, wanted)) in HISTORY.read(self._root).imported:
            return ImportedItems(unchanged=1)
        try:
            schedule_of(source, wanted, self._now(), self._zone(source.person))
        except ScheduleRefused as error:
            return ImportedItems(left=(_refused(wanted, error),))
        return ImportedItems(new=1)


class ImportService:
    """Imports into a home.

    Args:
        journals: Writes conversations.
        files: Stores their files.
        root: The logs of the home that are not sessions.
        facts: The facts.
        schedules: The schedules.
        now: Returns the current time in UTC.
        zone: Returns the name of a person's time zone, "" for the system's.
    """

    def __init__(
        self,
        journals: JournalImport,
        files: ImportFiles,
        root: LogReader,
        *,
        facts: Facts,
        schedules: Schedules,
        now: Callable[[], datetime],
        zone: Callable[[str], str],
    ) -> None:
        self._journals = journals
        self._files = files
        self._root = root
        self._facts = facts
        self._schedules = schedules
        self._now = now
        self._zone = zone
        self._one = asyncio.Lock()

    async def conversation(self, source: ImportSource, conversation: SourceConversation) -> ConversationOutcome:
        """Add a conversation durably, as far as it is not here. Raises SessionsError."""
        if fault := await asyncio.to_thread(fault_of, conversation):
            return _left_out(conversation, fault)
        async with self._one:
            conversation, attachments = await self._files.owned(source, conversation)
            deleted = await asyncio.to_thread(DELETED.read, self._root)
            outcome = await self._journals.add(source, conversation, deleted)
            if any(branch.messages for branch in outcome.branches):
                await self._files.settle(source, attachments)
            return outcome

    async def file(self, source: ImportSource, file: SourceFile) -> KeptFile:
        """Store a file of a message that is added next. Raises SessionsError."""
        return await self._files.keep(source, file)

    async def facts(self, source: ImportSource, entries: Sequence[dict[str, Any]]) -> ImportedItems:
        """Add facts durably that are not known."""
        try:
            book = await self._facts.book()
            found, outcome = parsed_facts(source, entries, book, self._now())
            await self._facts.import_facts(found, source.person)
        except FactsError as error:
            return ImportedItems(left=(LeftOut(kind="facts", reason=sentence_of(error).rstrip("."), count=len(entries)),))
        return outcome

    async def schedule(self, source: ImportSource, wanted: SourceSchedule) -> ImportedItems:
        """Set a schedule durably, and pause it, unless it was imported before."""
        try:
            history = await asyncio.to_thread(HISTORY.read, self._root)
            known = history.imported.get((source.person, _message(source, wanted)))
            if known is None:
                made = schedule_of(source, wanted, self._now(), self._zone(source.person))
                known = (await self._schedules.set(made)).id
            elif known in history.touched or known not in await self._schedules.known():
                return ImportedItems(unchanged=1)
            await self._schedules.pause(source.person, known)
        except (ScheduleRefused, SchedulesUnusable, SessionsError) as error:
            return ImportedItems(left=(_refused(wanted, error),))
        return ImportedItems(new=1)


def parsed_facts(
    source: ImportSource, entries: Sequence[dict[str, Any]], book: FactBook, now: datetime
) -> tuple[tuple[Any, ...], ImportedItems]:
    """Return the new facts among entries, and what becomes of all."""
    rows = [{**entry, "owner": source.person, "source": "imported"} for entry in entries]
    try:
        found = parse_facts(msgspec.json.encode(rows), book.facts, now)
    except InvalidFact as error:
        return (), ImportedItems(left=(LeftOut(kind="facts", reason=str(error).rstrip("."), count=len(entries)),))
    new = tuple(fact for fact in found.entries if not book.is_gone(fact.id))
    known = sum(sentence.rstrip(".").endswith(EXISTS) for sentence in found.refused)
    left = [
        LeftOut(kind="facts", reason=sentence.partition(": ")[2].rstrip("."))
        for sentence in found.refused
        if not sentence.rstrip(".").endswith(EXISTS)
    ]
    if gone := len(found.entries) - len(new):
        left.append(LeftOut(kind="facts", reason="forgotten here", count=gone))
    return new, ImportedItems(new=len(new), unchanged=known, left=tuple(left))


def schedule_of(source: ImportSource, wanted: SourceSchedule, now: datetime, zone: str) -> ScheduleSet:
    """Return a schedule of another program as one of ours. Raises ScheduleRefused."""
    if len(wanted.id) > NAME_CHARACTERS:
        raise ScheduleRefused(f"Its id has more than {NAME_CHARACTERS:,} characters.")
    if wanted.zone and not is_zone(wanted.zone):
        raise ScheduleRefused(f"There is no time zone {wanted.zone[:40]!r}.")
    rule, rest = parse_rule(f"{wanted.rule} x", now, wanted.zone or zone)
    if rest != "x":
        raise ScheduleRefused(f"The rule {wanted.rule[:60]!r} is not known.")
    message = _message(source, wanted)
    client = "import"
    return ScheduleSet(
        schedule="",
        person=source.person,
        client=client,
        key="main",
        text=wanted.text,
        rule=rule,
        channel="websocket",
        message=message,
    )


def _left_out(conversation: SourceConversation, reason: str) -> ConversationOutcome:
    name = (conversation.title or conversation.name or conversation.id)[:NAME_CHARACTERS]
    return ConversationOutcome(left=(LeftOut(kind="conversations", reason=reason, name=name),))


def _message(source: ImportSource, wanted: SourceSchedule) -> str:
    return f"import:{source.program}:{wanted.id}"


def _refused(wanted: SourceSchedule, error: Exception) -> LeftOut:
    return LeftOut(kind="schedules", reason=sentence_of(error).rstrip("."), name=wanted.name or wanted.text[:60])
