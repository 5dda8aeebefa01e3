"""Opening a session: its log is folded to a transcript, starting from the last checkpoint that matches it."""

from __future__ import annotations

import asyncio

import msgspec

from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import JournalDamaged
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript, Unfolding
from sessions.store.catalog import Catalog, SessionRow
from sessions.store.protocols import START, Log, LogReader, Position, Store
from sessions.store.reading import StoredLog, verify_lines

VERIFIED_FIRST = 16 * 1024 * 1024
"""Size in bytes up to which a log that may have changed is verified completely before it is used."""


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
    """Open an existing session, from its last checkpoint, or from its beginning if there is none that its log confirms.

    Raises:
        UnknownSession: There is no such session.
        StorageFailed: The log cannot be opened.
        JournalDamaged: The log does not verify, is missing, or is shorter than the catalog knows.
    """
    row = catalog.row(session)
    least = row.acknowledged if row else 0
    verified = is_unchanged(store, row)
    if not verified and (stamp := store.stamp(session)) is not None and stamp.size <= VERIFIED_FIRST:
        await store.verify(session)
        verified = True
    checkpoint = await catalog.checkpoint(session)
    if checkpoint is not None:
        try:
            return await _open(store, session, *checkpoint, row=row, least=least, verified=verified)
        except JournalDamaged as damaged:
            if damaged.line:
                raise
            # The checkpoint, which is derived, disagrees with the log, so only the log is read. But the log must not lack
            # events that the checkpoint had.
            least = max(least, checkpoint[0].seq)
    return await _open(store, session, START, Transcript(), row=row, least=least, verified=True)


async def _open(
    store: Store,
    session: str,
    after: Position,
    transcript: Transcript,
    *,
    row: SessionRow | None,
    least: int,
    verified: bool,
) -> OpenedSession:
    fold = _Fold(transcript)
    unchanged = is_unchanged(store, row)
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
    """Return the transcript of the first `upto` bytes of a log after a revert that enlarges the view, recorded or only
    considered. Blocks; raises UnknownSession, StorageFailed, JournalDamaged."""
    fold = _Fold(Transcript(unfolding=unfolding))
    with log.read() as lines:
        verify_lines(lines, START, fold, upto)
    return fold.transcript
