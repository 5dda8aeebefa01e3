"""Journals of tests, read through the protocols of a store."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from sessions.files.committer import Committer
from sessions.files.journal_folder import JournalFolder
from sessions.files.journals import Journals
from sessions.store.fork import Fork, fork
from sessions.store.reading import StoredLog


def stored(journal: Path) -> StoredLog:
    """The log in this file."""
    return StoredLog(JournalFolder(journal.parent), journal.stem)


def forked(parent: Path, session: str, key: str, now: datetime, *, at: int | None = None, exactly: bool = True) -> Fork:
    """Fork the session in this file, beside it."""
    store = Journals(parent.parent, parent.parent / "quarantine", Committer())
    with ThreadPoolExecutor(1) as thread:
        making = thread.submit(lambda: asyncio.run(fork(store, parent.stem, session, key, now, at=at, exactly=exactly)))
        return making.result()
