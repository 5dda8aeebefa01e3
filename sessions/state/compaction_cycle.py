"""The compaction cycle: begun, flushed, and then compacted or abandoned, as a fold over the log.

It holds everything that must survive a restart: which cycle is open, what its flush covered, how often in a row compaction
failed, and when. A cycle that is open when a journal is opened was interrupted.
"""

from __future__ import annotations

import msgspec

from sessions.events.events import (
    CompactionAbandoned,
    CompactionBegan,
    ContextCompacted,
    FlushOutcome,
    MemoryFlushed,
    NoteAppended,
    Recorded,
    Trigger,
)


class CompactionCut(msgspec.Struct, frozen=True, kw_only=True):
    """A completed compaction: the seq of its `context_compacted`, its number, the seq from which messages stayed, and the
    compaction that was in effect before (`under`; 0: none), which a revert restores."""

    seq: int
    compaction: int
    keep_from: int
    under: int
    trigger: Trigger | None


class FlushMark(msgspec.Struct, frozen=True, kw_only=True):
    """A flush: the seq of its event, and what is needed of it without reading the log."""

    seq: int
    at: str
    compaction: int
    outcome: FlushOutcome
    covers_to: int
    path: str


class PendingNote(msgspec.Struct, frozen=True, kw_only=True):
    """A section that the log does not yet confirm to be in its note: the seq of the event with its text, and the note's
    path."""

    of: int
    path: str


class CompactionCycle(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a session between two compactions.

    `compaction` is the number of the last cycle that began, 0 if none did; `open` is True while it runs, with its `trigger`.
    `flush` is the newest flush; `covered` the last seq that a flush of this cycle covered, 0 if none did. `failures` counts
    consecutive failures, `failed_at` is the time of the last. `compactions` counts completed compactions; the last was `at`,
    and its summary goes into the note `noted`, empty for none. `owed` are sections that may be missing from their notes;
    `flushed_bytes` is the length of the journal at the newest flush or compaction.
    """

    compaction: int = 0
    open: bool = False
    trigger: Trigger | None = None
    focus: str = ""
    keep_from: int = 0
    tokens_before: int = 0
    flush: FlushMark | None = None
    covered: int = 0
    failures: int = 0
    failed_at: str = ""
    compactions: int = 0
    at: str = ""
    noted: str = ""
    owed: tuple[PendingNote, ...] = ()
    flushed_bytes: int = 0

    @property
    def ends_session(self) -> bool:
        """True if this is the flush at the end of a session and it is complete: only `session_closed` is missing."""
        return self.open and self.trigger == "new" and self.covered >= self.keep_from - 1

    @property
    def next(self) -> int:
        """The number of the running cycle, or of the next one."""
        return self.compaction if self.open else self.compaction + 1


def began(cycle: CompactionCycle, event: CompactionBegan) -> CompactionCycle:
    """Return the cycle after it began. What its own flush covered before stays covered."""
    return msgspec.structs.replace(
        cycle,
        compaction=event.compaction,
        open=True,
        trigger=event.trigger,
        focus=event.focus,
        keep_from=event.keep_from,
        tokens_before=event.tokens_before,
    )


def flushed(cycle: CompactionCycle, recorded: Recorded, event: MemoryFlushed, size: int) -> CompactionCycle:
    """Return the cycle after a flush, whatever its outcome; the journal had `size` bytes."""
    mark = FlushMark(
        seq=recorded.seq,
        at=recorded.at,
        compaction=event.compaction,
        outcome=event.outcome,
        covers_to=event.covers_to,
        path=event.path,
    )
    return msgspec.structs.replace(
        cycle,
        flush=mark,
        covered=max(cycle.covered, event.covers_to),
        flushed_bytes=size,
        owed=_owing(cycle, recorded.seq, event.path if event.outcome == "written" else ""),
    )


def compacted(cycle: CompactionCycle, recorded: Recorded, event: ContextCompacted, size: int) -> CompactionCycle:
    """Return the cycle after its compaction; the journal had `size` bytes. A summary by the model resets the count of
    failures; a failed one increments it."""
    return msgspec.structs.replace(
        cycle,
        compaction=event.compaction,
        open=False,
        trigger=None,
        focus="",
        covered=0,
        compactions=cycle.compactions + 1,
        at=recorded.at,
        noted=event.path,
        flushed_bytes=size,
        owed=_owing(cycle, recorded.seq, event.path),
        **_counted(cycle, recorded, bool(event.failed), settled=bool(event.model) and not event.failed),
    )


def abandoned(cycle: CompactionCycle, recorded: Recorded, event: CompactionAbandoned) -> CompactionCycle:
    """Return the cycle after it ended without changing the view."""
    counted = _counted(cycle, recorded, event.failed, settled=False)
    return msgspec.structs.replace(cycle, compaction=event.compaction, open=False, trigger=None, focus="", **counted)


def closed(cycle: CompactionCycle) -> CompactionCycle:
    """Return the cycle after the session was closed, which ends it."""
    return msgspec.structs.replace(cycle, open=False, trigger=None, focus="")


def appended(cycle: CompactionCycle, event: NoteAppended) -> CompactionCycle:
    """Return the cycle without the pending section that was appended to its note."""
    return msgspec.structs.replace(cycle, owed=tuple(owed for owed in cycle.owed if owed.of != event.of))


def _owing(cycle: CompactionCycle, seq: int, path: str) -> tuple[PendingNote, ...]:
    return (*cycle.owed, PendingNote(of=seq, path=path)) if path else cycle.owed


def _counted(cycle: CompactionCycle, recorded: Recorded, failed: bool, *, settled: bool) -> dict[str, object]:
    if failed:
        return {"failures": cycle.failures + 1, "failed_at": recorded.at}
    return {"failures": 0, "failed_at": ""} if settled else {}
