"""Checks of the database that has the logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gateway.doctor.findings import DoctorContext, Finding
from gateway.support.storage import examine_database
from sessions.events.errors import StorageFailed

if TYPE_CHECKING:
    from sessions.postgres.server_check import ServerReport

SLOW_MS = 50.0
"""Milliseconds of a commit from which a chat is slowed down noticeably."""

CLOCK_MS = 2000.0


def database(context: DoctorContext) -> Iterator[Finding]:
    """Report problems of the configured database."""
    url = context.home.database
    if url is None or context.offline:
        return
    try:
        report = examine_database(url)
    except StorageFailed as error:
        yield Finding(str(error), "Correct `[store]` in the configuration, or repair the database.")
        return
    yield from findings_about(report)


def findings_about(report: ServerReport) -> Iterator[Finding]:
    """Yield the problems of a server."""
    if report.pooler:
        yield Finding(
            f"Between this machine and {report.server} is a connection pooler, with which no gateway starts.",
            "Name the PostgreSQL server itself in store.url.",
        )
    if not report.standbys:
        yield Finding(
            "The database has no synchronous standby: if its machine is lost, acknowledged messages are lost with it.",
            "Set up streaming replication, and `synchronous_standby_names` on the server.",
        )
    for setting, on in (("fsync", report.fsync), ("full_page_writes", report.full_page_writes)):
        if not on:
            yield Finding(
                f"The server runs with {setting} = off: a power failure loses or damages acknowledged messages.",
                f"Set {setting} = on in postgresql.conf.",
            )
    if report.commit_ms > SLOW_MS:
        yield Finding(
            f"A commit takes {report.commit_ms:.0f} ms, and every message waits for one.",
            "Look for a slow disk of the server or of its standby, or a slow network between them.",
            level="note",
        )
    if abs(report.clock_ms) > CLOCK_MS:
        yield Finding(
            f"The clocks of this machine and of the database differ by {abs(report.clock_ms) / 1000:.0f} s.",
            "Synchronize both with NTP; nothing is ordered by them, but times in logs mislead.",
            level="note",
        )
    if report.tables > report.newest:
        yield Finding(
            f"The tables have version {report.tables}, but this program knows only {report.newest}.",
            "Install the version of Exuvia that wrote them.",
        )
