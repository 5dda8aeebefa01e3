"""The logs and attachments of a home, for reading; `wiring.open_stores` opens them for writing.

These two modules are the only ones that choose an implementation; everything else uses the protocols of `sessions.store`.
"""

from __future__ import annotations

from gateway.support.home import Home
from sessions.files.journal_folder import JournalFolder
from sessions.store.protocols import Blobs, LogReader


def session_logs(home: Home) -> LogReader:
    """Return the logs of the sessions, for reading."""
    return JournalFolder(home.sessions)


def fact_logs(home: Home) -> LogReader:
    """Return the store of the facts' log, for reading."""
    return JournalFolder(home.root)


def attachments_of(home: Home) -> Blobs:
    """Return the attachments."""
    from sessions.attachments.store import Attachments  # noqa: PLC0415 - imports asyncio, which most commands do not need

    return Attachments(home.attachments)
