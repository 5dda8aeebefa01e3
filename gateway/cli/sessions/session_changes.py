"""`exuvia sessions title|archive|delete|fork`, which change conversations.

A running gateway is asked, as the person whose conversation it is; otherwise the files are changed. Each command prints and
returns an exit code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import aiohttp
import msgspec

from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.protocol.client_frames import Deleted, Forked, GatewayFrame, Refusal, Settings
from gateway.protocol.frames import KEY_RULE, TITLE_CHARACTERS, Key
from gateway.support import instance_address
from gateway.support.errors import GatewayError
from gateway.support.home import Home
from gateway.support.printable import one_line
from gateway.support.session_status import count_of
from gateway.support.storage import fact_logs, remove_from_catalog, session_logs
from gateway.support.stored_sessions import SessionListing, SessionUnknown, find_session, session_listings
from gateway.terminal.client.connection import Connection, NotConnected
from gateway.terminal.client.local_gateway import find_gateway
from gateway.wiring.retention import KeptConversation, due_conversations
from plugins.support.workspace import OWNER
from sessions.events.errors import HomeLocked, SessionsError
from sessions.events.events import Event, SessionArchived, SessionTitled
from sessions.files.home_lock import HomeLock
from sessions.state.reducer import evolve
from sessions.state.transcript import PINNED, Transcript
from sessions.store.fork import Fork, ForkRefused, fork, fork_key
from sessions.store.header import new_session_id
from sessions.store.lazy_log import LazyLog
from sessions.store.reading import StoredLog
from sessions.store.recorder import Recorder, open_session

PATIENCE = 600.0
"""Seconds to wait for the gateway: the deletion of a long conversation takes a while."""

T = TypeVar("T")


class ChangeRefused(GatewayError):
    """The running gateway refused a change."""


def set_title(call: Invocation, key: str, title: str, *, person: str) -> int:
    """Set the title of a conversation; an empty one removes it.

    Raises HomeLocked, SessionUnknown, ChangeRefused, SessionsError, ClientError.
    """
    title = one_line(title, TITLE_CHARACTERS)
    event = SessionTitled(title=title, by=person)
    _change(
        call,
        lambda: _append(call.home, _sessions_of(call.home, key, person)[-1], event),
        lambda: _ask(call, person, "rename", Settings, session=key, title=title),
    )
    call.out.write(f"The title of {key} is {title!r}.\n" if title else f"{key} has no title.\n")
    return SUCCESS


def archive_conversation(call: Invocation, key: str, *, person: str, archived: bool) -> int:
    """Archive a conversation, or bring it back. Errors as for `set_title`."""
    event = SessionArchived(archived=archived, by=person)
    _change(
        call,
        lambda: _append(call.home, _sessions_of(call.home, key, person)[-1], event),
        lambda: _ask(call, person, "archive", Settings, session=key, archived=archived),
    )
    call.out.write(f"{key} is {'archived' if archived else 'in the list again'}.\n")
    return SUCCESS


def delete_conversation(call: Invocation, key: str, *, person: str, facts: bool) -> int:
    """Delete a conversation. If no gateway runs, the journals and what the catalog has of them are removed, and the next
    start removes the rest. Errors as for `set_title`."""

    async def of_files() -> Deleted | int:
        sessions = _sessions_of(call.home, key, person)
        await delete_sessions(call.home, sessions, person, facts=facts)
        return len(sessions)

    deleted = _change(call, of_files, lambda: _ask(call, person, "delete", Deleted, session=key, facts=facts))
    number = deleted.removed.sessions if isinstance(deleted, Deleted) else deleted
    done = f"{key} is deleted, {count_of(number, 'session')}."
    if isinstance(deleted, Deleted):
        remains = [f"- {one_line(sentence, 500)}" for sentence in deleted.remains]
        call.out.write("\n".join([done, *(["This remains:"] if remains else []), *remains]) + "\n")
    else:
        call.out.write(f"{done} The next start of the gateway removes what was derived from it.\n")
    return SUCCESS


def show_retention(call: Invocation) -> int:
    """Print the conversations that the rules would archive or delete now. Raises ConfigRefused, SessionsError."""
    logs = session_logs(call.home)
    newest = {(each.person, each.key): each for each in session_listings(logs) if each.readable}
    kept = [_kept(StoredLog(logs, each.session), each) for each in newest.values()]
    due = due_conversations(call.config().retention.rules, kept, datetime.now(UTC))
    if call.as_json:
        print_json(due, call.out)
    else:
        lines = [
            f"{each.action:<8}{one_line(each.key, 64)} of {one_line(each.person, 64)}, last used {each.used}" for each in due
        ]
        call.out.write("\n".join(lines or ["No conversation is due."]) + "\n")
    return SUCCESS


def _kept(log: StoredLog, listing: SessionListing) -> KeptConversation:
    """Return what a rule needs to know of a conversation, from the log of its newest session."""
    transcript = Transcript()
    with suppress(SessionsError):
        for event in log.events():
            transcript = msgspec.structs.replace(evolve(transcript, event), stale=None)
    return KeptConversation(
        person=listing.person,
        key=listing.key,
        used=transcript.used or listing.at,
        pinned=PINNED in transcript.settings,
        archived=transcript.archived,
    )


def fork_session(call: Invocation, name: str, *, at: int | None, key: str | None) -> int:
    """Fork a session at an event, by default after its last complete turn, under a new key, by default one derived from
    the session's. Raises ForkRefused, and the errors of `set_title`."""

    def parent() -> tuple[SessionListing, set[str]]:
        logs = session_logs(call.home)
        session, sessions = find_session(logs, name).session, session_listings(logs)
        found = next(listing for listing in sessions if listing.session == session)
        if not found.readable:
            raise ForkRefused(f"{session} cannot be read; see `exuvia sessions verify`.")
        return found, {listing.key for listing in sessions if listing.person == found.person}

    async def in_files() -> Fork:
        found, used = parent()
        return await _fork(call.home, found.session, _fork_key(found.key, key, used), at)

    async def in_gateway() -> Fork:
        found, used = parent()
        wanted = None if key is None else _fork_key(found.key, key, used)
        asked = {"session_id": found.session, "upto": at, "key": wanted}
        forked = await _ask(call, found.person, "fork", Forked, session=found.key, **asked)
        return Fork(session=forked.session_id, key=forked.session, parent=forked.parent, parent_seq=forked.parent_seq)

    created = _change(call, in_files, in_gateway)
    if call.as_json:
        print_json(created, call.out)
    else:
        call.out.write(f"{created.key} ({created.session}) continues from event {created.parent_seq} of {created.parent}.\n")
    return SUCCESS


