"""Opening a session: its journal is folded to a transcript, starting from the last checkpoint that matches it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from sessions.catalog.catalog import Catalog
from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import JournalDamaged, UnknownSession
from sessions.files.journal import Journal, Journals
from sessions.files.verify import open_journal, verify_lines
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript, Unfolding
from sessions.store.protocols import START, Position

VERIFIED_FIRST = 16 * 1024 * 1024
"""Size in bytes up to which a journal that may have changed is verified completely before it is used."""


class OpenedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session ready for a `Recorder`. `verified` is False for a large journal whose beginning was skipped because of a
    checkpoint: the caller must verify it in the background."""

    log: Journal
    position: Position
    transcript: Transcript
    verified: bool


class _Fold:
    """A mutable transcript to which lines are applied, off the event loop."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript

    def __call__(self, line: bytes) -> None:
        self.transcript = evolve(self.transcript, decode(line), len(line))


async def open_session(journals: Journals, catalog: Catalog, session: str) -> OpenedSession:
    """Open an existing session.

    Raises:
        UnknownSession: There is no such session.
        StorageFailed: The journal cannot be opened.
        JournalDamaged: The journal does not verify, is missing, or is shorter than the catalog knows.
    """
    row = catalog.row(session)
    try:
        return await _last(journals, catalog, session, row.acknowledged if row else 0)
    except UnknownSession as unknown:
        if row is None:
            raise
        raise await journals.missing(session) from unknown


async def _last(journals: Journals, catalog: Catalog, session: str, least: int) -> OpenedSession:
    """Open a session from its last checkpoint, or from its beginning if there is none that its journal confirms."""
    path = journals.path(session)
    verified = catalog.is_unchanged(session)
    if not verified and _size(path) <= VERIFIED_FIRST:
        await journals.verify(session)
        verified = True
    checkpoint = await catalog.checkpoint(session)
    if checkpoint is not None:
        try:
            return await _open(journals, catalog, session, *checkpoint, least=least, verified=verified)
        except JournalDamaged as damaged:
            if damaged.line:
                raise
            # The checkpoint, which is derived, disagrees with the journal, so only the journal is read. But the journal
            # must not lack events that the checkpoint had.
            least = max(least, checkpoint[0].seq)
    return await _open(journals, catalog, session, START, Transcript(), least=least, verified=True)


async def _open(
    journals: Journals,
    catalog: Catalog,
    session: str,
    after: Position,
    transcript: Transcript,
    *,
    least: int,
    verified: bool,
) -> OpenedSession:
    fold = _Fold(transcript)
    trusted = catalog.is_unchanged(session)
    try:
        log, last = await journals.open(session, after=after, fold=fold, trusted=trusted, least=least)
    except InvalidLine as error:
        line = fold.transcript.head + 1
        raise JournalDamaged(journals.path(session), line, str(error), good_seq=line - 1) from error
    folded = fold.transcript
    if folded.stale is not None:
        folded = await asyncio.to_thread(fold_reverted, journals.path(session), folded.stale, upto=last.offset)
    return OpenedSession(log=log, position=last, transcript=folded, verified=verified)


def fold_reverted(path: Path, unfolding: Unfolding, *, upto: int) -> Transcript:
    """Return the transcript of the first `upto` bytes of a journal after a revert that enlarges the view, recorded or only
    considered. Blocks; raises UnknownSession, StorageFailed, JournalDamaged."""
    fold = _Fold(Transcript(unfolding=unfolding))
    with open_journal(path) as descriptor:
        verify_lines(descriptor, path, START, upto, fold)
    return fold.transcript


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
