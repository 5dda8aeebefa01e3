"""Garbage collection of attachments: those that were uploaded but not used in a message are removed after a day.

An attachment in any journal is never removed, and nothing is removed while a journal cannot be read. The journals decide,
not our own records, because a crash may occur between an event and its record.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from sessions.attachments.attachment_refs import digests_in, references_in
from sessions.attachments.owners import Owners, is_digest
from sessions.events.codec import InvalidLine, decode
from sessions.events.events import SessionOpened
from sessions.store.protocols import START, Lines, LogReader

DRAFT = ".draft-"
"""Prefix of a file that is being written."""


def remove_orphans(folder: Path, owners: Owners, logs: LogReader, before: float) -> int:
    """Remove unreferenced attachments from before a time, and restore lost records of referenced ones. Blocks; raises
    OSError, and a SessionsError if a log cannot be read, because its references are unknown then.

    Args:
        folder: The contents.
        owners: Their owners.
        logs: All logs. If there are none, nothing is removed: they may be elsewhere.
        before: Seconds since the epoch, compared to modification times.

    Returns:
        The number of removed files of content.
    """
    sessions = [session for session, _ in logs.listed()]
    if not folder.is_dir() or not sessions:
        return 0
    new = [(path, digest) for path, digest, at in owners.unsettled() if at < before]
    recorded = owners.digests()
    unknown = {path.name for path in folder.iterdir() if is_digest(path.name)} - recorded
    _remove_drafts(folder, before)
    if not new and not unknown:
        return 0
    named: set[str] = set()
    for session in sessions:
        with logs.read(session) as lines:
            named |= digests_in(lines)
    for session in sessions if not unknown.isdisjoint(named) else ():
        with logs.read(session) as lines:
            _record_again(owners, lines, unknown)
    for path, digest in new:
        with owners.lock, contextlib.suppress(FileNotFoundError):  # it may have been used meanwhile
            if digest in named:
                path.rename(path.with_name(digest))
            elif path.stat().st_mtime < before:
                path.unlink()
    return sum(_remove(folder, owners, digest, before) for digest in {*unknown, *(digest for _, digest in new)} - named)


def _remove(folder: Path, owners: Owners, digest: str, before: float) -> bool:
    """Remove content without an owner."""
    path = folder / digest
    with owners.lock, contextlib.suppress(FileNotFoundError):
        if not owners.is_owned(digest) and path.stat().st_mtime < before:
            path.unlink()
            return True
    return False


def _remove_drafts(folder: Path, before: float) -> None:
    for path in [*folder.glob(f"{DRAFT}*"), *folder.glob("owners/*/.*")]:
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < before:
                path.unlink()


def _record_again(owners: Owners, lines: Lines, unknown: set[str]) -> None:
    """Restore the missing records of the owner of a log."""
    person = _person(lines)
    for named in references_in(lines) if person else ():
        if named.attachment.sha256 in unknown:
            owners.record(person, named.attachment, named=True)


def _person(lines: Lines) -> str:
    """Return the owner of a log; empty if its first line is invalid."""
    try:
        event = decode(next(lines.forward(START), b"")).event
    except InvalidLine:
        return ""
    return event.person if isinstance(event, SessionOpened) else ""
