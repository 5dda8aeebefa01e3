"""Opening a session, and the recorder that writes its log and calls its observers.

To open a session is to compute its transcript from its log, starting at the last checkpoint that matches the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import JournalDamaged, StorageFailed
from sessions.events.events import Event, Recorded
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript, Unfolding
from sessions.store.catalog import Catalog, SessionRow
from sessions.store.log_writer import LogWriter
from sessions.store.protocols import START, Log, LogReader, Position, Store
from sessions.store.reading import PAGE_BYTES, StoredLog, verify_lines
from sessions.store.receipts import Receipts, message_in

VERIFIED_FIRST = 16 * 1024 * 1024
"""Maximum bytes of a changed log that is verified completely before it is used; larger ones are verified later."""

RECENT = 256 * 1024
"""Maximum bytes of durable lines that are kept in memory for subscribers."""


class OpenedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session ready for a `Recorder`. `verified` is False for a large log whose beginning was skipped because of a
    checkpoint: the caller must verify it in the background."""

    log: Log
    position: Position
    transcript: Transcript
    verified: bool


class _Fold:
    """A mutable transcript to which lines are applied, off the event loop."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript

    def __call__(self, line: bytes) -> None:
        self.transcript = evolve(self.transcript, decode(line), len(line))


async def open_session(store: Store, catalog: Catalog, session: str) -> OpenedSession:
    """Open an existing session from its last checkpoint, or from the first event if no checkpoint matches the log.

    Raises:
        UnknownSession: There is no such session.
        StorageFailed: The log cannot be opened.
        JournalDamaged: The log does not verify, is missing, or is shorter than the catalog knows.
    """
    row = await catalog.find(session)
    least = row.acknowledged if row else 0
    unchanged, stamp = await asyncio.to_thread(lambda: (is_unchanged(store, row), store.stamp(session)))
    verified = unchanged
    if not verified and stamp is not None and stamp.size <= VERIFIED_FIRST:
        await store.verify(session)
        verified = True
    checkpoint = await catalog.checkpoint(session)
    if checkpoint is not None:
        try:
            return await _open(store, session, *checkpoint, unchanged=unchanged, least=least, verified=verified)
        except JournalDamaged as damaged:
            if damaged.line:
                raise
            # The checkpoint disagrees with the log, from which it was derived: read only the log, which must still have all
            # events that the checkpoint included.
            least = max(least, checkpoint[0].seq)
    return await _open(store, session, START, Transcript(), unchanged=unchanged, least=least, verified=True)


async def add_unknown(receipts: Receipts, opened: OpenedSession) -> None:
    """Add the messages of an opened session that came after its ids were read, or whose commit was not confirmed: they stand
    in its log, and would be accepted again. Raises StorageFailed."""
    session = opened.transcript.session
    while (upto := receipts.upto(session)) is not None and upto < opened.position.seq:
        lines = await opened.log.lines(upto + 1, limit=PAGE_BYTES)
        receipts.extend(session, filter(None, map(message_in, lines)), upto=upto + max(len(lines), 1))


async def _open(
    store: Store,
    session: str,
    after: Position,
    transcript: Transcript,
    *,
    unchanged: bool,
    least: int,
    verified: bool,
) -> OpenedSession:
    fold = _Fold(transcript)
    try:
        log, last = await store.open(session, after=after, fold=fold, unchanged=unchanged, least=least)
    except InvalidLine as error:
        line = fold.transcript.head + 1
        raise JournalDamaged(session, line, str(error), good_seq=line - 1) from error
    folded = fold.transcript
    if folded.stale is not None:
        folded = await asyncio.to_thread(fold_reverted, StoredLog(store, session), folded.stale, upto=last.offset)
    return OpenedSession(log=log, position=last, transcript=folded, verified=verified)


def is_unchanged(reader: LogReader, row: SessionRow | None) -> bool:
    """Return True if the log of a settled session still has the stamp with which it was verified and durable."""
    if row is None or not row.settled:
        return False
    stamp = reader.stamp(row.session)
    return stamp is not None and (row.size, row.mtime_ns) == (stamp.size, stamp.changed)


def fold_reverted(log: StoredLog, unfolding: Unfolding, *, upto: int) -> Transcript:
    """Return the transcript of the first `upto` bytes of a log after a revert that enlarges the view; the revert may be
    recorded or only planned. Blocks; raises UnknownSession, StorageFailed, JournalDamaged."""
    fold = _Fold(Transcript(unfolding=unfolding))
    with log.read() as lines:
        verify_lines(lines, START, fold, upto)
    return fold.transcript


class Recorder(LogWriter[Event, Transcript]):
    """The writer of one session's log. `clean` is applied to each event before it is logged, for example to redact
    secrets."""

    def __init__(
        self,
        log: Log,
        position: Position,
        transcript: Transcript,
        now: Callable[[], datetime],
        clean: Callable[[Event], Event] = lambda event: event,
    ) -> None:
        super().__init__(log, position, transcript, now, self._evolve)
        self._clean = clean
        self._onto: Transcript | None = None
        self._recorded: Recorded
        self._recent: deque[bytes] = deque()
        self._recent_bytes = 0
        self._watchers: list[Callable[[], None]] = []
        self._readers: list[Callable[[Recorded], None]] = []

    @property
    def transcript(self) -> Transcript:
        """The transcript, with every appended event."""
        return self.state

    @property
    def durable_transcript(self) -> Transcript:
        """The transcript at `position`: never ahead of the disk."""
        return self.durable_state

    def on_durable(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` whenever `durable` advances and after a failure. Returns a function that removes it."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    def on_event(self, reader: Callable[[Recorded], None]) -> None:
        """Call `reader` with each event as soon as it is appended, before it is durable. It must not raise."""
        self._readers.append(reader)

    def append(self, event: Event, *, turn: int | None = None, urgent: bool = False, onto: Transcript | None = None) -> int:
        """Append an event as `LogWriter.append` does. `onto`, if given, replaces the transcript first; it must be computed
        from the same events."""
        assert onto is None or onto.head == self.head
        self._onto = onto
        seq = super().append(self._clean(event), turn=turn, urgent=urgent)
        recorded = self._recorded
        for reader in self._readers:
            reader(recorded)
        return seq

    def recent(self, after: int) -> Sequence[bytes] | None:
        """Return the durable lines after seq `after` from memory, or None if the log itself must be read."""
        if (missing := self.durable - after) > len(self._recent):
            return None
        return list(islice(reversed(self._recent), max(0, missing)))[
            ::-1
        ]  # reversed: usually only the last few lines are needed

    def _evolve(self, transcript: Transcript, event: Event, *, seq: int, at: str, turn: int | None, size: int) -> Transcript:
        self._recorded = recorded = Recorded(seq=seq, at=at, turn=turn, event=event)
        return evolve(self._onto or transcript, recorded, size)

    def _committed(self, line: bytes) -> None:
        self._recent.append(line)
        self._recent_bytes += len(line)
        while len(self._recent) > 1 and self._recent_bytes > RECENT:
            self._recent_bytes -= len(self._recent.popleft())

    def _release(self, upto: int, failure: StorageFailed | None) -> None:
        if failure is not None:
            super()._release(upto, failure)  # first, so that waiting callers get the failure before a watcher cancels them
        for watcher in tuple(self._watchers):
            watcher()
        if failure is None:
            super()._release(upto, None)  # last: a turn that starts first would delay `accepted` by 0.1 ms
