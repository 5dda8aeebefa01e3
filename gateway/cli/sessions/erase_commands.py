"""`exuvia erase`: the running gateway is asked; if none runs, the files are changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from gateway.backup.known_backups import note_in_backups
from gateway.cli.channels import ask
from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.cli.sessions.session_changes import PATIENCE, delete_sessions
from gateway.conversations.deletion.deletions import UNKNOWN_COPIES
from gateway.conversations.erasure.erasure_plan import Chosen
from gateway.conversations.erasure.erasures import Erased, combined, order_of_person
from gateway.support import instance_address, logs
from gateway.support.printable import one_line
from gateway.support.session_status import count_of
from gateway.support.storage import session_logs
from gateway.support.stored_sessions import SessionUnknown, find_session, session_listings
from plugins.support.workspace import OWNER
from sessions.events.errors import HomeLocked
from sessions.files.home_lock import HomeLock

if TYPE_CHECKING:
    from gateway.wiring.offline_erasure import OfflineErasures

OF_PERSONS = (
    "What others said to or about the person, and messages of theirs in conversations of others, such as groups.",
    "The order with their id in `deletions.jsonl`, so that a restored backup has nothing of them either.",
    "What `config.toml` has of them, such as `[people.NAME]`, budgets and addresses: remove it there.",
)
"""What `erase person` leaves."""


def erase_message(call: Invocation, name: str, seq: int, *, person: str) -> int:
    """Erase a message of a session, which is named by its id or key. Raises SessionUnknown, SessionsError, OSError, and the
    errors of `ask`."""
    session = find_session(session_logs(call.home), name, person).session
    wanted = {"session": session, "message": seq, "person": person}
    chosen = {session: Chosen(messages=frozenset({seq}))}
    erased = _changed(call, wanted, partial(_erase, call, person, chosen, delete=False))
    return _report(call, erased, f"Message {seq} of {session} is erased")


def erase_session(call: Invocation, key: str, *, person: str) -> int:
    """Erase all sessions of a key, and delete the conversation. Errors as for `erase_message`."""
    return _report(call, _conversation_erased(call, key, person), f"The conversation {key} is erased")


def erase_person(call: Invocation, person: str) -> int:
    """Erase all conversations of a person, and what they have left elsewhere. Errors as for `erase_message`."""
    erased = _changed(call, {"person": person}, partial(_erase_person, call, person))
    erased = msgspec.structs.replace(erased, remains=(*erased.remains, *OF_PERSONS, *_own_notes(person)))
    found = erased.sessions or erased.logs or erased.facts or erased.attachments or erased.notes
    return _report(call, erased, f"Everything of {person} is erased" if found else f"Nothing of {person} was found")


def _own_notes(person: str) -> tuple[str, ...]:
    return ("Notes and files of the workspace that the owner wrote.",) if person == OWNER else ()


def _conversation_erased(call: Invocation, key: str, person: str) -> Erased:
    listings = [each for each in session_listings(session_logs(call.home)) if (each.key, each.person) == (key, person)]
    if not listings:
        raise SessionUnknown(f"{person} has no conversation {key!r}; `exuvia sessions list` lists all sessions.")
    chosen = {each.session: Chosen(upto=each.events) for each in listings}
    return _changed(call, {"session": key, "person": person}, partial(_erase, call, person, chosen, delete=True))


def _changed(call: Invocation, wanted: dict[str, object], offline: Callable[[], Coroutine[None, None, Erased]]) -> Erased:
    """Erase in the files if no gateway uses them, else in the running one."""
    try:
        with HomeLock(call.home.lock):
            logs.configure("error", "auto")  # the receipt says what was done
            return asyncio.run(offline())
    except HomeLocked:
        if instance_address.running_instance(call.home.address) is None:
            raise
    return ask(call, "POST", "/api/erasures", Erased, msgspec.json.encode(wanted), patience=PATIENCE)


async def _erase(call: Invocation, person: str, chosen: Mapping[str, Chosen], *, delete: bool) -> Erased:
    async with _erasures(call) as erasures:
        erased = await erasures.erase(person, chosen, person)
    if delete:
        await delete_sessions(call.home, list(chosen), person, facts=True)
    return combined([erased], [*erased.remains, *note_in_backups(call.home), UNKNOWN_COPIES])


async def _erase_person(call: Invocation, person: str) -> Erased:
    order = order_of_person(person, OWNER)
    async with _erasures(call) as erasures:
        receipts = [await erasures.begin_person(order)]
    listings = [each for each in session_listings(session_logs(call.home)) if each.person == person]
    if listings:
        chosen = {each.session: Chosen(upto=each.events) for each in listings}
        receipts.append(await _erase(call, person, chosen, delete=True))
    async with _erasures(call) as erasures:
        receipts.append(await erasures.finish_person(order))
    remains = [sentence for each in receipts for sentence in each.remains]
    return combined(receipts, [*remains, *note_in_backups(call.home), UNKNOWN_COPIES])


def _erasures(call: Invocation) -> AbstractAsyncContextManager[OfflineErasures]:
    from gateway.wiring.offline_erasure import open_erasures  # noqa: PLC0415 - the writers, for files only

    config = call.config()
    named = [config.agent.workspace, *(keys.workspace for keys in config.agents.values())]
    return open_erasures(call.home, call.home.workspaces(named))


def _report(call: Invocation, erased: Erased, done: str) -> int:
    if call.as_json:
        print_json(erased, call.out)
        return SUCCESS
    notes = f", notes: {', '.join(erased.notes)}" if erased.notes else ""
    entries = f" Entries were removed from {', '.join(erased.logs)}." if erased.logs else ""
    lines = [
        f"{done}: {count_of(erased.events, 'event')} of {count_of(erased.sessions, 'session')} lost their content;"
        f" {count_of(erased.facts, 'fact')} and {count_of(erased.attachments, 'file')} are removed{notes}.{entries}",
        *(["This remains:"] if erased.remains else []),
        *(f"- {one_line(sentence, 500)}" for sentence in erased.remains),
    ]
    call.out.write("\n".join(lines) + "\n")
    return SUCCESS
