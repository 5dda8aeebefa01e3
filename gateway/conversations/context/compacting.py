"""Memory flush and compaction, and the reverting of a compaction. They run before a request that comes close to the reserve,
after a provider has refused one as too long, and when a person asks for them.

Every step is recorded before the next one begins, so that a session can continue wherever the gateway is stopped.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import structlog

from gateway.conversations.context.compaction_attempt import CompactionAttempt, CompactionHooks, paused
from gateway.conversations.context.conversation_config import CompactionRules, ConversationConfig
from gateway.conversations.context.session_models import SessionModels
from gateway.conversations.context.summarization import SMALLEST_ANSWER, UNKNOWN_WINDOW, Summarization, reason_of
from gateway.conversations.notes.day_notes import day_note
from gateway.models.spending.budgets import BudgetSpent
from gateway.support.errors import GatewayError
from plugins.api.compaction import Summary
from plugins.host.hooks import Hooks
from plugins.support.errors import ProviderError
from plugins.support.workspace import own_note
from sessions.events.codec import replace_surrogates
from sessions.events.events import (
    CompactionAbandoned,
    CompactionBegan,
    CompactionReverted,
    ContextCompacted,
    ContextPruned,
    Recorded,
    Trigger,
)
from sessions.state import compaction
from sessions.state.compaction import FRAME, Budget, CompactionPlan, Sizes, budget, compaction_trigger
from sessions.state.compaction_cycle import CompactionCut
from sessions.state.context import assemble
from sessions.state.edit_validation import merge_proposals
from sessions.state.reducer import evolve, project
from sessions.state.transcript import Transcript, Unfolding
from sessions.state.truncation import TOGETHER_SHARE, required_trims
from sessions.state.view_size import ViewSize, text_tokens
from sessions.store.recorder import Recorder

log = structlog.get_logger("exuvia.compaction")

FOCUS_LIMIT = 800
"""Maximum characters of the focus of `/compact`."""

PIECE = 1024 * 1024
"""Bytes of the log that are folded at a time."""

LATER = 2**62
"""A seq beyond every log, for a revert that is not recorded yet."""


class NothingToCompact(GatewayError):
    """Nothing can be removed from the view."""


class RevertRefused(GatewayError):
    """The compaction cannot be reverted."""


class Compactor:
    """Keeps one session's view within its model's window."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        config: ConversationConfig,
        models: SessionModels,
        summarization: Summarization,
        hooks: Hooks,
    ) -> None:
        self._recorder = recorder
        self._hooks = CompactionHooks(recorder, hooks)
        self._config = config
        self._models = models
        self._summarization = summarization
        self.notes = summarization.notes
        self._view_size = ViewSize()

    @property
    def _transcript(self) -> Transcript:
        return self._recorder.transcript

    def sizes(self) -> Sizes:
        """Return the size of the next request in tokens."""
        return self._view_size.sizes(self._transcript, assemble(self._transcript), self._models.vision())

    def reserve(self, window: int) -> int:
        """Return the tokens of a window that compaction keeps free."""
        return window - budget(window, self._config.compaction.thresholds).compact_at

    @property
    def flushes(self) -> bool:
        """True if messages are flushed to the notes before they are removed."""
        return self._config.compaction.keys.memory_flush.enabled

    def provider_side(self, window: int | None) -> int | None:
        """Return the tokens above which the provider may compact by itself, well before the gateway would; None if it may
        not."""
        rules = self._config.compaction
        if not (rules.keys.enabled and rules.keys.provider_side) or window is None:
            return None
        return budget(window, rules.thresholds).flush_at * 3 // 4

    def close_cycle(self) -> None:
        """End a cycle that a stop of the gateway interrupted. What was flushed stays flushed."""
        if self._transcript.cycle.open and not self._transcript.cycle.ends_session:
            self._abandon("The gateway was stopped during the compaction.")

    async def before_request(self, window: int | None, tokens: int) -> None:
        """Flush, or flush and compact, if the next request of `tokens` to a model of this window requires it.

        Usually it does not, and then no message is read.
        """
        rules = self._config.compaction
        if not rules.keys.enabled or window is None:
            return
        allowed = budget(window, rules.thresholds)
        if tokens < allowed.flush_at and not rules.thresholds.counts_messages and not self._has_grown(rules):
            return
        sizes = self.sizes()
        trigger = compaction_trigger(sizes.total, self._transcript.view, sizes, allowed, rules.thresholds)
        if trigger is None and await self._flush_early(rules, sizes, allowed):
            trigger = "budget"
        most = window - SMALLEST_ANSWER
        if trigger is None or (sizes.total < most and self._paused()):
            return
        below = allowed.flush_at
        if sizes.total >= most:
            below = max(below, (sizes.head + most) // 2)  # tools and notes may fill a small window almost up to `flush_at`
        attempt = CompactionAttempt(trigger=trigger, rules=rules, sizes=sizes, allowed=allowed, target=below)
        if sizes.total >= most and (shorter := self._trim_newest(attempt)) is not None:
            if shorter.sizes.total < below:
                return
            attempt = shorter
        if await self._compact(attempt) is None and attempt.sizes.total >= most:
            await self._drop_old(attempt)

    async def overflowed(self, window: int | None) -> bool:
        """Shorten the view to half or less because a model refused the request as too long; return False if that fails."""
        rules, sizes = self._config.compaction, self.sizes()
        allowed = budget(min(window or sizes.total, sizes.total), rules.thresholds)
        below = min(allowed.flush_at, sizes.total // 2)
        attempt = CompactionAttempt(trigger="overflow", rules=rules, sizes=sizes, allowed=allowed, target=below)
        attempt = self._trim_newest(attempt) or attempt
        if attempt.sizes.total < below or await self._compact(attempt) is not None:
            return True
        return await self._drop_old(attempt) is not None

    async def compact_now(self, focus: str, window: int | None) -> ContextCompacted:
        """Compact on request of a person. Raises NothingToCompact; GatewayError or ProviderError if no model can
        summarise now."""
        rules, sizes = self._config.compaction, self.sizes()
        allowed = budget(window or max(sizes.total * 2, UNKNOWN_WINDOW), rules.thresholds)
        attempt = CompactionAttempt(
            trigger="command",
            rules=rules,
            sizes=sizes,
            allowed=allowed,
            target=min(allowed.flush_at, sizes.total),
            focus=replace_surrogates(focus[:FOCUS_LIMIT]),
        )
        if (made := await self._compact(attempt)) is None:
            raise NothingToCompact("Nothing to compact: a summary would not be smaller than the messages that it replaces.")
        return made

    async def revert(self, number: int, window: int | None) -> int:
        """Revert compaction `number` and those made on top of it, and return the size of the next request in tokens.

        Raises RevertRefused, also if the larger view would not fit a model of this window.
        """
        cut = _cut_in_force(self._transcript, number)
        under = next((other for other in self._transcript.cuts if other.compaction == cut.under), None)
        event = CompactionReverted(to=cut.under, keep_from=under.keep_from if under else 1)
        folded = await _folded(self._recorder, event)
        # No await from here to the append: the fold covers the whole log.
        after = evolve(folded, Recorded(seq=folded.head + 1, at=folded.at, turn=None, event=event))
        tokens = ViewSize().sizes(after, assemble(after), self._models.vision()).total
        most = budget(window, self._config.compaction.thresholds).compact_at if window is not None else tokens + 1
        if tokens >= most:
            raise RevertRefused(
                f"The compacted messages no longer fit: the conversation would have {tokens:,} tokens, and with this model's"
                f" window of {window:,} it is compacted from {most:,} on."
            )
        self._recorder.append(event, onto=folded, urgent=True)
        return tokens

    async def flush_at_end(self) -> None:
        """Flush the session at its end. After an interruption the cycle is still open, and the next start completes it."""
        rules, view = self._config.compaction, self._transcript.view
        flushes = rules.keys.enabled and rules.keys.memory_flush.enabled
        if not flushes or self._transcript.cycle.covered >= max(view.placed, default=0):
            return
        end = self._transcript.head + 1
        number, tokens = self._transcript.cycle.next, self.sizes().total
        began = CompactionBegan(compaction=number, trigger="new", keep_from=end, tokens_before=tokens)
        await self._recorder.append_durable(began)
        await self._summarization.flush(rules, end, "new")

    async def _flush_early(self, rules: CompactionRules, sizes: Sizes, allowed: Budget) -> bool:
        """Flush shortly before the compaction of a cycle, or after much growth of the journal.

        Returns True if the compaction should follow at once: in a small window, the next turn would need another flush.
        """
        cycle = self._transcript.cycle
        has_grown = self._has_grown(rules)
        near = sizes.total >= allowed.flush_at
        if not rules.keys.memory_flush.enabled or cycle.covered or not (near or has_grown):
            return False
        # The growth up to the compaction and one round more: the results of its tools, and what the model says before.
        one_round = TOGETHER_SHARE * allowed.compact_at + allowed.compact_at - allowed.flush_at
        growth = round(allowed.compact_at - sizes.total + one_round) if near else 0
        trigger: Trigger = "budget" if near else "journal"
        below = allowed.flush_at
        attempt = CompactionAttempt(trigger=trigger, rules=rules, sizes=sizes, allowed=allowed, target=below)
        cut = await self._early_cut(attempt, below - growth)
        if cut is None or (near and not allowed.recent):  # nothing could be kept after the flush
            return near
        await self._summarization.flush(rules, cut.keep_from, trigger)
        return False

    async def _early_cut(self, attempt: CompactionAttempt, below: int) -> CompactionPlan | None:
        """Return the cut of an early flush, from a plugin or from the thresholds; None if the kept part could outgrow
        `below` tokens before the compaction."""
        view, sizes, allowed = self._transcript.view, attempt.sizes, attempt.allowed
        if (chosen := await self._hooks.cut(attempt)) is not None:
            return compaction.plan_at(view, sizes, allowed, chosen.first, below=below)
        cut = compaction.plan(view, sizes, allowed, attempt.rules.thresholds, below=below)
        kept = sum(sizes.messages[cut.first :]) if cut is not None and allowed.recent else 0
        return cut if kept <= allowed.recent else None

    def _has_grown(self, rules: CompactionRules) -> bool:
        """Return True if the journal has grown by `force_bytes` since the last flush or compaction."""
        cycle, limit = self._transcript.cycle, rules.keys.memory_flush.force_bytes
        return 0 < limit <= self._transcript.bytes - cycle.flushed_bytes and not cycle.covered

    async def _compact(self, attempt: CompactionAttempt) -> ContextCompacted | None:
        """Run a whole cycle; return None if the view is unchanged."""
        cut = await self._cut(attempt)
        if cut is None:
            if attempt.trigger == "budget" and not self._paused():
                self._begin(attempt, self._transcript.head + 1)
                self._abandon("Removing messages would not free enough space.", failed=True)
            return None
        self._begin(attempt, cut.keep_from)
        try:
            await self._hooks.before(attempt, cut.keep_from)
            await self._summarization.flush(attempt.rules, cut.keep_from, attempt.trigger)
            summary = await self._summarization.summary(attempt, cut)
            summary = await self._summarization.fitting(attempt, cut, summary)
        except (asyncio.CancelledError, GatewayError, ProviderError) as error:
            stopped = isinstance(error, asyncio.CancelledError | BudgetSpent)
            self._abandon(reason_of(error), failed=not (stopped or attempt.requested))
            if stopped or attempt.requested:
                raise
            log.warning("compaction_abandoned", session=self._transcript.session, reason=reason_of(error))
            return None
        return await self._record(attempt, cut, summary)

    def _trim_newest(self, attempt: CompactionAttempt) -> CompactionAttempt | None:
        """Shorten the newest message or tool results if nothing else can make enough room, and return the attempt with
        the new sizes; None if that does not apply."""
        view, sizes = self._transcript.view, attempt.sizes
        if compaction.plan(view, sizes, attempt.allowed, attempt.rules.thresholds, below=attempt.target) is not None:
            return None
        newest = next(reversed(compaction.cut_points(view)), compaction.first_removable(view))
        room = attempt.target - sizes.head - FRAME
        edits = merge_proposals(
            view, required_trims(view, room, 0, newest, count_tokens=partial(text_tokens, self._transcript))
        )
        if not edits:
            return None
        self._recorder.append(ContextPruned(edits=edits), turn=self._turn)
        return msgspec.structs.replace(attempt, sizes=self.sizes())

    async def _drop_old(self, attempt: CompactionAttempt) -> ContextCompacted | None:
        """Remove everything but the newest message, or the newest calls with their results, because not even a summary fits.

        The log keeps all of it, and it was flushed. Returns None if there is nothing to remove.
        """
        view = self._transcript.view
        if not (places := compaction.cut_points(view)) and not view.summarised:
            return None
        first = places[-1] if places else compaction.first_removable(view)
        cut = CompactionPlan(keep_from=view.placed[first], first=first, summary=0)
        self._begin(attempt, cut.keep_from)
        try:
            await self._hooks.before(attempt, cut.keep_from)
            await self._summarization.flush(attempt.rules, cut.keep_from, attempt.trigger)
        except (asyncio.CancelledError, BudgetSpent) as stopped:
            self._abandon(reason_of(stopped))
            raise
        nothing = Summary(text="", by="nothing", failed="There was no space for a summary.")
        return await self._record(attempt, cut, nothing)

    async def _cut(self, attempt: CompactionAttempt) -> CompactionPlan | None:
        """Return the cut: the end of this cycle's flush if that frees enough, else the cut of a plugin or of the thresholds.

        With `keep_recent_tokens = 0` the end of the flush is not used: what came after it must be removed too.
        """
        view, sizes, allowed = self._transcript.view, attempt.sizes, attempt.allowed
        if (covered := self._transcript.cycle.covered) and allowed.recent and not attempt.requested:
            early = compaction.plan_at(view, sizes, allowed, view.first_from(covered + 1), below=attempt.target)
            if early is not None:
                return early
        if (chosen := await self._hooks.cut(attempt)) is not None:
            return chosen
        thresholds = attempt.rules.thresholds
        return compaction.plan(view, sizes, allowed, thresholds, below=attempt.target, least=attempt.requested)

    def _begin(self, attempt: CompactionAttempt, keep_from: int) -> None:
        began = CompactionBegan(
            compaction=self._transcript.cycle.next,
            trigger=attempt.trigger,
            keep_from=keep_from,
            tokens_before=attempt.sizes.total,
            focus=attempt.focus,
        )
        self._recorder.append(began, turn=self._turn)

    def _abandon(self, reason: str, *, failed: bool = False) -> None:
        number = self._transcript.cycle.compaction
        self._recorder.append(CompactionAbandoned(compaction=number, reason=reason, failed=failed), turn=self._turn)

    async def _record(self, attempt: CompactionAttempt, cut: CompactionPlan, summary: Summary) -> ContextCompacted | None:
        rules, sizes = attempt.rules, attempt.sizes
        writes = rules.writable and rules.keys.memory_flush.enabled
        summary_tokens = FRAME + round(text_tokens(self._transcript, summary.text)) if summary.text else 0
        after = sizes.head + sum(sizes.messages[cut.first :]) + summary_tokens
        if after >= (attempt.target if summary.text else sizes.total):
            self._abandon("The context would still be too large.", failed=True)
            return None
        event = ContextCompacted(
            compaction=self._transcript.cycle.compaction,
            keep_from=cut.keep_from,
            summary=replace_surrogates(summary.text),
            by=summary.by,
            tokens_before=sizes.total,
            tokens_after=after,
            messages=cut.first - compaction.first_removable(self._transcript.view),
            checks=summary.checks,
            failed=summary.failed,
            kept=summary.kept,
            lost=summary.lost,
            model=summary.model,
            usage=summary.usage,
            path=own_note(self._transcript.person, day_note(rules.today)) if writes else "",
        )
        await self._recorder.append_durable(event, turn=self._turn)
        self.notes.write_in_background()
        log.info("context_compacted", session=self._transcript.session, before=sizes.total, after=after, by=summary.by)
        await self._hooks.after(attempt, event)
        return event

    def _paused(self) -> bool:
        return paused(self._transcript.cycle, self._config.clock.now())

    @property
    def _turn(self) -> int | None:
        turn = self._transcript.open_turn
        return turn.ordinal if turn else None


def _cut_in_force(transcript: Transcript, number: int) -> CompactionCut:
    cuts = {cut.compaction: cut for cut in transcript.cuts}
    number_in_view = transcript.cut
    while number_in_view:
        if number_in_view == number:
            return cuts[number_in_view]
        number_in_view = cuts[number_in_view].under
    raise RevertRefused(f"Compaction {number} is not in force; /compactions lists those that are.")


async def _folded(recorder: Recorder, event: CompactionReverted) -> Transcript:
    """Return the fold of the whole log; `event`, appended next, will restore the larger view."""
    folded = Transcript(unfolding=Unfolding(until=LATER, to=event.to, keep_from=event.keep_from))
    while folded.head < recorder.transcript.head:
        await recorder.until_durable(recorder.transcript.head)
        lines = await recorder.log.lines(folded.head + 1, limit=PIECE)
        folded = await asyncio.to_thread(project, lines, folded)
    assert folded.unfolding is not None
    return msgspec.structs.replace(folded, unfolding=msgspec.structs.replace(folded.unfolding, until=folded.head + 1))
