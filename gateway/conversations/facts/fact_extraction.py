"""Looking through turns for facts, behind everything else: when a session has been quiet for a while, what was said there
since the last look is read from its journal and a model is asked, a turn at a time.

That a turn was looked through stands in the facts' log, in the same event as what was found: a stop at any moment loses and
doubles nothing, and the next start goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from gateway.conversations.facts.fact_distillation import FactDistillation
from gateway.conversations.facts.fact_pauses import LONGEST_PAUSE, FactPauses
from gateway.conversations.facts.fact_requests import FactRequests
from gateway.models.registry import ChosenModel
from gateway.support.errors import GatewayError, sentence_of
from plugins.api.context import Clock
from plugins.api.facts.fact_errors import FactsError
from plugins.api.facts.fact_events import ExtractionFailed, FactsExtracted
from plugins.api.facts.fact_settings import FactKeys
from plugins.api.facts.fact_values import Origin
from plugins.api.services import ModelAnswer
from plugins.facts.facts import Facts
from plugins.support.errors import (
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    NoSuchModel,
    ProviderError,
    RateLimited,
    Unreachable,
)
from sessions.catalog.lineage import SessionRow
from sessions.events.codec import InvalidLine, carriable, decode
from sessions.events.errors import SessionsError
from sessions.events.messages import Usage
from sessions.files.reader import read_lines
from sessions.store.recorder import stamp

if TYPE_CHECKING:
    from plugins.facts.ended_turns import EndedTurn

# What turns are looked through with is imported when the first is: the start needs none of it.

AT_MOST = 300.0
"""Seconds after which a session is looked through though it was never quiet."""

LATE = 0.25
"""Seconds after which is looked again where the catalog was behind."""

LOOK = 3600.0
"""Seconds after which is looked whether something is due to be distilled though nobody said anything."""

RECENT = timedelta(hours=24)
"""How old what the last process left may be to be looked through at the start."""

BACK = 400
"""Events before the last look from which on a session is looked through; before its newest event, where there was none."""

PAGE = 1024 * 1024
"""Bytes of a journal that are read at once."""

OF_THE_TURN = (BadRequest, ContextOverflow)
"""Errors after which the same request would fail again."""

OF_THE_MODEL = frozenset(kind.code for kind in (RateLimited, CredentialsRefused, NoSuchModel, Unreachable))
"""The codes of errors that any other turn would have met as well, mostly."""

FEW_TRIES, MANY_TRIES = 3, 10
"""The tries after which a turn is marked as failed, the latter where each failure may be the model's: with the pauses
between them they take a day."""

log = structlog.get_logger("exuvia.facts")


class Rows(Protocol):
    """What is known of sessions without opening them."""

    def row(self, session: str) -> SessionRow | None:
        """A session."""
        ...

    def changed_since(self, at: str) -> list[SessionRow]:
        """Those with an event at or after a time, RFC 3339 in UTC."""
        ...


class FactExtraction:
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
    ) -> None:
        self._facts = facts
        self._journals = journals
        self._rows = rows
        self._keys = keys
        self._tongue = tongue
        self._clock = clock
        self._asking = FactRequests(keys, choose, paid)
        self._pauses = FactPauses(clock)
        self._distilling = FactDistillation(facts, self._asking, self._pauses, keys=keys, tongue=tongue, clock=clock)
        self._due: dict[str, tuple[float, float]] = {}
        """Of each session that has something new: when it may be looked at, and when at the latest."""
        self._ends: dict[str, int] = {}
        """The seq up to which each of these is to be looked through."""
        self._woken = asyncio.Event()

    def troubles(self) -> list[str]:
        """What is wrong, each in a sentence."""
        return self._pauses.sentences()

    def why_not(self, used: str | None) -> str:
        """Why turns are not looked through where this model answers; see `FactRequests`."""
        return self._asking.why_not(used)

    def heard(self, session: str, seq: int = 0) -> None:
        """A turn of this session has ended with the event that has this seq, or it says what to remember."""
        now = self._clock.monotonic()
        self._ends[session] = seq
        _, latest = self._due.get(session, (now, now + AT_MOST))
        self._due[session] = min(now + self._keys().quiet_seconds, latest), latest
        self._woken.set()

    async def run(self) -> None:
        """Look through what is due, and distil what is, for ever."""
        for row in self._rows.changed_since(stamp(self._clock.now() - RECENT)):
            self.heard(row.session)
        look = self._clock.monotonic() + self._keys().quiet_seconds
        while True:
            await self._until(look)
            now = self._clock.monotonic()
            for session in sorted((each for each in self._due if self._when(each) <= now), key=self._when):
                due = self._due.pop(session)
                await self._try(session, due)
                if session not in self._due:
                    self._ends.pop(session, None)
            await self._distilling.distill_what_is_due()
            look = now + LOOK

    async def distill(self, owner: str, used: str | None, session: str) -> tuple[int, int]:
        """Make of this person's daily facts few that stay, those past their time excepted; see `FactDistillation`."""
        await self._facts.tidy()
        return await self._distilling.distill(owner, used, session)

    def _when(self, session: str) -> float:
        """Return the time at which a session may be looked at: when it is quiet, and not within a pause."""
        return max(self._due[session][0], self._pauses.end(_of(session)))

    async def _until(self, look: float) -> None:
        """Wait until a session may be looked at, or for this moment."""
        while True:
            self._woken.clear()
            when = min([look, *map(self._when, self._due)])
            if (wait := when - self._clock.monotonic()) <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()

    async def _try(self, session: str, due: tuple[float, float]) -> None:
        """Look through a session. After a failure it rests, and is due again."""
        try:
            if await self._look_through(session):
                self._pauses.succeed(_of(session))
        except Exception as error:
            if not isinstance(error, ProviderError | GatewayError | FactsError | SessionsError | InvalidLine):
                log.exception("facts_not_extracted", session=session)
            sentence = f"Turns of session {session} are not looked through for facts now, which is tried again: "
            pause = self._pauses.fail(_of(session), sentence + sentence_of(error))
            self._due[session] = due
            log.warning("facts_not_extracted", session=session, reason=sentence_of(error), pause=pause)

    # --- extraction ---------------------------------------------------------------------------------------------------

    async def _look_through(self, session: str) -> bool:
        """Look through what is new in a session; False if it has to wait."""
        row = self._rows.row(session)
        if row is None or not self._keys().auto_extract:
            return True
        if row.head < self._ends.get(session, 0):  # what ended is not known to be on the disk yet
            self._due[session] = self._clock.monotonic() + LATE, self._clock.monotonic() + AT_MOST
            return False
        if not (turns := await self._turns(row)):
            return True
        book = await self._facts.book()
        for turn in turns:
            if book.has_read(session, turn.end):
                continue
            model = self._asking.able(turn.model)
            if model is None:
                return True
            if self._pauses.rests(name := f"model {model.name}"):
                self._due[session] = (self._pauses.end(name),) * 2
                return False
            try:
                await self._extract(row, turn, model)
                self._pauses.succeed(name)
            except FactsError:
                raise
            except Exception as error:
                await self._miss(row, turn, model, error)
        self._distilling.heard(row.person, session, turns[-1].model)
        return True

    async def _miss(self, row: SessionRow, turn: EndedTurn, model: ChosenModel, error: Exception) -> None:
        """Record that a turn could not be looked through: as failed if no further try is allowed, else raise the error."""
        allowed, reason = _tries(error), carriable(sentence_of(error))
        if allowed == MANY_TRIES:
            least = getattr(error, "retry_after", None) or 0.0
            sentence = f"Turns are not looked through for facts by {model.name} now, which is tried again: {reason}"
            self._pauses.fail(f"model {model.name}", sentence, least=min(least, LONGEST_PAUSE))
        if (await self._facts.book()).tries(row.session, turn.end) + 1 < allowed:
            missed = ExtractionFailed(session=row.session, upto=turn.end, reason=reason, model=model.name)
            await self._facts.extraction_failed(missed)
            raise error
        log.warning("turn_not_looked_through", session=row.session, turn=turn.ordinal, reason=reason)
        event = FactsExtracted(session=row.session, ordinal=turn.ordinal, typed=turn.typed, upto=turn.end)
        event = msgspec.structs.replace(event, failed=reason, model=model.name)
        await self._facts.extracted(event, owner=row.person, origin=None)

    async def _turns(self, row: SessionRow) -> list[EndedTurn]:
        """What ended since the last look, and some before it: a message may have come long before its turn."""
        done = (await self._facts.book()).read_to(row.session)
        path = self._journals / f"{row.session}.jsonl"
        return await asyncio.to_thread(_ended, path, max(1, (done or row.head) - BACK), row.head)

    async def _extract(self, row: SessionRow, turn: EndedTurn, model: ChosenModel) -> None:
        """Look through one turn. Nothing is extracted in a group: what is said there is not one person's."""
        from plugins.facts import extraction  # noqa: PLC0415 - not at the start

        event = FactsExtracted(session=row.session, ordinal=turn.ordinal, typed=turn.typed, upto=turn.end)
        found = extraction.ExtractionResult()
        if not turn.group and extraction.may_hold_facts(turn):
            most = self._keys().max_facts
            answer = await self._ask(row.session, turn, model, most)
            found = extraction.extracted(answer.text, most)
            event = msgspec.structs.replace(event, failed=carriable(found.wrong), model=answer.model, usage=answer.usage)
        origin = Origin(session=row.session, seq=turn.first)
        await self._facts.extracted(event, found.drafts, owner=row.person, origin=origin)

    async def _ask(self, session: str, turn: EndedTurn, model: ChosenModel, most: int) -> ModelAnswer:
        """Ask a model about a turn, of which less is shown where all is too long. Raises what `FactRequests.ask` does."""
        from plugins.facts import extraction, model_answers  # noqa: PLC0415 - not at the start
        from plugins.languages.prompts import language  # noqa: PLC0415 - not at the start

        spoken = language(self._tongue()).facts
        system = extraction.system(spoken, most)
        fits = extraction.share_of(model_answers.room(model.window, system, extraction.ANSWER))
        for share in (fits, fits / 2):
            with contextlib.suppress(ContextOverflow):
                return await self._ask_once(session, model, system, extraction.request(turn, spoken, share))
        return await self._ask_once(session, model, system, extraction.request(turn, spoken, fits / 4))

    async def _ask_once(self, session: str, model: ChosenModel, system: str, text: str) -> ModelAnswer:
        from plugins.facts import extraction, model_answers  # noqa: PLC0415 - not at the start

        form, limit = model_answers.form(), extraction.ANSWER
        return await self._asking.ask(model, system, text, purpose="extraction", session=session, limit=limit, form=form)


def _of(session: str) -> str:
    """The name of a session among the pauses."""
    return f"session {session}"


def _tries(error: Exception) -> int:
    """Return after how many tries that end with such an error a turn is marked as failed."""
    if isinstance(error, OF_THE_TURN):
        return 1
    return MANY_TRIES if isinstance(error, ProviderError) and error.code in OF_THE_MODEL else FEW_TRIES


def _ended(path: Path, first: int, head: int) -> list[EndedTurn]:
    """The turns that ended in a journal from one seq to another. For a thread."""
    from plugins.facts.ended_turns import TELLING, ended_turns  # noqa: PLC0415 - not at the start

    events = []
    while first <= head and (lines := read_lines(path, first, PAGE)):
        found = [decode(line) for line in lines if any(b'"kind":"%s"' % kind.encode() in line for kind in TELLING)]
        events += found
        first += len(lines)
    return ended_turns(each for each in events if each.seq <= head)
