"""`exuvia sessions export --bundle` and `exuvia sessions import`. Each command prints and returns an exit code."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gateway.backup.bundle import opened_bundle, write_bundle
from gateway.cli.options import PROBLEM, SUCCESS, Invocation, print_json
from gateway.cli.sessions.store_commands import copied_log
from gateway.support.home import Home
from gateway.support.printable import one_line
from gateway.support.session_status import count_of
from gateway.support.storage import attachments_of, journals_in, session_logs
from gateway.support.stored_sessions import SessionUnknown, find_session, session_listings
from gateway.wiring.open_stores import LogStores, open_log_stores
from plugins.support.workspace import OWNER
from sessions.attachments.attachment_refs import references_in
from sessions.events.errors import SessionsError
from sessions.files.home_lock import HomeLock
from sessions.store.header import read_header
from sessions.store.protocols import LogReader
from sessions.store.reading import StoredLog


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a bundle: its number of events, and how many of them are new here; or why it was refused."""

    session: str
    events: int = 0
    new: int = 0
    fault: str = ""


def export_bundle(call: Invocation, name: str | None, place: Path, *, person: str | None, key: Path | None) -> int:
    """Write a bundle of one session, or of all sessions of a person. Raises SessionUnknown, SessionsError, BackupRefused,
    OSError."""
    logs = session_logs(call.home)
    whose = person or OWNER
    if name is not None:
        chosen = [find_session(logs, name, person)]
    else:
        chosen = [StoredLog(logs, each.session) for each in session_listings(logs) if each.person == whose]
    if not chosen:
        raise SessionUnknown(f"{whose} has no sessions.")
    done = write_bundle(call.home, chosen, place, datetime.now(UTC), key)
    if call.as_json:
        print_json(done, call.out)
        return SUCCESS
    missing = f" Missing in the home, and in it: {count_of(len(done.missing), 'attachment')}." if done.missing else ""
    signed = (
        f"signed with {one_line(done.signer, 200)}" if done.signer else "not signed, because ssh-keygen is not installed"
    )
    call.out.write(
        f"{done.place} has {count_of(done.sessions, 'session')} and {count_of(done.attachments, 'attachment')},"
        f" {signed}.{missing}\n"
        f"It verifies itself: tar xf {done.place} verify.py && python3 verify.py {done.place}\n"
    )
    return SUCCESS


def import_bundle(call: Invocation, place: Path) -> int:
    """Import the sessions of a bundle. Raises HomeLocked, BackupRefused, SessionsError, OSError."""
    files = opened_bundle(place)
    with HomeLock(call.home.lock), tempfile.TemporaryDirectory(dir=call.home.root, prefix=".importing-") as folder:
        origin = Path(folder)
        for name, content in files.items():
            (origin / name).parent.mkdir(exist_ok=True)
            (origin / name).write_bytes(content)
        sessions = sorted(path.stem for path in (origin / "sessions").glob("*.jsonl"))
        imported = asyncio.run(_import(call.home, origin, sessions))
    refused = [each for each in imported if each.fault]
    if call.as_json:
        print_json(imported, call.out)
    else:
        call.out.writelines(f"{one_line(each.session, 64)}: {one_line(each.fault, 500)}\n" for each in refused)
        new = sum(each.new > 0 for each in imported)
        call.out.write(f"Imported: {count_of(new, 'session')}. Already here: {len(imported) - new - len(refused)}.\n")
    return PROBLEM if refused else SUCCESS


async def _import(home: Home, folder: Path, sessions: Iterable[str]) -> list[Imported]:
    source = journals_in(folder / "sessions")
    async with open_log_stores(home) as stores:
        return [await _imported(home, stores, folder, source, session) for session in sessions]


async def _imported(home: Home, stores: LogStores, folder: Path, source: LogReader, session: str) -> Imported:
    """Import a session: first what it names, then its lines."""
    wanted = await asyncio.to_thread(StoredLog(source, session).verify)
    if await asyncio.to_thread(stores.sessions.stamp, session) is not None:
        try:
            here = await asyncio.to_thread(StoredLog(stores.sessions, session).verify)
        except SessionsError as error:
            return Imported(session=session, fault=str(error))
        if here.last != wanted.last:
            return Imported(session=session, fault="the home has a session with this id and other bytes, which is kept")
        return Imported(session=session, events=here.events)
    blobs = attachments_of(home)
    with source.read(session) as lines:
        person, references = read_header(lines).person, list(references_in(lines))
    for reference in references:
        file, about = folder / "attachments" / reference.attachment.sha256, reference.attachment
        if file.is_file():
            kept = await blobs.store(file.read_bytes(), person, claimed=about.media, name=about.name)
            await blobs.settle(person, (kept,))
    copied = await copied_log("sessions", session, source, stores.sessions)
    return Imported(session=session, events=copied.events, new=copied.new, fault=copied.fault)