def _change(
    call: Invocation, in_files: Callable[[], Coroutine[Any, Any, T]], in_gateway: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """Make a change in the files if no gateway uses them, else in the running one."""
    try:
        with HomeLock(call.home.lock):
            return asyncio.run(in_files())
    except HomeLocked:
        if instance_address.running_instance(call.home.address) is None:  # something else holds it, or it is starting
            raise
    return asyncio.run(in_gateway())


# --- the running gateway ----------------------------------------------------------------------------------------------


async def _ask(call: Invocation, person: str, kind: str, answer: type[T], *, session: str, **fields: Any) -> T:
    """Send a frame to the running gateway and return its answer.

    Raises:
        SessionUnknown: The person has no such conversation.
        ChangeRefused: The gateway refuses.
        ClientError: The gateway does not answer.
    """
    endpoint = find_gateway(call.home, call.environment, url=None, token=person_token(call, person))
    async with aiohttp.ClientSession() as http:
        connection = await Connection.open(http, endpoint.url, endpoint.token, "exuvia sessions")
        try:
            connection.send(kind, id=kind, session=session, **fields)
            async with asyncio.timeout(PATIENCE):
                found = await _answer_to(kind, connection)
        except TimeoutError:
            raise NotConnected("The gateway has not answered; `exuvia sessions list` shows whether it was done.") from None
        finally:
            await connection.close()
    if isinstance(found, Refusal) and found.code == "unknown_session":
        raise _unknown(session, person)
    if isinstance(found, Refusal):
        raise ChangeRefused(found.message)
    assert isinstance(found, answer), found
    return found


async def _answer_to(frame_id: str, connection: Connection) -> GatewayFrame:
    async for frame in connection.listen():
        if isinstance(frame, Settings | Deleted | Forked | Refusal) and frame.id == frame_id:
            return frame
    raise NotConnected("The gateway ended the connection; `exuvia sessions list` shows whether it was done.")


def person_token(call: Invocation, person: str) -> str | None:
    """Return the token in the configuration that belongs to a person; None for the owner, whose token `find_gateway`
    finds. Raises SessionUnknown if the person may not use the gateway."""
    if person == OWNER:
        return None
    known = call.config().people.get(person)
    if known is None or known.token is None:
        raise SessionUnknown(f"{person} is not in [people], so the running gateway cannot be asked; stop it first.")
    return known.token.reveal()


# --- the files --------------------------------------------------------------------------------------------------------


async def _append(home: Home, session: str, event: Event) -> None:
    from gateway.wiring.open_stores import open_catalog, open_log_stores  # noqa: PLC0415 - the writers, for files only

    async with open_log_stores(home) as stores, open_catalog(home, stores.sessions) as catalog:
        opened = await open_session(stores.sessions, catalog, session)
        recorder = Recorder(opened.log, opened.position, opened.transcript, lambda: datetime.now(UTC))
        try:
            await recorder.append_durable(event)
        finally:
            await recorder.close()


async def delete_sessions(home: Home, sessions: Sequence[str], person: str, *, facts: bool) -> None:
    """Delete sessions of a home that this process has locked; the next start removes what was derived from them."""
    from gateway.conversations.deletion.deletion_log import DELETIONS, finish_removals  # noqa: PLC0415 - as above
    from gateway.conversations.deletion.journal_findings import planned_deletion  # noqa: PLC0415
    from gateway.wiring.open_stores import open_log_stores  # noqa: PLC0415

    async with open_log_stores(home) as stores:
        event, _ = planned_deletion(stores.sessions, sessions, person=person, by=person, facts=facts)
        log = LazyLog(DELETIONS, stores.facts, lambda: datetime.now(UTC), unusable="No conversation can be deleted")
        async with log.writing() as writer:
            await writer.append_durable(event)
        await log.close()
        await finish_removals(fact_logs(home), stores.sessions, partial(remove_from_catalog, home))


def _sessions_of(home: Home, key: str, person: str) -> list[str]:
    """Return the ids of a person's sessions with a key, oldest first. Raises SessionUnknown."""
    listings = [each for each in session_listings(session_logs(home)) if (each.key, each.person) == (key, person)]
    if not listings:
        raise _unknown(key, person)
    return [each.session for each in sorted(listings, key=lambda each: (each.opened, each.session))]


def _unknown(key: str, person: str) -> SessionUnknown:
    return SessionUnknown(f"{person} has no conversation {key!r}; `exuvia sessions list` lists all sessions.")


async def _fork(home: Home, session: str, key: str, at: int | None) -> Fork:
    from gateway.wiring.open_stores import open_log_stores  # noqa: PLC0415 - the writers, for files only

    now = datetime.now(UTC)
    async with open_log_stores(home) as stores:
        return await fork(stores.sessions, session, new_session_id(now), key, now, at=at)


def _fork_key(key: str, wanted: str | None, used: set[str]) -> str:
    if wanted is None:
        return fork_key(key, used)
    try:
        name = msgspec.convert(wanted, Key)
    except msgspec.ValidationError:
        raise ForkRefused(f"{wanted!r} is not a valid key; a key is {KEY_RULE}.") from None
    if name in used:
        raise ForkRefused(f"A session {name!r} exists already; choose another key.")
    return name
