"""The facts of a home: everything that is asked of them and done to them, over one log that is opened when it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

from plugins.api.facts.fact_errors import FactsUnavailable, NoSuchFact
from plugins.api.facts.fact_events import (
    FORMAT,
    DailyCleared,
    ExtractionFailed,
    FactEvent,
    FactForgotten,
    FactHistory,
    FactPinned,
    FactsDistilled,
    FactsExtracted,
    FactsOpened,
    FactsUsed,
    FactsWritten,
    LoggedFactEvent,
    Superseded,
)
from plugins.api.facts.fact_settings import FactKeys
from plugins.api.facts.fact_values import Draft, Fact, FactSource, Layer, Origin, new_id, workspace_tag
from plugins.facts.fact_book import Ambiguous, FactBook
from plugins.facts.fact_codec import decode
from plugins.facts.fact_log import FactLog, portions
from plugins.facts.retention import Limits, beyond_cap, is_outdated, limits_of, may_pin, outdated, repeated
from plugins.facts.scoring import superseded as worth_superseded
from sessions.events.codec import InvalidLine
from sessions.events.errors import JournalDamaged, SessionsError
from sessions.events.messages import Usage
from sessions.store.protocols import Log, Position
from sessions.store.recorder import stamp

AGAIN = timedelta(minutes=1)
"""After a log could not be opened it is not read again for so long: every turn asks."""

LONGEST_NAMED = 60
"""Characters of an unknown id that an answer repeats."""

DOCUMENT = "facts.jsonl"
"""The document that recalled facts stand in; the line is that of the event which wrote them."""

if TYPE_CHECKING:
    from plugins.facts.fact_recall import Recaller
    from plugins.facts.scoring import RecallStats


class Opener(Protocol):
    """Opens the log of the facts, made where there is none: its lines go to `fold`. Raises SessionsError."""

    def __call__(self, fold: Callable[[bytes], None]) -> Awaitable[tuple[Log, Position]]: ...


class Facts:
    """Use as an async context manager. `keys` are the settings in force, `workspace` is the folder that new facts are tied
    to, `now` the time in UTC, `exists` whether there is a log. Whatever raises FactsUnavailable leaves all as it was."""

    def __init__(
        self,
        opener: Opener,
        *,
        keys: Callable[[], FactKeys],
        workspace: Callable[[], Path],
        now: Callable[[], datetime],
        exists: Callable[[], bool] = lambda: True,
    ) -> None:
        self._opener = opener
        self._keys = keys
        self._workspace = workspace
        self._now = now
        self._exists = exists
        self._opening = asyncio.Lock()
        self._log: FactLog | None = None
        self._recaller: Recaller | None = None
        self._trouble = ""
        self._again = datetime.min.replace(tzinfo=UTC)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._log is not None:
            await self._log.close()

    @property
    def none(self) -> bool:
        """Whether there surely are no facts, as far as that is known without opening their log."""
        return not self._exists() if self._log is None else not self._log.book.facts

    def told_now(self, owner: str) -> list[Fact] | None:
        """What may be told to this person here, without opening the log for it; None as long as nobody has."""
        if self._log is None:
            return None if self._exists() else []
        return self._told(self._log.book, owner)

    def spent(self, session: str) -> Mapping[str, Mapping[str, Usage]]:
        """What looking through a session and distilling has cost, by purpose and model, as far as that is known without
        opening the log."""
        return self._log.book.spent(session) if self._log is not None else {}

    def problems(self) -> list[str]:
        """What is wrong, each in a sentence."""
        return [self._trouble] if self._trouble else []

    # --- asking -------------------------------------------------------------------------------------------------------

    async def book(self) -> FactBook:
        """All facts. Raises FactsUnavailable."""
        return (await self._open()).book

    async def recall(self, message: str, owner: str, *, least: float = 0.0) -> list[RecallStats]:
        """What may be told to this person, in this workspace, and has a word of the message, at least this part of it; best
        first. A daily fact
        is left to what was made of it, a superseded one to the newer. Raises FactsUnavailable."""
        book = (await self._open()).book
        assert self._recaller is not None
        here, keys, now, limits = self.workspace_tag(), self._keys(), self._now(), self._limits()

        def told(fact: Fact) -> bool:
            there = fact.is_of(owner) and fact.is_known_in(here) and not book.made_of(fact.id)
            return there and not is_outdated(fact, limits, now)

        found = self._recaller.recall(
            message,
            now,
            told,
            formula=keys.formula,
            stale_after_days=keys.stale_after_days,
            least=least,
        )
        there = {each.fact.id for each in found}
        return [each for each in found if book.newer(each.fact.id) not in there]

    async def listed(self, owner: str | None, layer: Layer | None = None) -> list[Fact]:
        """The facts that this person may be told here, oldest first; None is the operator, who may be told all."""
        return [fact for fact in self._told(await self.book(), owner) if layer in (None, fact.layer)]

    async def story(self, named: str, owner: str | None) -> FactHistory:
        """What happened to the fact whose id begins so. Raises NoSuchFact, FactsUnavailable."""
        log = await self._open()
        fact = self._named(log.book, named)
        happened = await self._read(log, fact)
        known = log.book.facts.get(fact) or _as_it_was(fact, happened)
        if known is None or not (owner is None or known.is_of(owner)):
            raise _unknown(named)
        there = fact in log.book.facts and not is_outdated(known, self._limits(), self._now())
        return FactHistory(fact=known, there=there, happened=tuple(happened))

    def workspace_tag(self) -> str:
        """The tag of the workspace in use."""
        return workspace_tag(self._workspace())

    # --- doing --------------------------------------------------------------------------------------------------------

    async def write(
        self,
        drafts: Iterable[Draft],
        by: str,
        *,
        owner: str = "",
        source: FactSource = "manual",
        origin: Origin | None = None,
    ) -> tuple[Fact, ...]:
        """Keep these facts for long, tied to this workspace. Returns them once they are durable; with what the cap or their
        likeness then drops, see `book`. Raises FactsUnavailable."""
        entries = self._made(drafts, owner=owner, source=source, origin=origin, layer="longterm")
        await self.bring(entries, by)
        return entries

    async def bring(self, entries: Sequence[Fact], by: str) -> None:
        """Keep facts as they are, from elsewhere: all in one event, or a few, where one line could not hold them."""
        for portion in portions(entries):
            await self._record(FactsWritten(entries=portion, by=by))
        if entries:
            await self._keep_house()

    async def extracted(
        self, found: FactsExtracted, drafts: Iterable[Draft] = (), *, owner: str, origin: Origin | None
    ) -> tuple[Fact, ...]:
        """A turn was looked through; what it left, often nothing, goes into the daily log. A second time changes nothing."""
        log = await self._open()
        if log.book.has_looked_at(found):
            return ()
        entries = self._made(drafts, owner=owner, source="auto-extracted", origin=origin, layer="daily")
        await self._record(msgspec.structs.replace(found, entries=entries))
        return entries

    async def tidy(self) -> None:
        """Drop the daily facts that are past their time, which nobody is told any more. Raises FactsUnavailable."""
        if (old := outdated(await self.book(), self._limits(), self._now())) is not None:
            await self._record(old)

    async def extraction_failed(self, failed: ExtractionFailed) -> None:
        """Record a try to look through a turn that failed. Raises FactsUnavailable."""
        await self._record(failed)

    async def distilled(
        self,
        taken: Sequence[Fact],
        drafts: Iterable[Draft] = (),
        superseded: Iterable[tuple[str, int]] = (),
        *,
        session: str = "",
        model: str = "",
        usage: Usage | None = None,
        failed: str = "",
    ) -> tuple[Fact, ...]:
        """A batch of one person's daily facts of one workspace became these for long, in one event, at the cost of a
        `session`. `superseded` are ids of facts with the index of the draft that says otherwise: what they and the daily
        facts that they were made of are worth falls, but for pins. A fact has the origin of the last that it was made of,
        and their workspace. `failed` says why the batch was kept as it is."""
        log = await self._open()
        owner = taken[0].owner if taken else ""
        entries = self._made(drafts, owner=owner, source="distilled", origin=None, layer="longterm")
        entries = tuple(entry.tied_to(taken[0].workspaces()) for entry in entries) if taken else entries
        there = log.book.facts
        sources = [[there[each] for each in entry.made_of if each in there] for entry in entries]
        origins = [next((each.origin for each in reversed(made) if each.origin), None) for made in sources]
        entries = tuple(
            msgspec.structs.replace(entry, origin=origin) for entry, origin in zip(entries, origins, strict=True)
        )
        less = tuple(
            Superseded(id=old.id, newer=entries[index].id, importance=worth_superseded(old))
            for named, index in superseded
            for each in (named, *(there[named].made_of if named in there else ()))
            if (old := there.get(each)) is not None and not old.pinned
        )
        ids = tuple(fact.id for fact in taken)
        event = FactsDistilled(taken=ids, entries=entries, superseded=less, session=session, model=model, usage=usage)
        await self._record(msgspec.structs.replace(event, failed=failed))
        await self._keep_house()
        return entries

    async def used(self, ids: Iterable[str], recalled: Origin) -> None:
        """Facts were recalled for a message, which keeps them from going stale; counted once for each `memory_recalled`."""
        log = await self._open()
        there = tuple(each for each in ids if each in log.book.facts)
        if there and not log.book.has_used(recalled.session, recalled.seq):
            log.note(FactsUsed(ids=there, recalled=recalled))

    async def pin(self, named: str, by: str, *, owner: str | None, pinned: bool = True) -> Fact:
        """Have a fact stay whatever comes, or no longer. Raises NoSuchFact, also with a sentence where no more can be
        pinned, and FactsUnavailable."""
        log = await self._open()
        fact = self._there(log.book, named, owner)
        if pinned and (why := may_pin(log.book, fact, self._limits())):
            raise NoSuchFact(why)
        if fact.pinned != pinned:
            await self._record(FactPinned(id=fact.id, pinned=pinned, by=by))
            await self._keep_house()
        return log.book.facts.get(fact.id, fact)

    async def forget(self, named: str, by: str, *, owner: str | None) -> Fact:
        """Have a fact gone, with the daily ones that it was made of and what was made of it alone, unless they are pinned;
        its story stays. Raises NoSuchFact, FactsUnavailable."""
        log = await self._open()
        fact, there = self._there(log.book, named, owner), log.book.facts
        behind = [there[each] for each in fact.made_of if each in there]
        behind += [each for each in log.book.made_of(fact.id) if each.made_of == (fact.id,)]
        for each in (*(each.id for each in behind if not each.pinned), fact.id):
            await self._record(FactForgotten(id=each, by=by))
        return fact

    async def daily(self, owner: str) -> list[Fact]:
        """Return the daily log of this person in this workspace, without what is everybody's."""
        return [fact for fact in await self.listed(owner, "daily") if fact.owner == owner]

    async def clear(self, by: str, *, owner: str) -> int:
        """Empty the daily log of this person in this workspace, pins excepted; returns how many facts left."""
        ids = tuple(fact.id for fact in await self.daily(owner) if not fact.pinned)
        if ids:
            await self._record(DailyCleared(ids=ids, by=by))
        return len(ids)

    async def dedupe(self) -> dict[str, str]:
        """Drop what other facts say as well; returns their ids with those of the facts that stay."""
        found = repeated((await self._open()).book, self._now())
        if found is None:
            return {}
        await self._record(found)
        return dict(zip(found.ids, found.kept, strict=True))

    # --- the log ------------------------------------------------------------------------------------------------------

    async def _open(self) -> FactLog:
        async with self._opening:
            if self._log is not None and self._log.failure is None:
                return self._log
            if self._log is not None:
                await self._log.close()
                self._log = None
            if self._trouble and self._now() < self._again:
                raise FactsUnavailable(self._trouble)
            book = FactBook()
            try:
                opened, position = await self._opener(lambda line: book.turn_over(decode(line)))
            except (SessionsError, InvalidLine) as error:
                self._trouble, self._again = _said(error), self._now() + AGAIN
                raise FactsUnavailable(self._trouble) from error
            self._log, self._trouble = FactLog(opened, position, book, self._now), ""
            from plugins.facts.fact_recall import Recaller  # noqa: PLC0415 - what is known of languages: not at the start

            self._recaller = Recaller(book)
            await asyncio.to_thread(self._recaller.follow)  # full stores have the loop for long; nobody writes meanwhile
            if self._log.is_new:
                self._log.note(FactsOpened(format=FORMAT))
            return self._log

    async def _record(self, event: FactEvent) -> None:
        log = await self._open()
        try:
            await log.record(event)
        except SessionsError as error:
            raise FactsUnavailable(f"The facts cannot be kept now: {error}") from error

    async def _read(self, log: FactLog, fact: str) -> list[LoggedFactEvent]:
        try:
            return await log.events(log.book.history(fact))
        except (SessionsError, InvalidLine) as error:
            raise FactsUnavailable(f"The facts' log cannot be read: {error}") from error

    async def _keep_house(self) -> None:
        """Drop what is there twice, and what is too many."""
        if (twice := repeated(await self.book(), self._now())) is not None:
            await self._record(twice)
        if (many := beyond_cap(await self.book(), self._limits(), self._now())) is not None:
            await self._record(many)

    # --- one fact -----------------------------------------------------------------------------------------------------

    def _made(
        self, drafts: Iterable[Draft], *, owner: str, source: FactSource, origin: Origin | None, layer: Layer
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

    def _told(self, book: FactBook, owner: str | None) -> list[Fact]:
        """Return the facts that are there for this person in this workspace, oldest first; None is the operator."""
        here, limits, now = self.workspace_tag(), self._limits(), self._now()
        told = (f for f in book.facts.values() if owner is None or (f.is_of(owner) and f.is_known_in(here)))
        return [fact for fact in told if not is_outdated(fact, limits, now)]

    def _limits(self) -> Limits:
        return limits_of(self._keys())

    def _named(self, book: FactBook, named: str) -> str:
        try:
            found = book.named(named.strip())
        except Ambiguous as error:
            raise NoSuchFact(str(error)) from error
        if found is None:
            raise _unknown(named)
        return found

    def _there(self, book: FactBook, named: str, owner: str | None) -> Fact:
        fact = book.facts.get(self._named(book, named))
        hidden = fact is None or is_outdated(fact, self._limits(), self._now())
        if fact is None or hidden or not (owner is None or fact.is_of(owner)):
            raise _unknown(named)
        return fact


def _said(error: Exception) -> str:
    if isinstance(error, JournalDamaged):
        return f"The facts are left as they are, since their log is damaged: {error}"
    return f"The facts cannot be opened: {error}"


def _unknown(named: str) -> NoSuchFact:
    """Return the refusal of an id that no fact has. What a person typed may be long; the answer is not."""
    return NoSuchFact(f"There is no fact {named if len(named) <= LONGEST_NAMED else f'{named[:LONGEST_NAMED]} …'}.")


def _as_it_was(fact: str, happened: Iterable[LoggedFactEvent]) -> Fact | None:
    """A fact that has left, as its events have it."""
    for each in happened:
        if isinstance(each.event, FactsExtracted | FactsWritten | FactsDistilled):
            for entry in each.event.entries:
                if entry.id == fact:
                    return entry
    return None
