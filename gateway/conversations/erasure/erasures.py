"""Carries out erasures: the order is recorded durably, then everything that it reaches is erased, in steps that can be
repeated after an interruption at any moment.

What was chosen is read from the journals, of which those with it are rewritten last, and the facts after them, whose ids are
in the order: so a repetition finds everything again. The indexes are purged after that, since they are filled from these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from gateway.conversations.deletion.deletion_log import ErasedSession, ErasureOrdered, new_removal_id
from gateway.conversations.erasure.erasure_plan import (
    Chosen,
    Reached,
    RecallEraser,
    SessionEraser,
    family,
    ranges,
    reached_in,
    would_change,
)
from gateway.conversations.erasure.fact_lines import ErasedFacts, FactEraser, facts_to_erase
from gateway.conversations.erasure.note_sections import erase_from_notes, remove_notes_of
from gateway.conversations.erasure.other_logs import (
    OtherLog,
    PersonEraser,
    erase_from,
    pseudonym,
    quote_eraser,
    unexamined_files,
)
from gateway.conversations.erasure.text_scrubbing import TextScrubber
from gateway.conversations.facts.fact_store import LOG as FACTS
from plugins.support.workspace import PERSON_ID
from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import JournalDamaged, SessionsError, UnknownSession
from sessions.events.events import JournalErased, SessionTitled
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript
from sessions.store.catalog import Catalog, SessionRow
from sessions.store.log_writer import stamp
from sessions.store.protocols import START, Blobs, Lines, LogReader, Stamp, Store
from sessions.store.rewriting import Appended, Change, rechained

_TITLED = b'"kind":"session_titled"'

log = structlog.get_logger("exuvia.erasures")


class FactLogPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The log of an agent's facts: its store, and what keeps it closed while it is rewritten."""

    store: Store
    closed: Callable[[], AbstractAsyncContextManager[None]]


class ErasurePlan(msgspec.Struct, kw_only=True):
    """What an order reaches, as it was read before anything was erased. `changing` are the sessions with lines to change,
    `read` the stamps of all logs before they were read."""

    order: ErasureOrdered
    reached: dict[str, Reached]
    facts: ErasedFacts
    read: Mapping[str, Stamp | None]
    changing: tuple[str, ...] = ()

    @property
    def scrubber(self) -> TextScrubber:
        """Removes the texts that were erased, wherever they are quoted."""
        sections = [section.text for found in self.reached.values() for section in found.sections]
        texts = [text for found in self.reached.values() for text in found.texts]
        return TextScrubber([*self.facts.texts, *sections, *texts])

    def eraser(self, session: str, scrubber: TextScrubber) -> SessionEraser:
        """Return the changes to a session."""
        seqs = self.reached[session].seqs if session in self.reached else ()
        return SessionEraser(seqs, RecallEraser(self.reached, self.facts.ids), scrubber)


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """The receipt of an erasure: how many events of how many sessions lost content, the notes and other logs that changed,
    the numbers of facts and attachments, and what remains, as sentences for the person."""

    erasure: str
    sessions: int
    events: int
    notes: tuple[str, ...]
    facts: int
    attachments: int
    remains: tuple[str, ...]
    logs: tuple[str, ...] = ()


def combined(receipts: Sequence[Erased], remains: Iterable[str]) -> Erased:
    """Return one receipt for several erasures, after which this remains."""
    return Erased(
        erasure=receipts[0].erasure,
        sessions=sum(each.sessions for each in receipts),
        events=sum(each.events for each in receipts),
        notes=tuple(sorted({note for each in receipts for note in each.notes})),
        facts=sum(each.facts for each in receipts),
        attachments=sum(each.attachments for each in receipts),
        remains=tuple(dict.fromkeys(remains)),
        logs=tuple(sorted({each for receipt in receipts for each in receipt.logs})),
    )


def order_of_person(person: str, by: str) -> ErasureOrdered:
    """Return the order to erase everything of a person. Raises UnknownSession if that cannot be the id of a person."""
    if PERSON_ID.fullmatch(person) is None:
        raise UnknownSession(f"There cannot be a person {person[:60]!r}.")
    return ErasureOrdered(erasure=new_removal_id(), person=person, by=by, everything=True)


