"""The facts of a home, in one log that is opened when it is first needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from plugins.api.fact_values import (
    Fact,
    FactChange,
    FactConflict,
    FactDraft,
    FactLayer,
    FactNotEditable,
    FactOrigin,
    FactSource,
    FactsUnavailable,
    InvalidFact,
    NoSuchFact,
    new_id,
    workspace_tag,
)
from plugins.api.memory_settings import FactKeys
from plugins.facts.fact_book import Ambiguous, FactBook
from plugins.facts.fact_events import (
    FORMAT,
    DailyCleared,
    ExtractionFailed,
    FactEdited,
    FactEvent,
    FactEvents,
    FactForgotten,
    FactPinned,
    FactsDistilled,
    FactsExtracted,
    FactsOpened,
    FactsUsed,
    FactsWritten,
    Superseded,
    written_fact,
)
from plugins.facts.fact_log import FactLog, Opener, decode, portions
from plugins.facts.retention import (
    drop_beyond_cap,
    drop_duplicates,
    drop_outdated,
    is_outdated,
    pin_refusal,
)
from plugins.facts.scoring import superseded_importance
from sessions.events.codec import InvalidLine
from sessions.events.errors import JournalDamaged, LogReplaced, SessionsError, StorageFailed
from sessions.events.messages import Usage
from sessions.store.lazy_log import FRESH_SECONDS
from sessions.store.log_writer import LineTooLong, stamp

RETRY_AFTER = timedelta(minutes=1)
"""Time between two attempts to open a log that cannot be opened: every turn asks for it."""

NAMED_CHARACTERS = 60
"""Maximum characters of an unknown id repeated in a message."""

if TYPE_CHECKING:
    from plugins.facts.fact_recall import Recaller
    from plugins.facts.scoring import RecallStats


class Facts:
    """The facts of a home, as an async context manager.

    Asynchronous methods raise FactsUnavailable if the log cannot be opened, read or written, and have then changed nothing.

    Args:
        opener: Opens the log.
        keys: Returns the current settings.
        workspace: Returns the folder that new facts are tied to.
        now: Returns the current time in UTC.
        exists: Returns True if there is a log.
        shared: Whether other processes append to the log too.
        exclusive: Excludes them for the time of a context.
    """

    def __init__(
        self,
        opener: Opener,
        *,
        keys: Callable[[], FactKeys],
        workspace: Callable[[], Path],
        now: Callable[[], datetime],
        exists: Callable[[], bool] = lambda: True,
        shared: bool = False,
        exclusive: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self._opener = opener
        self._keys = keys
        self._workspace = workspace
        self._now = now
        self._exists = exists
        self._shared = shared
        self._exclusive = exclusive
        self._as_of = 0.0
        """When the log was read last, on the monotonic clock, if it is shared."""
        self._opening = asyncio.Lock()
        self._log: FactLog | None = None
        self._recaller: Recaller | None = None
        self._problem = ""
        self._retry_at = datetime.min.replace(tzinfo=UTC)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._log is not None:
            await self._log.close()

    @property
    def is_empty(self) -> bool:
        """True if it is certain, without opening the log, that there are no facts."""
        if self._log is None:
            return not self._exists()
        return not self._log.state.facts and not self._shared

    def listed_if_open(self, owner: str) -> list[Fact] | None:
        """Return the facts visible to this person without opening the log; None while it is not open."""
        if self._log is None:
            return None if self._exists() else []
        return self._visible(self._log.state, owner)

    def spent(self, session: str) -> Mapping[str, Mapping[str, Usage]]:
        """Return the usage of extraction and distillation for a session by purpose and model, without opening the log."""
        return self._log.state.spent(session) if self._log is not None else {}

    def problems(self) -> list[str]:
        """Return the current problems, each as a sentence."""
        return [self._problem] if self._problem else []

    # --- queries ------------------------------------------------------------------------------------------------------

    async def book(self) -> FactBook:
        """Return the state of all facts."""
        return (await self._open()).state

    async def recall(self, message: str, owner: str, *, least: float = 0.0) -> list[RecallStats]:
        """Return the facts that match a message and are visible to this person in this workspace, best first.

        Daily facts are replaced by those distilled from them, superseded facts by the newer ones.

        Args:
            message: The text to match.
            owner: The person.
            least: Minimum share, from 0 to 1, of the message's weight that a fact must match.

        Raises:
            FactsUnavailable: The log cannot be opened.
        """
        book = (await self._open()).state
        assert self._recaller is not None
        here, keys, now = self.workspace_tag(), self._keys(), self._now()

        def is_recallable(fact: Fact) -> bool:
            visible = fact.is_of(owner) and fact.is_known_in(here) and not book.distilled_from(fact.id)
            return visible and not is_outdated(fact, keys, now)

        found = self._recaller.recall(
            message,
            now,
            is_recallable,
            formula=keys.formula,
            stale_after_days=keys.stale_after_days,
            least=least,
        )
        ids = {each.fact.id for each in found}
        return [each for each in found if book.superseded_by(each.fact.id) not in ids]

    async def listed(self, owner: str | None, layer: FactLayer | None = None) -> list[Fact]:
        """Return the facts visible to this person, oldest first; None is the operator, who sees all."""
        return [fact for fact in self._visible(await self.book(), owner) if layer in (None, fact.layer)]

    async def events_of(self, named: str, owner: str | None) -> FactEvents:
        """Return the events about the fact whose id begins with `named`.

        Raises:
            NoSuchFact: There is no such fact visible to this person.
            FactsUnavailable: The log cannot be read.
        """
        log = await self._open()
        fact = self._named(log.state, named)
        try:
            events = await log.events(log.state.history(fact))
        except (SessionsError, InvalidLine) as error:
            raise FactsUnavailable(f"The facts' log cannot be read: {error}") from error
        known = log.state.facts.get(fact) or written_fact(fact, events)
        if known is None or not (owner is None or known.is_of(owner)):
            raise _no_such_fact(named)
        exists = fact in log.state.facts and not is_outdated(known, self._keys(), self._now())
        return FactEvents(fact=known, exists=exists, events=tuple(events))

    def workspace_tag(self) -> str:
        """Return the tag of the current workspace."""
        return workspace_tag(self._workspace())

    # --- changes ------------------------------------------------------------------------------------------------------

    async def write(
        self,
        drafts: Iterable[FactDraft],
        by: str,
        *,
        owner: str = "",
        source: FactSource = "manual",
        origin: FactOrigin | None = None,
    ) -> tuple[Fact, ...]:
        """Store long-term facts for this workspace and return them once they are durable.

        Deduplication and the cap may drop facts afterwards; see `book`.

        Raises:
            FactsUnavailable: The facts cannot be stored.
        """
        entries = self._new_facts(drafts, owner=owner, source=source, origin=origin, layer="longterm")
        await self.import_facts(entries, by)
        return entries

    async def import_facts(self, entries: Sequence[Fact], by: str) -> None:
        """Import facts unchanged, in as few events as possible."""
        for portion in portions(entries):
            await self._record(FactsWritten(entries=portion, by=by))
        if entries:
            await self._enforce_limits()

    async def extracted(
        self, found: FactsExtracted, drafts: Iterable[FactDraft] = (), *, owner: str, origin: FactOrigin | None
    ) -> tuple[Fact, ...]:
        """Record that a turn was processed and add its facts, often none, to the daily log. Idempotent."""
        log = await self._open()
        if log.state.has_recorded(found):
            return ()
        entries = self._new_facts(drafts, owner=owner, source="auto-extracted", origin=origin, layer="daily")
        await self._record(msgspec.structs.replace(found, entries=entries))
        return entries

    async def drop_expired(self) -> None:
        """Drop daily facts beyond the retention time, which are no longer recalled."""
        if (old := drop_outdated(await self.book(), self._keys(), self._now())) is not None:
            await self._record(old)

    async def extraction_failed(self, failed: ExtractionFailed) -> None:
        """Record a failed attempt to process a turn."""
        await self._record(failed)

    async def distilled(
        self,
        taken: Sequence[Fact],
        drafts: Iterable[FactDraft] = (),
        superseded: Iterable[tuple[str, int]] = (),
        *,
        known: Sequence[Fact] = (),
        session: str = "",
        model: str = "",
        usage: Usage | None = None,
        failed: str = "",
    ) -> tuple[Fact, ...]:
        """Record in one event that a batch of daily facts was distilled into long-term facts.

        The new facts have the workspace of the batch and the origin of the last fact they were made of. Superseded facts,
        and the daily facts they were made of, lose importance unless pinned or edited.

        Args:
            taken: The batch: daily facts of one person and workspace.
            drafts: The long-term facts.
            superseded: Ids of superseded facts, each with the index of the draft that replaces it.
            known: The long-term facts of the request.
            session: The session that the usage is attributed to.
            model: The model that was asked.
            usage: What the request cost.
            failed: Why the batch was kept unchanged, empty if it was distilled.

        Raises:
            FactConflict: A fact of the request was forgotten or edited meanwhile: its text must not come back.
            FactsUnavailable: The log cannot be written.
        """
        log = await self._open()
        async with self._turn(log):
            there = log.state.facts
            if any(fact.id not in there or there[fact.id].edited != fact.edited for fact in (*taken, *known)):
                raise FactConflict("A fact of the request was forgotten or edited meanwhile.")
            owner = taken[0].owner if taken else ""
            entries = self._new_facts(drafts, owner=owner, source="distilled", origin=None, layer="longterm")
            entries = tuple(entry.tied_to(taken[0].workspaces()) for entry in entries) if taken else entries
            sources = [[there[each] for each in entry.made_of if each in there] for entry in entries]
            origins = [next((each.origin for each in reversed(made) if each.origin), None) for made in sources]
            entries = tuple(
                msgspec.structs.replace(entry, origin=origin) for entry, origin in zip(entries, origins, strict=True)
            )
            less = tuple(
                Superseded(id=old.id, newer=entries[index].id, importance=superseded_importance(old))
                for named, index in superseded
                for each in (named, *(there[named].made_of if named in there else ()))
                if (old := there.get(each)) is not None and not old.pinned and not old.edited
            )
            ids = tuple(fact.id for fact in taken)
            event = FactsDistilled(taken=ids, entries=entries, superseded=less, session=session, model=model, usage=usage)
            await self._append_now(log, msgspec.structs.replace(event, failed=failed))
        await self._enforce_limits()
        return entries

    async def used(self, ids: Iterable[str], recalled: FactOrigin) -> None:
        """Record that facts were recalled, which keeps them from becoming stale. Each recall counts once."""
        log = await self._open()
        known = tuple(each for each in ids if each in log.state.facts)
        if known and not log.state.has_used(recalled.session, recalled.seq):
            used = FactsUsed(ids=known, recalled=recalled)
            if self._shared:
                await self._append(log, used)
            else:
                log.append(used)

    async def pin(self, named: str, by: str, *, owner: str | None, pinned: bool = True) -> Fact:
        """Pin or unpin a fact.

        Raises:
            NoSuchFact: There is no such fact, or no more can be pinned.
            FactsUnavailable: The log cannot be written.
        """
        log = await self._open()
        fact = self._existing(log.state, named, owner)
        if pinned and (why := pin_refusal(log.state, fact, self._keys())):
            raise NoSuchFact(why)
        if fact.pinned != pinned:
            await self._record(FactPinned(id=fact.id, pinned=pinned, by=by))
            await self._enforce_limits()
        return log.state.facts.get(fact.id, fact)

    async def edit(
        self, named: str, change: FactChange, by: str, *, owner: str | None, shared: bool, revision: int | None = None
    ) -> Fact:
        """Edit a fact, which becomes a long-term one, and remove unpinned facts that were distilled from it alone.

        Deduplication drops unedited facts with the same words afterwards. An edit that changes nothing is not recorded.

        Args:
            named: The beginning of its id.
            change: The new values.
            by: The person.
            owner: The person whose facts are visible; None is the operator.
            shared: True if the person may edit shared facts.
            revision: The `FactBook.text_seq` of the fact that the person read; None to edit it whatever it is now.

        Raises:
            NoSuchFact: There is no such fact.
            FactNotEditable: A new value is invalid, or the fact is a shared one.
            FactConflict: The fact was edited since then.
            FactsUnavailable: The log cannot be written.
        """
        log = await self._open()
        async with self._turn(log):
            fact = self._existing(log.state, named, owner)
            if not fact.owner and not shared:
                raise FactNotEditable("This fact is shared with everybody; only the owner of the gateway can edit it.")
            if revision not in (None, log.state.text_seq(fact.id)):
                raise FactConflict("This fact was edited meanwhile.")
            try:
                edited = change.applied(fact, self.workspace_tag())
            except InvalidFact as error:
                raise FactNotEditable(str(error)) from error
            if edited == fact:
                return fact
            alone = (each for each in log.state.distilled_from(fact.id) if each.made_of == (fact.id,))
            event = FactEdited(
                id=fact.id,
                content=edited.content,
                type=edited.type,
                tags=edited.tags,
                importance=edited.importance,
                by=by,
                replaced=tuple(each.id for each in alone if not each.pinned and not each.edited),
            )
            await self._append_now(log, event)
        await self._enforce_limits()
        return log.state.facts.get(fact.id, edited)

    async def forget(self, named: str, by: str, *, owner: str | None) -> Fact:
        """Delete a fact, the daily facts that it was distilled from, and those distilled from it alone, except pinned and
        edited ones. Its history remains.

        Raises:
            NoSuchFact: There is no such fact.
            FactsUnavailable: The log cannot be written.
        """
        log = await self._open()
        fact, facts = self._existing(log.state, named, owner), log.state.facts
        related = [facts[each] for each in fact.made_of if each in facts]
        related += [each for each in log.state.distilled_from(fact.id) if each.made_of == (fact.id,)]
        for each in (*(each.id for each in related if not each.pinned and not each.edited), fact.id):
            await self._record(FactForgotten(id=each, by=by))
        return fact

    async def daily(self, owner: str) -> list[Fact]:
        """Return the daily log of this person in this workspace, without shared facts."""
        return [fact for fact in await self.listed(owner, "daily") if fact.owner == owner]

    async def clear(self, by: str, *, owner: str) -> int:
        """Empty the daily log of this person in this workspace except pinned facts, and return how many were deleted."""
        ids = tuple(fact.id for fact in await self.daily(owner) if not fact.pinned)
        if ids:
            await self._record(DailyCleared(ids=ids, by=by))
        return len(ids)

    async def dedupe(self) -> dict[str, str]:
        """Drop duplicate facts, and return their ids with those of the facts that are kept."""
        found = drop_duplicates((await self._open()).state, self._now())
        if found is None:
            return {}
        await self._record(found)
        return dict(zip(found.ids, found.kept, strict=True))

    # --- the log ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Keep the log closed while the block runs, so that it can be rewritten; whoever needs it waits."""
        async with self._opening:
            if self._log is not None:
                await self._log.close()
                self._log = self._recaller = None
            yield

    async def _open(self) -> FactLog:
        async with self._opening:
            if self._log is not None and self._log.failure is None:
                await self._follow(self._log)
                if self._log.failure is None:
                    return self._log
            if self._log is not None:
                await self._log.close()
                self._log = None
            if self._problem and self._now() < self._retry_at:
                raise FactsUnavailable(self._problem)
            book = FactBook()
            try:
                opened, position = await self._opener(lambda line: book.apply(decode(line)))
            except (SessionsError, InvalidLine) as error:
                self._problem, self._retry_at = _open_failure(error), self._now() + RETRY_AFTER
                raise FactsUnavailable(self._problem) from error
            self._log, self._problem = FactLog(opened, position, book, self._now), ""
            from plugins.facts.fact_recall import Recaller  # noqa: PLC0415 - loads language data

            self._recaller = Recaller(book)
            await asyncio.to_thread(self._recaller.update)  # slow for many facts; the lock excludes writers
            await self._begin(self._log)
            return self._log

    async def _follow(self, log: FactLog) -> None:
        """Apply what other gateways have appended, unless that was done a moment ago."""
        now = time.monotonic()
        if self._shared and now - self._as_of >= FRESH_SECONDS:
            try:
                await log.follow()
            except LogReplaced:
                return
            except SessionsError as error:
                raise FactsUnavailable(f"The facts cannot be read: {error}") from error
            self._as_of = now

    async def _begin(self, log: FactLog) -> None:
        """Write the first line of a new log."""
        if log.head:
            return
        if not self._shared:
            log.append(FactsOpened(format=FORMAT))
            return
        async with self._exclusive():
            await log.follow()
            if not log.head:
                await self._append_now(log, FactsOpened(format=FORMAT))

    async def _record(self, event: FactEvent) -> None:
        await self._append(await self._open(), event)

    async def _append(self, log: FactLog, event: FactEvent) -> None:
        """Append an event, without waiting before unless the log is shared, and wait until it is durable."""
        async with self._turn(log):
            await self._append_now(log, event)

    @asynccontextmanager
    async def _turn(self, log: FactLog) -> AsyncIterator[None]:
        """Have the facts up to date, and exclude other gateways from changing them."""
        try:
            async with self._exclusive():
                await log.follow()
                yield
        except (StorageFailed, InvalidLine) as error:
            raise FactsUnavailable(f"The facts cannot be stored: {error}") from error

    async def _append_now(self, log: FactLog, event: FactEvent) -> None:
        try:
            await log.append_durable(event)
        except (SessionsError, LineTooLong) as error:
            raise FactsUnavailable(f"The facts cannot be stored: {error}") from error

    async def _enforce_limits(self) -> None:
        """Drop duplicates and facts beyond the cap."""
        if (duplicates := drop_duplicates(await self.book(), self._now())) is not None:
            await self._record(duplicates)
        if (excess := drop_beyond_cap(await self.book(), self._keys(), self._now())) is not None:
            await self._record(excess)

    # --- one fact -----------------------------------------------------------------------------------------------------

    def _new_facts(
        self, drafts: Iterable[FactDraft], *, owner: str, source: FactSource, origin: FactOrigin | None, layer: FactLayer
    ) -> tuple[Fact, ...]:
        at, here = stamp(self._now()), self.workspace_tag()
        return tuple(
            Fact(
                id=new_id(),
                content=draft.content,
                type=draft.type,
                tags=tuple(dict.fromkeys((*draft.tags, here))),
                importance=draft.importance,
                created=at,
                source=source,
                layer=layer,
                owner=owner,
                origin=origin,
                made_of=draft.made_of,
            )
            for draft in drafts
        )

    def _visible(self, book: FactBook, owner: str | None) -> list[Fact]:
        """Return the facts visible to this person in this workspace, oldest first; None is the operator."""
        here, keys, now = self.workspace_tag(), self._keys(), self._now()
        visible = (f for f in book.facts.values() if owner is None or (f.is_of(owner) and f.is_known_in(here)))
        return [fact for fact in visible if not is_outdated(fact, keys, now)]

    def _named(self, book: FactBook, named: str) -> str:
        try:
            found = book.named(named.strip())
        except Ambiguous as error:
            raise NoSuchFact(str(error)) from error
        if found is None:
            raise _no_such_fact(named)
        return found

    def _existing(self, book: FactBook, named: str, owner: str | None) -> Fact:
        fact = book.facts.get(self._named(book, named))
        hidden = fact is None or is_outdated(fact, self._keys(), self._now())
        if fact is None or hidden or not (owner is None or fact.is_of(owner)):
            raise _no_such_fact(named)
        return fact


def _open_failure(error: Exception) -> str:
    if isinstance(error, JournalDamaged):
        return f"The facts are unavailable because their log is damaged: {error}"
    return f"The facts cannot be opened: {error}"


def _no_such_fact(named: str) -> NoSuchFact:
    """Return the error for an unknown id, which may be long."""
    return NoSuchFact(f"There is no fact {named if len(named) <= NAMED_CHARACTERS else f'{named[:NAMED_CHARACTERS]} …'}.")
