"""Forks, made while the gateway runs: a session beside another, which goes on from a past moment of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plugins.contracts import Clock
from sessions.beginnings import new_session_id
from sessions.catalog import Catalog
from sessions.forking import CannotFork, Fork, fork, fork_key
from sessions.journal import Journals
from sessions.lineage import Name, SessionRow
from sessions.survey import read_row


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
            made = await asyncio.to_thread(self._make, name, parent, upto)
            self._catalog.put(await asyncio.to_thread(_row, self._journals.path(made.session)))
            return made

    def _make(self, name: Name, parent: str, upto: int | None) -> Fork:
        now = self._clock.now()
        path = self._journals.path(parent)
        return fork(path, new_session_id(now), name[1], now, at=upto, exactly=False)


def _row(path: Path) -> SessionRow:
    return read_row(path, path.stat())
