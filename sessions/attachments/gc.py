"""Garbage collection of attachments: those that were uploaded but not used in a message are removed after a day.

An attachment in any journal is never removed, and nothing is removed while a journal cannot be read. The journals decide,
not our own records, because a crash may occur between an event and its record.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from sessions.attachments.attachment_refs import digests_in, references_in
from sessions.attachments.owners import is_digest
from sessions.attachments.store import DRAFT, Attachments
from sessions.events.codec import InvalidLine, decode
from sessions.events.events import SessionOpened


def remove_orphans(attachments: Attachments, journals: Path, before: float) -> int:
    """Remove unreferenced attachments from before a time, and restore lost records of referenced ones. Blocks; raises
    OSError.

    Args:
        attachments: The store.
        journals: The folder of the journals.
        before: Seconds since the epoch, compared to modification times.

    Returns:
        The number of removed files of content.
    """
    if not attachments.folder.is_dir() or not journals.is_dir():
        return 0  # without journals, references are unknown
    owners = attachments.owners
    new = [(path, digest) for path, digest, at in owners.unsettled() if at < before]
    recorded = owners.digests()
    unknown = {path.name for path in attachments.folder.iterdir() if is_digest(path.name)} - recorded
    _remove_drafts(attachments.folder, before)
    if not new and not unknown:
        return 0
    paths = sorted(journals.glob("*.jsonl"))
    named = {digest for path in paths for digest in digests_in(path)}
    for path in paths:
        if not unknown.isdisjoint(named):
            _record_again(attachments, path, unknown)
    for path, digest in new:
        with owners.lock, contextlib.suppress(FileNotFoundError):  # it may have been used meanwhile
            if digest in named:
                path.rename(path.with_name(digest))
            elif path.stat().st_mtime < before:
                path.unlink()
    return sum(_remove(attachments, digest, before) for digest in {*unknown, *(digest for _, digest in new)} - named)


def _remove(attachments: Attachments, digest: str, before: float) -> bool:
    """Remove content without an owner."""
    path = attachments.path(digest)
    with attachments.owners.lock, contextlib.suppress(FileNotFoundError):
        if not attachments.owners.is_owned(digest) and path.stat().st_mtime < before:
            path.unlink()
            return True
    return False


def _remove_drafts(folder: Path, before: float) -> None:
    for path in [*folder.glob(f"{DRAFT}*"), *folder.glob("owners/*/.*")]:
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < before:
                path.unlink()


def _record_again(attachments: Attachments, path: Path, unknown: set[str]) -> None:
    """Restore the missing records of the owner of a journal."""
    person = _person(path)
    for named in references_in(path) if person else ():
        if named.attachment.sha256 in unknown:
            attachments.owners.record(person, named.attachment, named=True)


def _person(path: Path) -> str:
    """Return the owner of a journal; empty if its first line is invalid."""
    with path.open("rb") as file:
        try:
            event = decode(file.readline()).event
        except InvalidLine:
            return ""
    return event.person if isinstance(event, SessionOpened) else ""
