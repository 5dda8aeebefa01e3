"""`exuvia erase`: the running gateway is asked; if none runs, the files are changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from gateway.backup.known_backups import note_in_backups
from gateway.cli.channels import ask
from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.cli.sessions.session_changes import PATIENCE, delete_sessions
from gateway.conversations.deletion.deletions import UNKNOWN_COPIES
from gateway.conversations.erasure.erasure_plan import Chosen
from gateway.conversations.erasure.erasures import Erased, combined
from gateway.support import instance_address, logs
from gateway.support.printable import one_line
from gateway.support.storage import session_logs
from gateway.support.stored_sessions import SessionUnknown, find_session, session_listings
from sessions.events.errors import HomeLocked
from sessions.files.home_lock import HomeLock

OF_PERSONS = "What the person wrote without a conversation: notes, imported facts, schedules, addresses on channels."
"""What `erase person` leaves."""


def erase_message(call: Invocation, name: str, seq: int, *, person: str) -> int:
    """Erase a message of a session, which is named by its id or key. Raises SessionUnknown, SessionsError, OSError, and the
    errors of `ask`."""
    session = find_session(session_logs(call.home), name, person).session
    wanted = {"session": session, "message": seq, "person": person}
    erased = _changed(call, wanted, [(session, Chosen(messages=frozenset({seq})))], delete=False)
    return _report(call, erased, f"Message {seq} of {session} is erased")


def erase_session(call: Invocation, key: str, *, person: str) -> int:
    """Erase all sessions of a key, and delete the conversation. Errors as for `erase_message`."""
    return _report(call, _conversation_erased(call, key, person), f"The conversation {key} is erased")


def erase_person(call: Invocation, person: str) -> int:
    """Erase all conversations of a person, one after the other. Errors as for `erase_message`."""
    keys = sorted({each.key for each in session_listings(session_logs(call.home)) if each.person == person})
    if not keys:
        raise SessionUnknown(f"{person} has no conversations; `exuvia sessions list` lists all sessions.")
    receipts = [_conversation_erased(call, key, person) for key in keys]
    erased = combined(receipts, [*(each for receipt in receipts for each in receipt.remains), OF_PERSONS])
    return _report(call, erased, f"{len(keys)} conversations of {person} are erased")


def _conversation_erased(call: Invocation, key: str, person: str) -> Erased:
    listings = [each for each in session_listings(session_logs(call.home)) if (each.key, each.person) == (key, person)]
    if not listings:
        raise SessionUnknown(f"{person} has no conversation {key!r}; `exuvia sessions list` lists all sessions.")
    parts = [(each.session, Chosen(upto=each.events)) for each in listings]
    return _changed(call, {"session": key, "person": person}, parts, delete=True)


def _changed(call: Invocation, wanted: dict[str, object], parts: Sequence[tuple[str, Chosen]], *, delete: bool) -> Erased:
    """Erase in the files if no gateway uses them, else in the running one."""
    try:
        with HomeLock(call.home.lock):
            return asyncio.run(_erase(call, str(wanted["person"]), parts, delete=delete))
    except HomeLocked:
        if instance_address.running_instance(call.home.address) is None:
            raise
    return ask(call, "POST", "/api/erasures", Erased, msgspec.json.encode(wanted), patience=PATIENCE)


async def _erase(call: Invocation, person: str, parts: Sequence[tuple[str, Chosen]], *, delete: bool) -> Erased:
    from gateway.wiring.offline_erasure import open_erasures  # noqa: PLC0415 - the writers, for files only

    home, config = call.home, call.config()
    logs.configure("error", "auto")  # the receipt says what was done
    async with open_erasures(home, [home.workspace(config.agent.workspace)]) as erasures:
        receipts = [await erasures.erase(person, session, chosen, person) for session, chosen in parts]
    if delete:
        await delete_sessions(home, [session for session, _ in parts], person, facts=True)
    remains = [sentence for each in receipts for sentence in each.remains]
    return combined(receipts, [*remains, *note_in_backups(home), UNKNOWN_COPIES])


def _report(call: Invocation, erased: Erased, done: str) -> int:
    if call.as_json:
        print_json(erased, call.out)
        return SUCCESS
    notes = f", notes: {', '.join(erased.notes)}" if erased.notes else ""
    lines = [
        f"{done}: {erased.events} events of {erased.sessions} sessions lost their content;"
        f" {erased.facts} facts and {erased.attachments} files are removed{notes}.",
        *(["This remains:"] if erased.remains else []),
        *(f"- {one_line(sentence, 500)}" for sentence in erased.remains),
    ]
    call.out.write("\n".join(lines) + "\n")
    return SUCCESS
