"""The logs of a home: those of its sessions, and that of its facts."""

from __future__ import annotations

from gateway.support.home import Home
from sessions.files.journals import JournalFolder
from sessions.store.protocols import LogReader


def session_logs(home: Home) -> LogReader:
    """Return the logs of the sessions, for reading."""
    return JournalFolder(home.sessions)


def fact_logs(home: Home) -> LogReader:
    """Return the store of the facts' log, for reading."""
    return JournalFolder(home.root)
