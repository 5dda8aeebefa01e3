"""Records the state of sessions in the catalog: their rows, and checkpoints that save a restart from a full fold."""

from __future__ import annotations

from sessions.store.catalog import Catalog, SessionRow
from sessions.store.protocols import Stamp, Store
from sessions.store.receipts import Receipts
from sessions.store.recorder import Recorder

TITLE = "title"
"""The session's setting for its title."""

CHECKPOINT_EVERY = 256
"""Events between two checkpoints."""


class SessionIndexer:
    """Writes the rows and checkpoints of the conversations in memory."""

    def __init__(self, catalog: Catalog, store: Store) -> None:
        self._catalog = catalog
        self._store = store
        self._checkpoints: dict[str, int] = {}

    def begin(self, recorder: Recorder) -> None:
        """Start to follow a session; everything before its position counts as checkpointed."""
        self._checkpoints[recorder.durable_transcript.session] = recorder.position.seq

    def progressed(self, recorder: Recorder, receipts: Receipts) -> None:
        """Record an idle session, with a checkpoint if one is due."""
        self.put(recorder)
        if self._is_due(recorder):
            self._checkpoint(recorder, receipts)

    def end(self, recorder: Recorder, receipts: Receipts) -> None:
        """Record a closed session. After a failure its memory is not trusted, and the session stays unsettled."""
        if recorder.failure is None:
            self._checkpoint(recorder, receipts)
        self.put(recorder, settled=recorder.failure is None)
        self._checkpoints.pop(recorder.durable_transcript.session, None)

    def put(self, recorder: Recorder, *, settled: bool = True) -> None:
        """Record a session's row; with `settled` false, it is opened again at the next start."""
        transcript = recorder.durable_transcript
        # Zeros if it cannot be told now: the session must be in the catalog all the same, or its key would begin another.
        stamp = self._store.stamp(transcript.session) or Stamp(size=0, changed=0)
        self._catalog.put(
            SessionRow(
                session=transcript.session,
                key=transcript.key,
                person=transcript.person,
                opened_at=transcript.opened_at,
                succeeds=transcript.succeeds,
                head=recorder.durable,
                at=transcript.at,
                size=stamp.size,
                mtime_ns=stamp.changed,
                settled=settled and transcript.finished and stamp.size == recorder.position.offset,
                closed=transcript.closed is not None,
                title=transcript.settings.get(TITLE, ""),
            )
        )

    def _is_due(self, recorder: Recorder) -> bool:
        since = recorder.position.seq - self._checkpoints.get(recorder.durable_transcript.session, 0)
        # A checkpoint costs what the view holds, so a longer view is written less often: the cost an event is constant.
        return since >= max(CHECKPOINT_EVERY, len(recorder.durable_transcript.messages))

    def _checkpoint(self, recorder: Recorder, receipts: Receipts) -> None:
        transcript = recorder.durable_transcript
        self._checkpoints[transcript.session] = recorder.position.seq
        self._catalog.save_checkpoint(transcript.session, recorder.position, transcript, receipts)
