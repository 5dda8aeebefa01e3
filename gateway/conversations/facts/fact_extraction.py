"""The extraction of facts from ended turns, in the background: when a session has been quiet for a while, its new turns are
read from the journal, and a model is asked about each.

One event in the facts' log records both that a turn was processed and the facts found, so a stop at any moment loses and
duplicates nothing, and the next start continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from gateway.config.settings import Settings
from gateway.conversations.facts.fact_distillation import FactDistillation
from gateway.conversations.facts.fact_requests import LONGEST_PAUSE, FactPauses, FactRequests
from gateway.models.call import ModelCaller
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.support.errors import GatewayError, error_fields, sentence_of
from plugins.api.context import Clock
from plugins.api.fact_values import FactOrigin, FactsError
from plugins.api.memory_settings import FactKeys
from plugins.api.plugin_services import ModelAnswer
from plugins.facts.fact_events import ExtractionFailed, FactsExtracted
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
from sessions.events.codec import InvalidLine, decode, replace_surrogates
from sessions.events.errors import SessionsError
from sessions.events.events import MAIN_AGENT
from sessions.store.catalog import SessionRow
from sessions.store.log_writer import stamp
from sessions.store.protocols import LogReader
from sessions.store.reading import StoredLog

if TYPE_CHECKING:
    from plugins.facts.ended_turns import TurnText

# The modules for extraction are imported on first use, not at startup.

LONGEST_WAIT = 300.0
"""Seconds after which a session is processed even if it was never quiet."""

CATALOG_DELAY = 0.25
"""Seconds until the next try if the catalog did not have the ended turn yet."""

CATALOG_PAUSE = 10.0
"""Seconds before a catalog that did not answer at the start is asked again."""

DISTILLATION_CHECK = 3600.0
"""Seconds between two checks for due distillations if no session changes."""

STARTUP_AGE = timedelta(hours=24)
"""The age of unprocessed sessions that are still processed at startup."""

EVENTS_BEFORE = 400
"""Events that are read before the last processed one, or before the newest event of a new session."""

PAGE = 1024 * 1024
"""Bytes of a journal that are read at once."""

TURN_ERRORS = (BadRequest, ContextOverflow)
"""Errors of a turn: the same request would raise them again."""

MODEL_ERRORS = frozenset(kind.code for kind in (RateLimited, CredentialsRefused, NoSuchModel, Unreachable))
"""The codes of errors of a model: most other turns would raise them too."""

FEW_TRIES, MANY_TRIES = 3, 10
"""Tries after which a turn is marked as failed; the second where the model may be at fault: with their pauses these take
a day."""

log = structlog.get_logger("exuvia.facts")


class Rows(Protocol):
    """Session rows, without opening the sessions."""

    async def find(self, session: str) -> SessionRow | None: ...

    async def changed_since(self, at: str) -> list[SessionRow]:
        """Return the sessions with an event at or after a time, in RFC 3339 and UTC."""
        ...


class FactExtraction:
    """The extraction for an agent. `logs` and `rows` are those of the sessions of all agents."""

    def __init__(
        self,
        facts: Facts,
        logs: LogReader,
        rows: Rows,
        *,
        agent: str = MAIN_AGENT,
        settings: Settings,
        models: ModelRegistry,
        caller: ModelCaller,
        clock: Clock,
    ) -> None:
        self._facts = facts
        self._agent = agent
        self._logs = logs
        self._rows = rows
        self._settings = settings
        self._clock = clock
        self._requests = FactRequests(settings, models, caller)
        self._pauses = FactPauses(clock)
        self._distillation = FactDistillation(facts, self._requests, self._pauses, settings, clock)
        self._due: dict[str, tuple[float, float]] = {}
        """By session with new events: the earliest and the latest time to process it."""
        self._ends: dict[str, int] = {}
        """By session: the seq up to which it is to be processed."""
        self._next = math.inf
        """The time at which `run` looks for due sessions next."""
        self._woken = asyncio.Event()

    @property
    def _keys(self) -> FactKeys:
        return self._settings.current.memory.facts

    def problems(self) -> list[str]:
        return self._pauses.sentences()

    def why_not(self, used: str | None) -> str:
        """Return why no facts are extracted where this model answers, see `FactRequests`."""
        return self._requests.why_not(used)

    def on_event(self, session: str, seq: int = 0) -> None:
        """Schedule a session: a turn ended, or a fact was requested, at this seq."""
        now = self._clock.monotonic()
        self._ends[session] = seq
        _, latest = self._due.get(session, (now, now + LONGEST_WAIT))
        self._due[session] = min(now + self._keys.quiet_seconds, latest), latest
        if self._due[session][0] < self._next:
            self._woken.set()

    async def run(self) -> None:
        """Process due sessions and distillations until cancelled."""
        await self._note_recent()
        check = self._clock.monotonic() + self._keys.quiet_seconds
        while True:
            await self._wait(check)
            now = self._clock.monotonic()
            for session in sorted((each for each in self._due if self._when(each) <= now), key=self._when):
                due = self._due.pop(session)
                await self._try(session, due)
                if session not in self._due:
                    self._ends.pop(session, None)
            await self._distillation.distill_due()
            check = now + DISTILLATION_CHECK

    async def _note_recent(self) -> None:
        """Note the sessions that have changed lately, of which a stop may have left turns. Tries until it succeeds."""
        since = stamp(self._clock.now() - STARTUP_AGE)
        while True:
            try:
                rows = await self._rows.changed_since(since)
            except Exception as error:
                log.warning("facts_not_extracted", reason=sentence_of(error))
                await asyncio.sleep(CATALOG_PAUSE)
            else:
                break
        for row in rows:
            if row.agent == self._agent:
                self.on_event(row.session)

    async def distill(self, owner: str, used: str | None, session: str) -> tuple[int, int]:
        """Distill a person's daily facts that have not expired, see `FactDistillation`."""
        await self._facts.drop_expired()
        return await self._distillation.distill(owner, used, session)

    def _when(self, session: str) -> float:
        """Return the time at which a session may be processed: when it is quiet, and not during a pause."""
        return max(self._due[session][0], self._pauses.end(_pause_name(session)))

    async def _wait(self, check: float) -> None:
        """Wait until a session may be processed, or until the given time."""
        while True:
            self._woken.clear()
            self._next = min([check, *map(self._when, self._due)])
            if (wait := self._next - self._clock.monotonic()) <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()

    async def _try(self, session: str, due: tuple[float, float]) -> None:
        """Process a session. A failure begins a pause, after which it is due again."""
        try:
            if await self._process(session):
                self._pauses.succeed(_pause_name(session))
        except Exception as error:
            if not isinstance(error, ProviderError | GatewayError | FactsError | SessionsError | InvalidLine):
                log.error("facts_not_extracted", session=session, **error_fields(error))
            sentence = f"Turns of session {session} could not be searched for facts, and will be retried: "
            pause = self._pauses.fail(_pause_name(session), sentence + sentence_of(error))
            self._due[session] = due
            log.warning("facts_not_extracted", session=session, reason=sentence_of(error), pause=pause)

    # --- extraction ---------------------------------------------------------------------------------------------------

    async def _process(self, session: str) -> bool:
        """Process the new turns of a session; return False if it has to wait."""
        row = await self._rows.find(session)
        if row is None or not self._keys.auto_extract:
            return True
        if row.head < self._ends.get(session, 0):  # the ended turn is not known to be durable yet
            self._due[session] = self._clock.monotonic() + CATALOG_DELAY, self._clock.monotonic() + LONGEST_WAIT
            return False
        if not (turns := await self._turns(row)):
            return True
        book = await self._facts.book()
        for turn in turns:
            if book.has_processed(session, turn.end):
                continue
            model = self._requests.usable(turn.model)
            if model is None:
                return True
            if self._pauses.is_paused(name := f"model {model.name}"):
                self._due[session] = (self._pauses.end(name),) * 2
                return False
            try:
                await self._extract(row, turn, model)
                self._pauses.succeed(name)
            except FactsError:
                raise
            except Exception as error:
                await self._record_failure(row, turn, model, error)
        self._distillation.on_extracted(row.person, session, turns[-1].model)
        return True

    async def _record_failure(self, row: SessionRow, turn: TurnText, model: ChosenModel, error: Exception) -> None:
        """Record a failed extraction: mark the turn as failed if no further try is allowed, else raise the error."""
        allowed, reason = _tries(error), replace_surrogates(sentence_of(error))
        if allowed == MANY_TRIES:
            least = getattr(error, "retry_after", None) or 0.0
            sentence = f"{model.name} could not extract facts, which will be retried: {reason}"
            self._pauses.fail(f"model {model.name}", sentence, least=min(least, LONGEST_PAUSE))
        if (await self._facts.book()).failed_attempts(row.session, turn.end) + 1 < allowed:
            missed = ExtractionFailed(session=row.session, upto=turn.end, reason=reason, model=model.name)
            await self._facts.extraction_failed(missed)
            raise error
        log.warning("turn_not_looked_through", session=row.session, turn=turn.ordinal, reason=reason)
        event = FactsExtracted(session=row.session, ordinal=turn.ordinal, typed=turn.typed, upto=turn.end)
        event = msgspec.structs.replace(event, failed=reason, model=model.name)
        await self._facts.extracted(event, owner=row.person, origin=None)

    async def _turns(self, row: SessionRow) -> list[TurnText]:
        """Return the turns since the last processed one, and some before: a message may be much older than its turn."""
        done = (await self._facts.book()).processed_up_to(row.session)
        log = StoredLog(self._logs, row.session)
        return await asyncio.to_thread(_read_ended_turns, log, max(1, (done or row.head) - EVENTS_BEFORE), row.head)

    async def _extract(self, row: SessionRow, turn: TurnText, model: ChosenModel) -> None:
        """Extract the facts of one turn. A turn of a group yields none, since its messages are not one person's."""
        from plugins.facts import extraction  # noqa: PLC0415 - not at the start

        event = FactsExtracted(session=row.session, ordinal=turn.ordinal, typed=turn.typed, upto=turn.end)
        found = extraction.ExtractionResult()
        if not turn.group and extraction.may_contain_facts(turn):
            most = self._keys.max_facts
            answer = await self._ask(row.session, turn, model, most)
            found = extraction.parse_extraction(answer.text, most)
            event = msgspec.structs.replace(
                event, failed=replace_surrogates(found.wrong), model=answer.model, usage=answer.usage
            )
        origin = FactOrigin(session=row.session, seq=turn.first)
        if await self._rows.find(row.session) is None:
            return  # it was deleted meanwhile
        await self._facts.extracted(event, found.drafts, owner=row.person, origin=origin)

    async def _ask(self, session: str, turn: TurnText, model: ChosenModel, most: int) -> ModelAnswer:
        """Ask a model about a turn, with less of it if it is too long. Raises the errors of `FactRequests.ask`."""
        from plugins.facts import extraction, model_answers  # noqa: PLC0415 - not at the start
        from plugins.policies.languages.prompts import language  # noqa: PLC0415 - not at the start

        texts = language(self._settings.current.agent.language).facts
        system = extraction.system(texts, most)
        fits = extraction.share_of(model_answers.prompt_budget(model.window, system, extraction.ANSWER))
        for share in (fits, fits / 2):
            with contextlib.suppress(ContextOverflow):
                return await self._ask_once(session, model, system, extraction.request(turn, texts, share))
        return await self._ask_once(session, model, system, extraction.request(turn, texts, fits / 4))

    async def _ask_once(self, session: str, model: ChosenModel, system: str, text: str) -> ModelAnswer:
        from plugins.facts import extraction, model_answers  # noqa: PLC0415 - not at the start

        return await self._requests.ask(
            model,
            system,
            text,
            purpose="extraction",
            session=session,
            limit=extraction.ANSWER,
            response_format=model_answers.response_format(),
        )


def _pause_name(session: str) -> str:
    return f"session {session}"


def _tries(error: Exception) -> int:
    """Return the number of tries after which a turn with such an error is marked as failed."""
    if isinstance(error, TURN_ERRORS):
        return 1
    return MANY_TRIES if isinstance(error, ProviderError) and error.code in MODEL_ERRORS else FEW_TRIES


def _read_ended_turns(log: StoredLog, first: int, head: int) -> list[TurnText]:
    """Return the turns that ended in a range of a journal. Blocks; run it in a thread."""
    from plugins.facts.ended_turns import EVENT_KINDS, ended_turns  # noqa: PLC0415 - not at the start

    events = []
    while first <= head and (lines := log.lines(first, PAGE)):
        found = [decode(line) for line in lines if any(b'"kind":"%s"' % kind.encode() in line for kind in EVENT_KINDS)]
        events += found
        first += len(lines)
    return ended_turns(each for each in events if each.seq <= head)
