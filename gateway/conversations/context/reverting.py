"""Reverts a compaction: the view is folded again from the log and replaces the present one if it fits."""

from __future__ import annotations

import asyncio

import msgspec

from gateway.support.errors import GatewayError
from sessions.events.events import CompactionReverted, Recorded
from sessions.events.vision import VisionSupport
from sessions.state.compaction import Rules, budget
from sessions.state.compaction_cycle import CompactionCut
from sessions.state.context import assemble
from sessions.state.reducer import evolve, project
from sessions.state.transcript import Transcript, Unfolding
from sessions.state.view_size import ViewSize
from sessions.store.recorder import Recorder

PIECE = 1024 * 1024
"""Bytes of the log that are folded at a time."""

LATER = 2**62
"""A seq beyond every log: the revert is only a candidate."""


class RevertRefused(GatewayError):
    """The compaction cannot be reverted."""


async def revert(recorder: Recorder, number: int, window: int | None, rules: Rules, vision: VisionSupport | None) -> int:
    """Revert compaction `number` and those made on top of it, and return the estimated size of the next request in tokens.

    Raises RevertRefused, also if the larger view would not fit a model of this `window` and `vision`.
    """
    cut = _in_force(recorder.transcript, number)
    under = next((other for other in recorder.transcript.cuts if other.compaction == cut.under), None)
    event = CompactionReverted(to=cut.under, keep_from=under.keep_from if under else 1)
    folded = await _folded(recorder, event)
    # No await from here to the append: the fold covers the whole log.
    folded = msgspec.structs.replace(folded, unfolding=_unfolding(folded, folded.head + 1))
    after = evolve(folded, Recorded(seq=folded.head + 1, at=folded.at, turn=None, event=event))
    tokens = ViewSize().sizes(after, assemble(after), vision).total
    if window is not None and tokens >= budget(window, rules).compact_at:
        most = budget(window, rules).compact_at
        raise RevertRefused(
            f"What was compacted does not fit any more: that would be {tokens:,} tokens, and of this model's window of"
            f" {window:,} a conversation may have {most:,} before it is compacted again."
        )
    recorder.append(event, onto=folded, urgent=True)
    return tokens


def _in_force(transcript: Transcript, number: int) -> CompactionCut:
    cuts = {cut.compaction: cut for cut in transcript.cuts}
    there = transcript.cut
    while there:
        if there == number:
            return cuts[there]
        there = cuts[there].under
    raise RevertRefused(f"Compaction {number} is not in force; /compactions lists those that are.")


async def _folded(recorder: Recorder, event: CompactionReverted) -> Transcript:
    """Return the fold of the whole log, with the view that `event` restores."""
    folded = Transcript(unfolding=Unfolding(until=LATER, to=event.to, keep_from=event.keep_from))
    while folded.head < recorder.transcript.head:
        await recorder.until_durable(recorder.transcript.head)
        lines = await recorder.log.lines(folded.head + 1, limit=PIECE)
        folded = await asyncio.to_thread(project, lines, folded)
    return folded


def _unfolding(folded: Transcript, until: int) -> Unfolding:
    assert folded.unfolding is not None
    return msgspec.structs.replace(folded.unfolding, until=until)
