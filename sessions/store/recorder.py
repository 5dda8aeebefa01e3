"""The recorder: the writer of a session's log, which informs observers and subscribers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice

from sessions.events.errors import StorageFailed
from sessions.events.events import Event, Recorded
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript
from sessions.store.log_writer import LogWriter
from sessions.store.protocols import Log, Position

RECENT = 256 * 1024
"""Bytes of durable lines that are kept in memory for subscribers."""


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
        """Append an event, see `LogWriter.append`. `onto` is another fold of the same events, which replaces the transcript
        first."""
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
        return list(islice(reversed(self._recent), max(0, missing)))[::-1]  # usually few of many

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
            super()._release(upto, failure)  # before a watcher ends those who wait
        for watcher in tuple(self._watchers):
            watcher()
        if failure is None:
            super()._release(upto, None)  # later: a turn that begins to compute would delay `accepted` by 0.1 ms
