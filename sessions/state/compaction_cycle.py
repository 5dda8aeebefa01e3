"""A compaction's cycle, as the log tells it: begun, flushed, and then compacted or abandoned.

Everything that must hold across restarts is here: which cycle is open, what its flush covered, how often it went wrong in
a row and when. A cycle that is open when a journal is opened was interrupted.
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
    """A compaction that was made: the seq of its `context_compacted`, its number, from where on messages stayed, and the
    compaction that it was made `under` (0: none), to which taking it back returns."""

    seq: int
    compaction: int
    keep_from: int
    under: int
    trigger: Trigger | None


class FlushMark(msgspec.Struct, frozen=True, kw_only=True):
    """A flush: the seq of its event, and what is asked of it without reading the log."""

    seq: int
    at: str
    compaction: int
    outcome: FlushOutcome
    covers_to: int
    path: str


class PendingNote(msgspec.Struct, frozen=True, kw_only=True):
    """A section that is to stand in a note and of which the log does not say yet that it does: the seq of the event that has
    its text, and the note's path."""

    of: int
    path: str


class CompactionCycle(msgspec.Struct, frozen=True, kw_only=True):
    """Where the session stands between two compactions. `compaction` is the number of the last cycle that began, 0 if none
    did; `began` whether it is open now, and with which `trigger`.

    `flush` is the newest flush; `covered` the last seq that a flush of this cycle covered, 0 if none did. `failures` counts
    what went wrong in a row, `failed_at` when it last did. `compactions` counts those that were made, the last `at`, whose
    summary goes into the note `noted`, empty for none.
    `owed` are the sections that the notes may lack; `flushed_bytes` how long the journal was at the newest flush or
    compaction.
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
        """Whether this is the flush at the end of a session, and it is done: only `session_closed` is missing."""
        return self.open and self.trigger == "new" and self.covered >= self.keep_from - 1

    @property
    def next(self) -> int:
        """The number of the cycle that runs, or of the next one."""
        return self.compaction if self.open else self.compaction + 1


def began(cycle: CompactionCycle, event: CompactionBegan) -> CompactionCycle:
    """A cycle began. What a flush before it covered, if it was its own, stays covered."""
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
    """What leaves was flushed, whatever came of it, when the journal had `size` bytes."""
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
    """The cycle is closed, when the journal had `size` bytes. A summary of the model's own ends a row of failures; one that
    it could not give is another."""
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
    """The cycle is closed, and the view stayed as it was."""
    counted = _counted(cycle, recorded, event.failed, settled=False)
    return msgspec.structs.replace(cycle, compaction=event.compaction, open=False, trigger=None, focus="", **counted)


def closed(cycle: CompactionCycle) -> CompactionCycle:
    """The session is closed, and with it what was begun."""
    return msgspec.structs.replace(cycle, open=False, trigger=None, focus="")


def appended(cycle: CompactionCycle, event: NoteAppended) -> CompactionCycle:
    """A section is no longer owed."""
    return msgspec.structs.replace(cycle, owed=tuple(owed for owed in cycle.owed if owed.of != event.of))


def _owing(cycle: CompactionCycle, seq: int, path: str) -> tuple[PendingNote, ...]:
    return (*cycle.owed, PendingNote(of=seq, path=path)) if path else cycle.owed


def _counted(cycle: CompactionCycle, recorded: Recorded, failed: bool, *, settled: bool) -> dict[str, object]:
    if failed:
        return {"failures": cycle.failures + 1, "failed_at": recorded.at}
    return {"failures": 0, "failed_at": ""} if settled else {}
