"""A session's compactions as people see them: in the chat, and on the command line."""

from __future__ import annotations

from plugins.api.command import CompactionEntry
from sessions.events.events import ContextCompacted, Trigger
from sessions.state.compaction_cycle import CompactionCut
from sessions.state.transcript import Transcript

WHY: dict[Trigger | None, str] = {
    "budget": "the window was nearly full",
    "threshold": "compaction.threshold_tokens",
    "ratio": "compaction.ratio",
    "messages": "compaction.messages",
    "journal": "the log had grown",
    "overflow": "the model refused the request as too long",
    "command": "asked for",
    "new": "the session ended",
    None: "unknown",
}


def entry_of_cut(transcript: Transcript, cut: CompactionCut, event: ContextCompacted, at: str) -> CompactionEntry:
    """Return one compaction; `at` is the time of its event."""
    return CompactionEntry(
        number=cut.compaction,
        at=at,
        why=WHY[cut.trigger],
        messages=event.messages,
        tokens_before=event.tokens_before,
        tokens_after=event.tokens_after,
        by=event.by,
        summary=event.summary,
        model=event.model,
        kept=event.kept,
        lost=event.lost,
        checks=event.checks,
        failed=event.failed,
        noted=bool(event.path),
        in_force=cut.compaction in in_force(transcript),
    )


def in_force(transcript: Transcript) -> set[int]:
    """Return the numbers of the compactions that are not reverted: the one whose summary is in the view, and those
    before it."""
    under = {cut.compaction: cut.under for cut in transcript.cuts}
    found, there = set[int](), transcript.cut
    while there:
        found.add(there)
        there = under[there]
    return found
