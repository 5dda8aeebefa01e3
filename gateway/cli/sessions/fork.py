"""`exuvia sessions fork`: a new session that continues from an earlier event of another one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from gateway.cli.sessions.session_commands import WELL, print_json
from gateway.journals.session_lookup import SessionListing, find_session, session_listings
from gateway.protocol.frames import KEY_RULE, Key
from gateway.support.home import Home
from gateway.support.storage import session_logs
from gateway.wiring.open_stores import open_log_stores
from sessions.files.home_lock import HomeLock
from sessions.store.fork import Fork, ForkRefused, fork, fork_key
from sessions.store.header import new_session_id


def fork_session(home: Home, name: str, out: TextIO, *, at: int | None, key: str | None, as_json: bool) -> int:
    """Fork a session at an event, by default after its last complete turn, under a new key.

    The default key is derived from the session's. Raises HomeLocked (a gateway runs on the home), SessionUnknown,
    ForkRefused, StorageFailed, JournalDamaged.
    """
    with HomeLock(home.lock):
        logs = session_logs(home)
        session, sessions = find_session(logs, name).session, session_listings(logs)
        parent = next(listing for listing in sessions if listing.session == session)
        if not parent.readable:
            raise ForkRefused(f"{session} cannot be read; see `exuvia sessions verify`.")
        used = {listing.key for listing in sessions if listing.person == parent.person}
        made = asyncio.run(_fork(home, session, _key(parent, key, used), at))
    if as_json:
        print_json(made, out)
    else:
        out.write(f"{made.key} ({made.session}) continues from event {made.parent_seq} of {made.parent}.\n")
    return WELL


async def _fork(home: Home, session: str, key: str, at: int | None) -> Fork:
    now = datetime.now(UTC)
    async with open_log_stores(home) as stores:
        return await fork(stores.sessions, session, new_session_id(now), key, now, at=at)


def _key(parent: SessionListing, wanted: str | None, used: set[str]) -> str:
    if wanted is None:
        return fork_key(parent.key, used)
    try:
        key = msgspec.convert(wanted, Key)
    except msgspec.ValidationError:
        raise ForkRefused(f"{wanted!r} is not a valid key; a key is {KEY_RULE}.") from None
    if key in used:
        raise ForkRefused(f"A session {key!r} exists already; choose another key.")
    return key
