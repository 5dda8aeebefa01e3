"""What a cycle asks of a model: what must last of what leaves, and what stands in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

import msgspec
import structlog

from gateway.conversations.context.compaction_rules import CompactionAttempt, CompactionRules, paused
from gateway.conversations.notes.day_notes import day_note, digest_of
from gateway.conversations.notes.pending_notes import PendingNotes
from gateway.models.registry import ChosenModel
from gateway.models.side_requests import SideRequests
from gateway.support.errors import GatewayError, sentence_of
from plugins.api.summarization import CompactionInput, FlushResult, MemoryFlush, Summarizer, Summary
from plugins.support.errors import ProviderError
from plugins.support.untrusted import ANYTHING
from plugins.support.workspace import own_note
from sessions.events.codec import carriable
from sessions.events.errors import StorageFailed
from sessions.events.events import MemoryFlushed, Trigger
from sessions.events.messages import AssistantMessage
from sessions.events.tokens import estimate
from sessions.state import compaction
from sessions.state.compaction import CompactionPlan
from sessions.state.transcript import Transcript
from sessions.state.view_size import weighed
from sessions.store.recorder import Recorder

ANSWER = 256
"""Tokens that an answer needs at least: a request that leaves fewer does not fit."""

WITHIN = 900.0
"""Seconds that a flush or a summary may take, all its requests together."""

UNKNOWN_WINDOW = 8192
"""Tokens of a window that nobody knows: requests of a flush or a summary are kept this small."""

SHORTENINGS = 3
"""How often a summary that is too large is replaced by a shorter extract."""

SURE = 0.8
"""How much of the room a summary may take by its length alone: one full of numbers has more tokens than it seems."""

WEAK = "The model is too small to be asked to condense a conversation; compaction.model may name another."

EXTRACT = "extract"
"""The summarizer that asks no model."""

T = TypeVar("T")

log = structlog.get_logger("exuvia.compaction")


class Summarization:
    """Flushes and summarises for one session. `choose` says which model is asked, `clock` the time of day in UTC."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        choose: Callable[[], ChosenModel],
        summarizers: Mapping[str, Summarizer],
        flushes: Mapping[str, MemoryFlush],
        notes: PendingNotes,
        clock: Callable[[], datetime],
    ) -> None:
        self._recorder = recorder
        self._choose = choose
        self._summarizers = summarizers
        self._flushes = flushes
        self._notes = notes
        self._clock = clock

    @property
    def _transcript(self) -> Transcript:
        return self._recorder.transcript

    async def flush(self, rules: CompactionRules, keep_from: int, trigger: Trigger) -> None:
        """Have what leaves and was not flushed yet written down. Whatever comes of it, the compaction goes on."""
        cycle = self._transcript.cycle
        if not rules.flush_enabled or cycle.covered >= keep_from - 1:
            return
        flushed = await self._flushed(rules, keep_from)
        event = MemoryFlushed(
            compaction=cycle.next,
            outcome=flushed.outcome,
            covers_to=keep_from - 1,
            reason=carriable(flushed.reason),
            model=flushed.model,
            usage=flushed.usage,
        )
        if flushed.outcome == "written":
            # The day is that on which the flush began, though it ends after midnight.
            text = carriable(f"## {rules.today:%H:%M} {self._transcript.key}\n\n{flushed.text.strip()}")
            path = own_note(self._transcript.person, day_note(f"{rules.today:%Y-%m-%d}"))
            event = msgspec.structs.replace(event, path=path, text=text, digest=digest_of(flushed.text))
        await self._recorder.append_durable(event, turn=self._turn)
        await self._notes.pay()
        log.info("memory_flushed", session=self._transcript.session, outcome=flushed.outcome, trigger=trigger)

    async def _flushed(self, rules: CompactionRules, keep_from: int) -> FlushResult:
        view, covered = self._transcript.view, self._transcript.cycle.covered
        first = max(compaction.first_removable(view), view.first_from(covered + 1))
        leaving = self._leaving(rules, first, view.first_from(keep_from))
        if not leaving.messages:
            return FlushResult(outcome="nothing")
        if not rules.writable:
            return FlushResult(outcome="skipped", reason="The workspace may not be written (agent.workspace_access).")
        if self._is_weak():
            return FlushResult(outcome="skipped", reason=WEAK)
        try:
            async with asyncio.timeout(WITHIN):
                flush = self._flushes[rules.flush_by]
                return _checked(await flush.flush(leaving, self._asking("flush"), rules.flush_rules), FlushResult)
        except StorageFailed:
            raise
        except ANYTHING as error:  # a stranger's code, a provider, a deadline: the compaction goes on
            return FlushResult(outcome="failed", reason=why(error))

    async def summary(self, attempt: CompactionAttempt, cut: CompactionPlan) -> Summary:
        """The summary of what leaves. ProviderError or GatewayError if no model could be asked and there is still room to
        wait, or a person wants it."""
        first = compaction.first_removable(self._transcript.view)
        limit = round(cut.summary * SURE)
        leaving = self._leaving(attempt.rules, first, cut.first, focus=attempt.focus, limit=limit)
        if paused(self._transcript.cycle, self._clock()) and not attempt.wanted:
            return await self._extract(leaving, "")
        if self._is_weak():
            return await self._extract(leaving, "", WEAK)
        try:
            async with asyncio.timeout(WITHIN):
                summarizer = self._summarizers[attempt.rules.by]
                summary = _checked(await summarizer.summarize(leaving, self._asking("summary")), Summary)
        except StorageFailed:
            raise
        except (ProviderError, GatewayError) as error:
            if attempt.wanted or (attempt.trigger != "overflow" and attempt.sizes.total + ANSWER < attempt.allowed.window):
                raise
            return await self._extract(leaving, why(error))
        except ANYTHING as error:
            return await self._extract(leaving, why(error))
        if (size := estimate(summary.text)) > limit or not summary.text.strip():
            return await self._extract(leaving, f"The summary had {size} tokens where {limit} were free.")
        return summary

    async def fitting(self, attempt: CompactionAttempt, cut: CompactionPlan, summary: Summary) -> Summary:
        """The summary, or an extract that is as much shorter as it must be: one full of names and numbers has more tokens
        than its length tells."""
        for _ in range(SHORTENINGS):
            room, size = attempt.room(cut), weighed(self._transcript, summary.text)
            if size <= room:
                break
            first = compaction.first_removable(self._transcript.view)
            limit = round(SURE * estimate(summary.text) * room / size)
            leaving = self._leaving(attempt.rules, first, cut.first, focus=attempt.focus, limit=limit)
            summary = await self._extract(leaving, f"The summary had {size:.0f} tokens where {room} were free.")
        return summary

    async def _extract(self, leaving: CompactionInput, failed: str, *remarks: str) -> Summary:
        """What stands in place of a summary without any model."""
        summary = await self._summarizers[EXTRACT].summarize(leaving, self._asking("summary"))
        return msgspec.structs.replace(summary, failed=carriable(failed), checks=(*remarks, *summary.checks))

    def _is_weak(self) -> bool:
        """Whether the model that would be asked is not to be trusted with this."""
        try:
            model = self._choose()
        except GatewayError:
            return False
        return model.provider.limits(model.model).small

    def _leaving(self, rules: CompactionRules, first: int, end: int, *, focus: str = "", limit: int = 0) -> CompactionInput:
        view = self._transcript.view
        return CompactionInput(
            messages=view.said(first, end),
            kept=view.said(end, len(view)),
            summary=self._transcript.summary if view.summarised else "",
            focus=focus,
            window=self._window(),
            limit=limit,
            language=rules.language,
            day=f"{rules.today:%Y-%m-%d}",
            began=end < len(view) and isinstance(view.messages[end], AssistantMessage),
            identifier_policy=rules.identifier_policy,
            identifier_instructions=rules.identifier_instructions,
        )

    def _window(self) -> int:
        try:
            return self._choose().window or UNKNOWN_WINDOW
        except GatewayError:
            return UNKNOWN_WINDOW

    def _asking(self, purpose: str) -> SideRequests:
        return SideRequests(self._recorder, self._choose, purpose, self._turn)

    @property
    def _turn(self) -> int | None:
        turn = self._transcript.open_turn
        return turn.ordinal if turn else None


def _checked(given: T, promised: type[T]) -> T:
    """Return what a plugin returned, if it has the fields that it promises; msgspec.ValidationError or TypeError if not."""
    return msgspec.convert(msgspec.to_builtins(given), promised)


def why(error: BaseException) -> str:
    """Why something did not come about, as a sentence for the log."""
    if isinstance(error, asyncio.CancelledError):
        return "It was stopped."
    if isinstance(error, TimeoutError):
        return f"It took more than {WITHIN:.0f} seconds."
    return sentence_of(error)