class DerivedData(Protocol):
    """The indexes that were derived from the journals."""

    async def purge(self, sessions: Sequence[str], notes: Sequence[str]) -> None:
        """Remove what the indexes have of these sessions and notes, so that nothing of it remains in their files. Raises
        SessionsError, OSError or an error of the index."""
        ...

    @property
    def remains(self) -> tuple[str, ...]:
        """What the indexes may keep, as sentences."""
        ...


class Erasures:
    """The erasures of a home.

    Args:
        store: The logs of the sessions.
        catalog: The catalog of the sessions.
        attachments: The attachments.
        derived: The indexes.
        facts: Returns the logs of the facts of all agents.
        others: Returns the other logs of the home. Blocks.
        workspaces: Returns the workspaces.
        quarantine: The folder of what was set aside.
        unexamined: The folders of what channels and logins keep, which is not told apart by persons.
        now: Returns the current time in UTC.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        *,
        attachments: Blobs,
        derived: DerivedData,
        facts: Callable[[], Awaitable[Sequence[FactLogPlace]]],
        others: Callable[[], Sequence[OtherLog]],
        workspaces: Callable[[], Collection[Path]],
        quarantine: Path,
        unexamined: Sequence[Path],
        now: Callable[[], datetime],
    ) -> None:
        self._unexamined = unexamined
        self._store = store
        self._catalog = catalog
        self._attachments = attachments
        self._derived = derived
        self._facts = facts
        self._others = others
        self._workspaces = workspaces
        self._quarantine = quarantine
        self._now = now

    async def order(self, person: str, chosen: Mapping[str, Chosen], by: str) -> ErasureOrdered:
        """Return the order to erase something of a person's sessions, with the forks and origins that share it. Raises
        UnknownSession, StorageFailed."""
        sessions = [row.session for row in await self._catalog.every(person)]
        draft = ErasureOrdered(erasure=new_removal_id(), person=person, by=by)
        parts = await asyncio.to_thread(family, self._store, sessions, chosen)
        return await asyncio.to_thread(self._order, draft, parts, await self._fact_logs())

    async def _fact_logs(self) -> list[Store]:
        return [place.store for place in await self._facts()]

    def _order(self, draft: ErasureOrdered, parts: Mapping[str, Chosen], logs: Sequence[Store]) -> ErasureOrdered:
        """Return the order with what it reaches."""
        attachments, reached = set[str](), dict[str, Reached]()
        for name, part in parts.items():
            found = reached[name] = reached_in(self._store, name, part)
            if missing := sorted(part.messages - found.messages):
                raise UnknownSession(f"Event {missing[0]} of {name} is no message of a person.")
            attachments |= found.attachments
        return msgspec.structs.replace(
            draft,
            sessions=tuple(
                ErasedSession(session=name, messages=tuple(sorted(part.messages)), upto=part.upto)
                for name, part in parts.items()
            ),
            attachments=tuple(sorted(attachments)),
            facts=tuple(sorted(_facts_in(logs, reached).ids)),
        )

    async def plan(self, order: ErasureOrdered, before: ErasurePlan | None = None) -> ErasurePlan:
        """Return what an order reaches now: the plan `before`, if no log has changed. Raises SessionsError."""
        sessions = [row.session for row in await self._catalog.every(order.person)]
        return await asyncio.to_thread(self._plan, order, sessions, await self._fact_logs(), before)

    def _plan(
        self, order: ErasureOrdered, sessions: Sequence[str], logs: Sequence[Store], before: ErasurePlan | None
    ) -> ErasurePlan:
        named = dict.fromkeys([*sessions, *(each.session for each in order.sessions)])
        read = {session: self._store.stamp(session) for session in named}
        read |= {f"{FACTS} {number}": log.stamp(FACTS) for number, log in enumerate(logs)}
        if before is not None and before.read == read:
            return before
        reached = dict[str, Reached]()
        for each in order.sessions:
            chosen = Chosen(messages=frozenset(each.messages), upto=each.upto)
            with suppress(UnknownSession):  # deleted
                found = reached_in(self._store, each.session, chosen)
                if found.seqs:
                    reached[each.session] = found
        plan = ErasurePlan(order=order, reached=reached, facts=_facts_in(logs, reached, order.facts), read=read)
        scrubber = plan.scrubber
        # The sessions that were named are last: until they are rewritten, everything can be found again.
        others = [session for session in sessions if session not in reached]
        ordered = [*others, *(session for session in reached if session in set(sessions))]
        plan.changing = tuple(each for each in ordered if would_change(self._store, each, plan.eraser(each, scrubber)))
        return plan

    async def carry_out(self, plan: ErasurePlan) -> Erased:
        """Erase everything that a plan reaches. Its sessions, and those that change, are closed.

        A damaged journal is left unchanged with what was set aside of it. If it only quotes what is erased, the receipt
        names it; if the order names it, everything else is erased first, then JournalDamaged is raised.

        Raises:
            SessionsError, OSError, or an error of an index: Something could not be erased; then it can be repeated.
        """
        order, scrubber = plan.order, plan.scrubber
        sections = [section for found in plan.reached.values() for section in found.sections]
        notes = sorted(
            {
                path
                for workspace in self._workspaces()
                for path in await asyncio.to_thread(erase_from_notes, workspace, order.person, sections, scrubber)
            }
        )
        changed = await self._erase_from_logs(lambda each: quote_eraser(each, scrubber))
        events, damaged = 0, dict[str, JournalDamaged]()
        for session in plan.changing:
            try:
                events += await self._rewrite(session, order, plan.eraser(session, scrubber))
            except JournalDamaged as error:
                damaged[session] = error
        await self._erase_facts(plan.facts)
        named = [each.session for each in order.sessions]
        touched = tuple(each for each in dict.fromkeys([*plan.changing, *named]) if each not in damaged)
        await self._refresh_catalog(touched, order.person)
        await asyncio.to_thread(self._remove_set_aside, touched)
        sessions = [row.session for row in await self._catalog.every(order.person)]
        files = {*order.attachments, *(digest for found in plan.reached.values() for digest in found.attachments)}
        removed, _ = await asyncio.to_thread(self._attachments.release, order.person, files, self._store, sessions)
        await self._derived.purge(touched, notes)
        for session in named:
            if session in damaged:
                raise damaged[session]
        for session, damage in damaged.items():
            log.error("quotations_not_erased", erasure=order.erasure, session=session, reason=str(damage))
        sessions_changed = len(plan.changing) - len(damaged)
        log.info("content_erased", erasure=order.erasure, sessions=sessions_changed, events=events, by=order.by)
        return Erased(
            erasure=order.erasure,
            sessions=sessions_changed,
            events=events,
            notes=tuple(notes),
            facts=len(plan.facts.ids),
            attachments=removed,
            remains=(
                *self._derived.remains,
                *_left_out(scrubber),
                *(f"Quotations in the damaged journal of {session}, which was not changed." for session in damaged),
            ),
            logs=tuple(changed),
        )

    async def erase_entries(self, order: ErasureOrdered) -> Erased:
        """Erase what a person has left outside of conversations: entries of logs, facts, notes, uploads. It can be repeated.

        Raises SessionsError, OSError, or an error of an index.
        """
        person = order.person
        changed = await self._erase_from_logs(
            lambda each: None if each.plugin else PersonEraser(each.name, person, pseudonym(order.erasure))
        )
        notes = [
            path for workspace in self._workspaces() for path in await asyncio.to_thread(remove_notes_of, workspace, person)
        ]
        facts = await asyncio.to_thread(partial(_facts_in, await self._fact_logs(), {}, owner=person))
        await self._erase_facts(facts)
        sessions = [row.session for row in await self._catalog.every(person)]
        removed = await asyncio.to_thread(self._remove_uploads, person, sessions)
        await self._derived.purge((), notes)
        log.info("entries_erased", erasure=order.erasure, logs=len(changed), by=order.by)
        return Erased(
            erasure=order.erasure,
            sessions=0,
            events=0,
            notes=tuple(notes),
            facts=len(facts.ids),
            attachments=removed,
            remains=(*self._derived.remains, *await asyncio.to_thread(unexamined_files, self._unexamined)),
            logs=tuple(changed),
        )

    async def _erase_from_logs(self, change: Callable[[OtherLog], Change | None]) -> list[str]:
        return await erase_from(await asyncio.to_thread(self._others), change)

    def _remove_uploads(self, person: str, sessions: Sequence[str]) -> int:
        """Remove the attachments of a person that no session names, and return their number."""
        files = {attachment.sha256 for owner, attachment, _ in self._attachments.records() if owner == person}
        removed, _ = self._attachments.release(person, files, self._store, sessions)
        return removed

    async def _erase_facts(self, facts: ErasedFacts) -> None:
        for place in await self._facts() if facts.ids else ():
            if await asyncio.to_thread(place.store.stamp, FACTS) is not None:
                async with place.closed():
                    await place.store.rewrite(FACTS, lambda lines: rechained(lines, FactEraser(facts.ids)))

    async def _rewrite(self, session: str, order: ErasureOrdered, eraser: SessionEraser) -> int:
        """Rewrite a journal, and return the number of events that lost content."""

        def appended() -> Appended | None:
            event = JournalErased(erasure=order.erasure, seqs=ranges(eraser.changed), by=order.by)
            return Appended(event=event, at=stamp(self._now())) if eraser.changed else None

        def rewritten(lines: Lines) -> Iterator[bytes]:
            return rechained(lines, eraser, appended)

        await self._store.rewrite(session, rewritten)
        return len(eraser.changed)

    async def _refresh_catalog(self, sessions: Sequence[str], person: str) -> None:
        """Replace everything about sessions in the catalog with what the journals say now. All of them are read before
        anything changes: without a row, a key would begin another session."""
        rows = {row.session: row for row in await self._catalog.every(person)}
        known = [rows[session] for session in sessions if session in rows]
        read = await asyncio.to_thread(lambda: [_row_of(self._store, row) for row in known])
        await self._catalog.replace([row for row in read if row is not None])
        if gone := [row.session for row, now in zip(known, read, strict=True) if now is None]:
            await self._catalog.remove(gone)

    def _remove_set_aside(self, sessions: Sequence[str]) -> None:
        for session in sessions:
            for path in self._quarantine.glob(f"{session}-*"):
                path.unlink(missing_ok=True)


def _facts_in(
    logs: Iterable[LogReader], reached: Mapping[str, Reached], known: Collection[str] = (), owner: str | None = None
) -> ErasedFacts:
    """Return the facts to erase from several logs, see `facts_to_erase`. Blocks."""
    found = [facts_to_erase(each, reached, known, owner) for each in logs]
    return ErasedFacts(
        ids=frozenset[str]().union(*(each.ids for each in found)), texts=tuple(text for each in found for text in each.texts)
    )


def _left_out(scrubber: TextScrubber) -> Iterator[str]:
    """Yield a sentence about the texts that were not looked for elsewhere, if there are any."""
    if scrubber.left_out:
        yield (
            f"{scrubber.left_out:,} of the erased texts, where others quote them: only the {len(scrubber.texts)} longest"
            " texts and lines are looked for."
        )


def _row_of(logs: LogReader, row: SessionRow) -> SessionRow | None:
    """Return the row of a rewritten session, without a text that was erased; without any text if the journal cannot be read,
    which opening it reports; None if there is no journal. Blocks."""
    unread = msgspec.structs.replace(row, title="", beginning="", size=0, mtime_ns=0, settled=False)
    begun, title, last = Transcript(), row.title, None
    try:
        with logs.read(row.session) as lines:
            for line in lines.forward(START):
                if not begun.beginning:
                    begun = msgspec.structs.replace(evolve(begun, decode(line)), stale=None)
                if line.find(_TITLED, 0, 160) >= 0 and isinstance(titled := decode(line).event, SessionTitled):
                    title = titled.title
                last = line
        head = decode(last) if last is not None else None
    except UnknownSession:
        return None
    except (SessionsError, InvalidLine):
        return unread
    if head is None:
        return unread
    return msgspec.structs.replace(unread, head=head.seq, at=head.at, title=title, beginning=begun.beginning)
