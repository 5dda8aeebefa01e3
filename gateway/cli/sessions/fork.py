"""`exuvia sessions fork`: a new session that continues from an earlier event of another one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import msgspec

from gateway.cli.sessions.session_commands import WELL, print_json
from gateway.journals.session_files import SessionListing, find_journal, session_listings
from gateway.protocol.frames import KEY_RULE, Key
from gateway.support.home import Home
from sessions.files.fork import ForkRefused, fork, fork_key
from sessions.files.header import new_session_id
from sessions.files.home_lock import HomeLock


def fork_session(folder: Path, name: str, out: TextIO, *, at: int | None, key: str | None, as_json: bool) -> int:
    """Fork a session at an event, by default after its last complete turn, under a new key.

    The default key is derived from the session's. Raises HomeLocked (a gateway runs on the home), SessionUnknown,
    ForkRefused, StorageFailed, JournalDamaged.
    """
    with HomeLock(Home(folder.parent).lock):
        path, sessions = find_journal(folder, name), session_listings(folder)
        parent = next(listing for listing in sessions if listing.session == path.stem)
        if not parent.readable:
            raise ForkRefused(f"{path.stem} cannot be read; see `exuvia sessions verify`.")
        used = {listing.key for listing in sessions if listing.person == parent.person}
        now = datetime.now(UTC)
        made = fork(path, new_session_id(now), _key(parent, key, used), now, at=at)
    if as_json:
        print_json(made, out)
    else:
        out.write(f"{made.key} ({made.session}) continues from event {made.parent_seq} of {made.parent}.\n")
    return WELL


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
