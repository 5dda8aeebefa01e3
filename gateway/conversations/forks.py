"""Forks, made while the gateway runs: a session beside another, which goes on from a past moment of it."""

from __future__ import annotations

import asyncio
from datetime import datetime

from plugins.contracts import Clock
from sessions.beginnings import new_session_id
from sessions.catalog import Catalog
from sessions.forking import CannotFork, Fork, fork, fork_key
from sessions.journal import Journals
from sessions.lineage import Name, SessionRow
from sessions.recorder import stamp


class Forks:
    """Makes them, one at a time, and tells the catalog. The caller holds the lock of the key that a fork gets."""

    def __init__(self, catalog: Catalog, journals: Journals, clock: Clock) -> None:
        self._catalog = catalog
        self._journals = journals
        self._clock = clock
        self._one = asyncio.Lock()

    def name(self, person: str, parent: str, wanted: str | None) -> Name:
        """Choose the name of a fork: the key that is wanted, or one made of the parent's. Raises CannotFork where the
        person has no session `parent`, or uses the key already."""
        row = self._catalog.row(parent)
        if row is None or row.person != person:
            raise CannotFork(f"There is no session {parent}.")
        used = {each.key for each in self._catalog.sessions(person)}
        if wanted in used:
            raise CannotFork(f"There is a session {wanted!r} already; a fork needs a key of its own.")
        return person, wanted or fork_key(row.key, used)

    async def make(self, name: Name, parent: str, upto: int | None) -> Fork:
        """Copy a session, up to the last place between turns at or before the event `upto` (by default its end), into one
        under a name that is not used. Raises CannotFork, StorageFailed, JournalDamaged."""
        async with self._one:
            now = self._clock.now()
            path = self._journals.path(parent)
            made = await asyncio.to_thread(fork, path, new_session_id(now), name[1], now, at=upto, exactly=False)
            self._catalog.put(_row(name, made, now))
            return made


def _row(name: Name, made: Fork, now: datetime) -> SessionRow:
    """Return what is known of a fork that nobody has opened. It is not read for that: it is there, and must be known."""
    person, key = name
    at = stamp(now)
    return SessionRow(
        session=made.session,
        key=key,
        person=person,
        opened_at=at,
        succeeds=None,
        head=made.parent_seq + 1,
        at=at,
        size=0,
        mtime_ns=0,
        settled=False,
        closed=False,
    )
