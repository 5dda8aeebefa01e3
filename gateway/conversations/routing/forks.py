"""Creating forks and choosing their keys."""

from __future__ import annotations

import asyncio
from datetime import datetime

from plugins.api.context import Clock
from sessions.events.events import MAIN_AGENT
from sessions.state.transcript import ForkOrigin
from sessions.store.catalog import Catalog, Name, SessionRow
from sessions.store.fork import Fork, ForkRefused, fork, fork_key
from sessions.store.header import new_session_id
from sessions.store.log_writer import stamp
from sessions.store.protocols import Store


class Forks:
    """Creates forks, one at a time, and adds them to the catalog. The caller holds the lock of the fork's key."""

    def __init__(self, catalog: Catalog, store: Store, clock: Clock) -> None:
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._one = asyncio.Lock()

    @property
    def paused(self) -> asyncio.Lock:
        """While it is held, no fork is made: its parent may be rewritten."""
        return self._one

    async def name(self, person: str, parent: str, wanted: str | None) -> Name:
        """Return the name of a fork: the wanted key, or one derived from the parent's.

        Raises ForkRefused if the person has no session `parent`, or the key is in use.
        """
        row = await self._catalog.find(parent)
        if row is None or row.person != person:
            raise ForkRefused(f"There is no session {parent}.")
        used = {each.key for each in await self._catalog.sessions(person)}
        if wanted in used:
            raise ForkRefused(f"A session {wanted!r} exists already; choose another key.")
        return person, wanted or fork_key(row.key, used)

    async def make(self, name: Name, parent: str, upto: int | None) -> Fork:
        """Copy a session into a new one, up to the last turn boundary at or before the event `upto`, by default
        the last event.

        The name must not be in use. Raises ForkRefused, StorageFailed, JournalDamaged.
        """
        now = self._clock.now()
        made = await self.copy(parent, new_session_id(now), name[1], now=now, at=upto, exactly=False)
        self._catalog.put(_row(name, made, now, await self._catalog.find(parent)))
        return made

    async def copy(
        self, parent: str, session: str, key: str, *, now: datetime, at: int | None, exactly: bool = True
    ) -> Fork:
        """Copy a session up to an event into a new one with these names, which the caller adds to the catalog. Arguments and
        errors as for `sessions.store.fork.fork`."""
        async with self._one:
            return await fork(self._store, parent, session, key, now, at=at, exactly=exactly)


def _row(name: Name, made: Fork, now: datetime, parent: SessionRow | None) -> SessionRow:
    """Return the catalog row of a new fork, without reading its log."""
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
        title=parent.title if parent else "",
        beginning=parent.beginning if parent else "",
        agent=parent.agent if parent else MAIN_AGENT,
        origin=ForkOrigin(session=made.parent, seq=made.parent_seq),
    )
