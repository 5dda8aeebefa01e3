"""`exuvia sessions fork`: a session that goes on from a past moment of another, under a key of its own."""

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
    """Fork a session at an event, by default the last between turns, under a key that its person does not use, by default
    one made of its own. No gateway may run on the home meanwhile. Raises HomeLocked, SessionUnknown, CannotFork,
    StorageFailed, JournalDamaged."""
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
        out.write(f"{made.key} ({made.session}) goes on from event {made.parent_seq} of {made.parent}.\n")
    return WELL


def _key(parent: SessionListing, wanted: str | None, used: set[str]) -> str:
    if wanted is None:
        return fork_key(parent.key, used)
    try:
        key = msgspec.convert(wanted, Key)
    except msgspec.ValidationError:
        raise ForkRefused(f"{wanted!r} is no key; one is {KEY_RULE}.") from None
    if key in used:
        raise ForkRefused(f"There is a session {key!r} already; a fork needs a key of its own.")
    return key
