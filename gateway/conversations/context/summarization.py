"""The model requests of a compaction cycle: the memory flush, and the summary."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TypeVar

import msgspec
import structlog

from gateway.conversations.context.compaction_attempt import CompactionAttempt, paused
from gateway.conversations.context.conversation_config import CompactionRules
from gateway.conversations.context.session_models import SessionModels
from gateway.conversations.notes.day_notes import PendingNotes, day_note, digest_of
from gateway.models.call import ModelCaller, TextRequest, text_answer, text_context
from gateway.models.fallback import FallbackChain
from gateway.models.registry import ChosenModel
from gateway.models.spending.budgets import BudgetSpent
from gateway.support.errors import GatewayError, sentence_of
from plugins.api.compaction import CompactionInput, FlushResult, FlushRules, MemoryFlush, Summarizer, Summary
from plugins.api.context import Clock
from plugins.api.plugin_services import AskModel, ModelAnswer
from plugins.support.errors import ProviderError
from plugins.support.untrusted import reraise_cancellation
from plugins.support.workspace import own_note
from sessions.events.codec import replace_surrogates
from sessions.events.errors import StorageFailed
from sessions.events.events import MemoryFlushed, RequestSent, Trigger
from sessions.events.messages import AssistantMessage
from sessions.events.tokens import estimate
from sessions.state import compaction
from sessions.state.compaction import CompactionPlan
from sessions.state.context import Gauge
from sessions.state.transcript import Transcript
from sessions.state.view_size import text_tokens
from sessions.store.recorder import Recorder

SMALLEST_ANSWER = 256
"""Minimum tokens to leave for an answer: a request that leaves fewer does not fit."""

WITHIN, ANSWER_SECONDS = 900.0, 180.0
"""Maximum seconds for a flush or a summary with all its requests, and for one request."""

UNKNOWN_WINDOW = 8192
"""The size in tokens assumed for an unknown window."""

SHORTENINGS = 3
"""Attempts to replace a summary that is too large by a shorter extract."""

LIMIT_SHARE = 0.8
"""The fraction of the room that a summary may fill by estimate: text full of numbers has more tokens than estimated."""

TOO_SMALL = "The model is too small to summarise a conversation; set compaction.model."

EXTRACT = "extract"
"""The summarizer that asks no model."""

T = TypeVar("T")

log = structlog.get_logger("exuvia.compaction")


class Summarization:
    """The memory flushes and summaries of one session."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        models: SessionModels,
        caller: ModelCaller,
        summarizers: Mapping[str, Summarizer],
        flushes: Mapping[str, MemoryFlush],
        notes: PendingNotes,
        clock: Clock,
    ) -> None:
        self.notes = notes
        self._recorder = recorder
        self._models = models
        self._caller = caller
        self._summarizers = summarizers
        self._flushes = flushes
        self._clock = clock

    @property
    def _transcript(self) -> Transcript:
        return self._recorder.transcript

    async def flush(self, rules: CompactionRules, keep_from: int, trigger: Trigger) -> None:
        """Write notes of the removed messages that were not flushed yet. Whatever the outcome, the compaction continues,
        unless a budget refuses the request: then nothing is recorded.

        Raises BudgetSpent, but not at the end of a session.
        """
        cycle = self._transcript.cycle
        if not rules.keys.memory_flush.enabled or cycle.covered >= keep_from - 1:
            return
        flushed = await self._flushed(rules, keep_from, at_end=trigger == "new")
        event = MemoryFlushed(
            compaction=cycle.next,
            outcome=flushed.outcome,
            covers_to=keep_from - 1,
            reason=replace_surrogates(flushed.reason),
            model=flushed.model,
            usage=flushed.usage,
        )
        if flushed.outcome == "written":
            # The note is that of the day on which the flush began, even if it ends after midnight.
            text = replace_surrogates(f"## {rules.today:%H:%M} {self._transcript.key}\n\n{flushed.text.strip()}")
            path = own_note(self._transcript.person, day_note(rules.today))
            event = msgspec.structs.replace(event, path=path, text=text, digest=digest_of(flushed.text))
        await self._recorder.append_durable(event, turn=self._turn)
        await self.notes.write()
        log.info("memory_flushed", session=self._transcript.session, outcome=flushed.outcome, trigger=trigger)

    async def _flushed(self, rules: CompactionRules, keep_from: int, *, at_end: bool) -> FlushResult:
        view, covered = self._transcript.view, self._transcript.cycle.covered
        first = max(compaction.first_removable(view), view.first_from(covered + 1))
        removed = self._input(rules, first, view.first_from(keep_from))
        if not removed.messages:
            return FlushResult(outcome="nothing")
        if not rules.writable:
            return FlushResult(outcome="skipped", reason="The workspace may not be written (agent.workspace_access).")
        if self._is_too_small():
            return FlushResult(outcome="skipped", reason=TOO_SMALL)
        try:
            async with asyncio.timeout(WITHIN):
                keys = rules.keys.memory_flush
                prompts = FlushRules(system_prompt=keys.system_prompt or "", prompt=keys.prompt or "")
                flush = self._flushes[keys.by]
                return _checked(await flush.flush(removed, self._requests("flush"), prompts), FlushResult)
        except StorageFailed:
            raise
        except (
            BaseException
        ) as error:  # of a third-party flush, a provider or a timeout: the compaction continues without a flush
            reraise_cancellation(error)
            if isinstance(error, BudgetSpent) and not at_end:
                raise
            return FlushResult(outcome="failed", reason=reason_of(error))

    async def summary(self, attempt: CompactionAttempt, cut: CompactionPlan) -> Summary:
        """Return the summary of the removed messages.

        Raises ProviderError or GatewayError if no model could be asked and either a person requested it or the compaction
        can wait, or if a budget refuses the request.
        """
        first = compaction.first_removable(self._transcript.view)
        limit = round(cut.summary * LIMIT_SHARE)
        removed = self._input(attempt.rules, first, cut.first, focus=attempt.focus, limit=limit)
        if paused(self._transcript.cycle, self._clock.now()) and not attempt.requested:
            return await self._extract(removed, "")
        if self._is_too_small():
            return await self._extract(removed, "", TOO_SMALL)
        try:
            async with asyncio.timeout(WITHIN):
                summarizer = self._summarizers[attempt.rules.keys.summarizer]
                summary = _checked(await summarizer.summarize(removed, self._requests("summary")), Summary)
        except StorageFailed:
            raise
        except (ProviderError, GatewayError) as error:
            if (
                attempt.requested
                or isinstance(error, BudgetSpent)
                or (attempt.trigger != "overflow" and attempt.sizes.total + SMALLEST_ANSWER < attempt.allowed.window)
            ):
                raise
            return await self._extract(removed, reason_of(error))
        except BaseException as error:
            reraise_cancellation(error)
            return await self._extract(removed, reason_of(error))
        if (size := estimate(summary.text)) > limit or not summary.text.strip():
            return await self._extract(removed, f"The summary has {size} tokens; the limit is {limit}.")
        return summary

    async def fitting(self, attempt: CompactionAttempt, cut: CompactionPlan, summary: Summary) -> Summary:
        """Return the summary, or a shorter extract if it is too large."""
        for _ in range(SHORTENINGS):
            room, size = attempt.room(cut), text_tokens(self._transcript, summary.text)
            if size <= room:
                break
            first = compaction.first_removable(self._transcript.view)
            limit = round(LIMIT_SHARE * estimate(summary.text) * room / size)
            removed = self._input(attempt.rules, first, cut.first, focus=attempt.focus, limit=limit)
            summary = await self._extract(removed, f"The summary has {size:.0f} tokens; the limit is {room}.")
        return summary

    async def _extract(self, removed: CompactionInput, failed: str, *remarks: str) -> Summary:
        """Return a summary made without a model."""
        summary = await self._summarizers[EXTRACT].summarize(removed, self._requests("summary"))
        return msgspec.structs.replace(summary, failed=replace_surrogates(failed), checks=(*remarks, *summary.checks))

    def _is_too_small(self) -> bool:
        """Return True if the model is too small to flush or summarise."""
        model = self._model()
        return model is not None and model.limits.small

    def _model(self) -> ChosenModel | None:
        try:
            return self._models.choose_for_compaction()
        except GatewayError:
            return None

    def _input(self, rules: CompactionRules, first: int, end: int, *, focus: str = "", limit: int = 0) -> CompactionInput:
        view, model = self._transcript.view, self._model()
        return CompactionInput(
            messages=view.without_recalled(first, end),
            kept=view.without_recalled(end, len(view)),
            summary=self._transcript.summary if view.summarised else "",
            focus=focus,
            window=(model and model.window) or UNKNOWN_WINDOW,
            limit=limit,
            language=rules.language,
            day=f"{rules.today:%Y-%m-%d}",
            splits_turn=end < len(view) and isinstance(view.messages[end], AssistantMessage),
            identifier_policy=rules.keys.identifier_policy,
            identifier_instructions=rules.keys.identifier_instructions,
        )

    def _requests(self, purpose: str) -> AskModel:
        return partial(self._ask, purpose, self._turn)

    async def _ask(self, purpose: str, turn: int | None, *, system: str, text: str, limit: int) -> ModelAnswer:
        """Send one request, and record it as one of this turn if there is one."""
        request = TextRequest(
            context=text_context(system, text),
            purpose=purpose,
            session=self._transcript.session,
            limit=limit,
            seconds=ANSWER_SECONDS,
        )
        measured = Gauge().measure(request.context)

        def size(model: ChosenModel) -> int:
            return round(self._transcript.counts.calibration(model.name).tokens(measured.units))

        async def ask(model: ChosenModel) -> ModelAnswer:
            sent = RequestSent(purpose=purpose, sha256=measured.sha256, messages=1, tokens=size(model))
            self._recorder.append(sent, turn=turn)
            return await text_answer(model, request)

        return await self._caller.call(FallbackChain(self._models.choose_for_compaction()), ask, size)

    @property
    def _turn(self) -> int | None:
        turn = self._transcript.open_turn
        return turn.ordinal if turn else None


def _checked(given: T, promised: type[T]) -> T:
    """Return a plugin's result if it has the fields of its type. Raises msgspec.ValidationError or TypeError."""
    return msgspec.convert(msgspec.to_builtins(given), promised)


def reason_of(error: BaseException) -> str:
    """Return the reason of a failure as a sentence for the log."""
    if isinstance(error, asyncio.CancelledError):
        return "It was stopped."
    if isinstance(error, TimeoutError):
        return f"It took more than {WITHIN:.0f} seconds."
    return sentence_of(error)
