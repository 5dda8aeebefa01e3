"""Looking through turns for facts, behind everything else: when a session has been quiet for a while, what was said there
since the last look is read from its journal and a model is asked, a turn at a time.

That a turn was looked through stands in the facts' log, in the same event as what was found: a stop at any moment loses and
doubles nothing, and the next start goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog

from gateway.conversations.asking import listen
from gateway.errors import GatewayError, sentence_of
from gateway.models.choosing import ChosenModel
from gateway.models.fallback import Line
from plugins.contracts import Clock
from plugins.errors import ProviderError
from plugins.facts.errors import FactsError
from plugins.facts.events import FactsExtracted
from plugins.facts.facts import Facts
from plugins.facts.settings import FactKeys
from plugins.facts.values import Fact, Origin
from plugins.summaries import Answered
from sessions.context import Context
from sessions.errors import SessionsError
from sessions.lineage import SessionRow
from sessions.messages import Usage, UserMessage
from sessions.reading import read_lines
from sessions.recorder import stamp
from sessions.tokens import estimate
from sessions.wire import InvalidLine, carriable, decode

if TYPE_CHECKING:
    from plugins.facts.languages import Language
    from plugins.facts.turns import EndedTurn

# What turns are looked through with is imported when the first is: the start needs none of it.

QUIET, AT_MOST = 10.0, 300.0
"""Seconds without a turn after which a session is looked through, and after which it is though it was never quiet."""

RECENT = timedelta(hours=24)
"""How old what the last process left may be to be looked through at the start."""

BACK = 400
"""Events before the newest one from which on a session is looked through that never was."""

PAGE = 1024 * 1024
"""Bytes of a journal that are read at once."""

WITHIN = 120.0
"""Seconds that one answer may take."""

FIRST_PAUSE, LONGEST_PAUSE = 300.0, 6 * 3600.0
"""Seconds after a failure in which no model is asked; each further one doubles them."""

log = structlog.get_logger("exuvia.facts")


class Rows(Protocol):
    """What is known of sessions without opening them."""

    def row(self, session: str) -> SessionRow | None:
        """A session."""
        ...

    def changed_since(self, at: str) -> list[SessionRow]:
        """Those with an event at or after a time, RFC 3339 in UTC."""
        ...


class FactFinding:
    """One for a home. `journals` is the folder of the sessions, `keys` what the configuration says, `choose` which model is
    asked where a session used this one (`provider:model`), `paid` is told for what purpose which model used how much."""

    def __init__(
        self,
        facts: Facts,
        journals: Path,
        rows: Rows,
        *,
        keys: Callable[[], FactKeys],
        tongue: Callable[[], str],
        choose: Callable[[str | None], ChosenModel],
        paid: Callable[[str, str, Usage], None],
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._facts = facts
        self._journals = journals
        self._rows = rows
        self._keys = keys
        self._tongue = tongue
        self._choose = choose
        self._paid = paid
        self._clock = clock
        self._sleep = sleep
        self._due: dict[str, tuple[float, float]] = {}
        """Of each session that has something new: when it may be looked at, and when at the latest."""
        self._woken = asyncio.Event()
        self._failures = 0
        self._rest_until = 0.0
        self._distilling = asyncio.Lock()
        self._trouble = ""

    def troubles(self) -> list[str]:
        """What is wrong, each in a sentence."""
        return [self._trouble] if self._trouble else []

    def heard(self, session: str) -> None:
        """A turn of this session has ended."""
        now = self._clock.monotonic()
        _, latest = self._due.get(session, (now, now + AT_MOST))
        self._due[session] = min(now + QUIET, latest), latest
        self._woken.set()

    async def run(self) -> None:
        """Look through what is due, for ever."""
        for row in self._rows.changed_since(stamp(self._clock.now() - RECENT)):
            self.heard(row.session)
        while True:
            await self._until_due()
            now = self._clock.monotonic()
            for session in [each for each, (when, _) in self._due.items() if when <= now]:
                del self._due[session]
                await self._attend_to(session)

    async def _until_due(self) -> None:
        self._woken.clear()
        now = self._clock.monotonic()
        when = min((when for when, _ in self._due.values()), default=None)
        wait = None if when is None else max(when, self._rest_until) - now
        if wait is not None and wait <= 0:
            return
        if wait is None:
            await self._woken.wait()
        else:
            await self._sleep(min(wait, QUIET))

    async def _attend_to(self, session: str) -> None:
        """Look through a session; whatever goes wrong, the next one has its turn, and this one another."""
        try:
            await self._look_through(session)
            self._failures, self._trouble = 0, ""
        except (ProviderError, GatewayError, FactsError, SessionsError, InvalidLine) as error:
            self._fail(session, error)
        except Exception as error:
            log.exception("facts_not_extracted", session=session)
            self._fail(session, error)

    def _fail(self, session: str, error: Exception) -> None:
        pause = min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 16)
        now = self._clock.monotonic()
        self._rest_until = now + pause
        self._due[session] = now + pause, now + pause
        self._trouble = f"Turns are not looked through for facts now, which is tried again: {sentence_of(error)}"
        log.warning("facts_not_extracted", session=session, reason=sentence_of(error), pause=pause)

    # --- extraction ---------------------------------------------------------------------------------------------------

    async def _look_through(self, session: str) -> None:
        row = self._rows.row(session)
        if row is None or not self._keys().auto_extract or not (turns := await self._turns(row)):
            return
        book = await self._facts.book()
        for turn in turns:
            if book.has_extracted(session, turn.ordinal):
                continue
            model = self._model(turn.model)
            if model is None:
                return
            await self._extract(row, turn, model)
        await self._distill_if_due(row.person, turns[-1].model)

    async def _turns(self, row: SessionRow) -> list[EndedTurn]:
        """What ended since the last look."""
        done = (await self._facts.book()).read_to(row.session)
        first = max(1, done + 1, row.head - BACK if not done else 1)
        path = self._journals / f"{row.session}.jsonl"
        return await asyncio.to_thread(_ended, path, first, row.head)

    def _model(self, used: str) -> ChosenModel | None:
        """Who is asked: None where only a small model could be, which finds nothing; one that is named is taken at its
        name."""
        named = self._keys().model
        model = self._chosen(used)
        return None if model.provider.limits(model.model).small and not named else model

    def _chosen(self, used: str | None) -> ChosenModel:
        if named := self._keys().model:
            return self._choose(named)
        try:
            return self._choose(used or None)
        except GatewayError:
            return self._choose(None)  # the one that answered then is no longer there

    async def _extract(self, row: SessionRow, turn: EndedTurn, model: ChosenModel) -> None:
        """Look through one turn. Nothing is extracted in a group: what is said there is not one person's."""
        from plugins.facts import extracting  # noqa: PLC0415 - not at the start

        event = FactsExtracted(session=row.session, ordinal=turn.ordinal, upto=turn.end)
        found = extracting.Extracted()
        if not turn.group and extracting.may_hold_facts(turn):
            most, spoken = self._keys().max_facts, self._language()
            told = extracting.system(spoken, most), extracting.request(turn, spoken)
            answer = await self._ask(model, *told, purpose="extraction", session=row.session, limit=extracting.ANSWER)
            found = extracting.extracted(answer.text, most)
            event = FactsExtracted(
                session=row.session,
                ordinal=turn.ordinal,
                upto=turn.end,
                failed=carriable(found.wrong),
                model=answer.model,
                usage=answer.usage,
            )
        origin = Origin(session=row.session, seq=turn.first)
        await self._facts.extracted(event, found.drafts, owner=row.person, origin=origin)

    # --- distillation -------------------------------------------------------------------------------------------------

    async def _distill_if_due(self, owner: str, used: str) -> None:
        from plugins.facts import distilling  # noqa: PLC0415 - not at the start

        keys, book = self._keys(), await self._facts.book()
        due = distilling.is_due(
            book,
            owner,
            threshold=keys.distill_threshold,
            interval_hours=keys.distill_interval_hours,
            now=self._clock.now(),
        )
        if due:
            await self.distill(owner, used)

    async def distill(self, owner: str, used: str | None = None) -> tuple[int, int]:
        """Make of this person's daily facts few that stay; returns how many were looked through and how many were made.
        Raises FactsError, and ProviderError or GatewayError where no model could be asked."""
        from plugins.facts import distilling  # noqa: PLC0415 - not at the start

        async with self._distilling:
            book, model, spoken = await self._facts.book(), self._chosen(used), self._language()
            fresh = [fact for fact in book.undistilled() if fact.owner == owner]
            looked, made = 0, 0
            for batch in distilling.batches(fresh):
                known = [fact for fact in await self._facts.listed(owner, "longterm") if fact.owner == owner]
                text = distilling.request(batch, known, spoken)
                answer = await self._ask(
                    model, spoken.distillation, text, purpose="distillation", session="facts", limit=distilling.ANSWER
                )
                made += await self._take(batch, known, answer)
                looked += len(batch)
            return looked, made

    async def _take(self, batch: Sequence[Fact], known: Sequence[Fact], answer: Answered) -> int:
        """What an answer made of a batch. Where it made nothing that counts, the facts themselves stay for long: nothing
        that was found is lost to a model that cannot write JSON."""
        from plugins.facts import distilling  # noqa: PLC0415 - not at the start

        result = distilling.distilled(answer.text, known)
        if result.wrong:
            log.warning("distillation_answer_not_taken", reason=result.wrong, facts=len(batch))
            result = distilling.as_they_are(batch)
        entries = await self._facts.distilled(
            batch, result.drafts, result.superseded, model=answer.model, usage=answer.usage
        )
        return len(entries)

    # --- asking -------------------------------------------------------------------------------------------------------

    def _language(self) -> Language:
        from plugins.facts.languages import language  # noqa: PLC0415 - not at the start

        return language(self._tongue())

    async def _ask(self, model: ChosenModel, system: str, text: str, *, purpose: str, session: str, limit: int) -> Answered:
        message = UserMessage(text=carriable(text))
        context = Context(instructions=system, tools=(), parameters={}, messages=(message,))
        answers: list[Answered] = []

        async def ask(asked: ChosenModel) -> None:
            async with asyncio.timeout(WITHIN):
                answers.append(await listen(asked, context, purpose, session, limit))

        try:
            await Line(model).answer(ask, lambda _: estimate(system) + estimate(text))
        except TimeoutError:
            raise GatewayError(f"{model.name} did not answer within {WITHIN:.0f} seconds.") from None
        if (usage := answers[-1].usage) is not None:
            self._paid(purpose, answers[-1].model, usage)
        return answers[-1]


def _ended(path: Path, first: int, head: int) -> list[EndedTurn]:
    """The turns that ended in a journal from one seq to another. For a thread."""
    from plugins.facts.turns import TELLING, ended_turns  # noqa: PLC0415 - not at the start

    events = []
    while first <= head and (lines := read_lines(path, first, PAGE)):
        found = [decode(line) for line in lines if any(b'"kind":"%s"' % kind.encode() in line for kind in TELLING)]
        events += found
        first += len(lines)
    return ended_turns(each for each in events if each.seq <= head)
