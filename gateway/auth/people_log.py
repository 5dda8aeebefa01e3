"""The people who were added while the gateway ran: the log `HOME/people.jsonl`, which is also the record of who did what.

It has the line format of all logs (see docs/events.md) and is created by the first person. Tokens and invitations stand in
it as SHA-256: they are random, so that the hash of one tells nothing about it. People in the configuration are not in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Literal, Self, TypeAlias

import msgspec

from gateway.config.keys import Role
from gateway.support.errors import Busy, GatewayError, sentence_of
from plugins.support.workspace import OWNER, PERSON_ID
from sessions.events.errors import SessionsError
from sessions.store.lazy_log import FRESH_SECONDS, LazyLog, LogFormat
from sessions.store.log_writer import stamp
from sessions.store.protocols import Lines, Store

INVITATION = "invitation."
"""What the secret of an invitation begins with in a link, so that it is told from the owner's one-time link."""

INVITED = timedelta(days=7)
"""The time for which an invitation is valid."""

NAME_CHARACTERS = 60
"""Maximum characters of a displayed name."""

TRAIL = 1000
"""Maximum entries of the trail that are kept in memory; the log has all."""

Act: TypeAlias = Literal["added", "invited", "joined", "token_replaced", "disabled", "enabled", "removed"]
TrailAct: TypeAlias = Act | Literal["role_changed"]


class PeopleRefused(GatewayError):
    """A change of the people is not possible."""


class PeopleUnusable(Busy):
    """The log of the people cannot be read or written."""


class PersonChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="person_changed"):
    """`by` did something about a person: `act`. `name` and `role` are set when one is added, and `name` when one joins.

    `token` is the SHA-256 of a new token, `invitation` that of an invitation, which is valid until `expires` (RFC 3339).
    """

    person: str
    act: Act
    by: str
    name: str = ""
    role: Role = "member"
    token: str = ""
    invitation: str = ""
    expires: str = ""


class PersonRoleChanged(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="person_role_changed"
):
    """`by` gave a person another role."""

    person: str
    role: Role
    by: str


PeopleEvent: TypeAlias = PersonChanged | PersonRoleChanged


class StoredPerson(msgspec.Struct, frozen=True, kw_only=True):
    """A person of the log. `token` and `invitation` are SHA-256, empty if there is none. `since` is when they were added."""

    id: str
    name: str
    role: Role
    since: str
    token: str = ""
    invitation: str = ""
    expires: str = ""
    disabled: bool = False


class TrailEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody did about a person, and when."""

    at: str
    by: str
    act: TrailAct
    person: str


class StoredPeople(msgspec.Struct, frozen=True, kw_only=True):
    """The people of the log by id, the newest entries of the trail, oldest first, and the ids of all who were removed."""

    people: Mapping[str, StoredPerson] = {}
    trail: tuple[TrailEntry, ...] = ()
    removed: frozenset[str] = frozenset()


class PeopleLog:
    """The people who were added while the gateway ran, as an async context manager.

    Args:
        store: The store of the log.
        now: Returns the current time in UTC.
    """

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self.shared = store.shared
        """True if other gateways change the people too; see `follow`."""
        self._log = LazyLog(PEOPLE, store, now, unusable="The people who were added cannot be read, and cannot sign in")
        self._now = now
        self._watchers: list[Callable[[StoredPeople], Awaitable[None]]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._log.close()

    def problems(self) -> list[str]:
        """Return the problem of the log as a sentence, if there is one."""
        return [self._log.problem] if self._log.problem else []

    def watch(self, watcher: Callable[[StoredPeople], Awaitable[None]]) -> None:
        """Await `watcher` with the people after each change, before the change is reported as done."""
        self._watchers.append(watcher)

    async def stored(self) -> StoredPeople:
        """Return the people and the trail. Raises PeopleUnusable."""
        try:
            return await self._log.durable_state()
        except SessionsError as error:
            raise PeopleUnusable(sentence_of(error)) from error

    async def rewrite(self, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        """Replace the lines of the log, see `LazyLog.rewrite`. Raises StorageFailed, JournalDamaged."""
        await self._log.rewrite(rewritten)
        await self._tell(await self.stored())

    async def follow(self) -> None:
        """Tell the watchers of changes that other gateways have made, FRESH_SECONDS later, until cancelled."""
        known = await self._stored_or(None)
        while True:
            await asyncio.sleep(FRESH_SECONDS)
            stored = await self._stored_or(known)
            if stored is not None and stored != known:
                known = stored
                await self._tell(stored)

    async def _stored_or(self, known: StoredPeople | None) -> StoredPeople | None:
        """Return the people, or `known` while the log cannot be read: its problem is reported elsewhere."""
        with contextlib.suppress(PeopleUnusable):
            return await self.stored()
        return known

    async def add(self, person: str, *, name: str, role: Role, by: str, taken: Mapping[str, object]) -> str:
        """Add a person, and return their token, which is shown once and stored as a hash.

        Raises:
            PeopleRefused: The id is not valid or taken; `taken` are those of the configuration.
            PeopleUnusable: The log cannot be used.
        """
        token = secrets.token_urlsafe(32)
        _check_new(person, name, await self.stored(), taken)  # a refusal creates no log
        added = PersonChanged(person=person, act="added", by=by, name=name, role=role, token=sha256_of(token))
        await self._change(added, lambda stored: _check_new(person, name, stored, taken))
        return token

    async def invite(self, person: str, *, name: str, role: Role, by: str, taken: Mapping[str, object]) -> str:
        """Add a person without a token, and return the secret of an invitation, which works once. Raises as `add` does."""
        secret = secrets.token_urlsafe(24)
        _check_new(person, name, await self.stored(), taken)
        expires = stamp(self._now() + INVITED)
        event = PersonChanged(
            person=person, act="invited", by=by, name=name, role=role, invitation=sha256_of(secret), expires=expires
        )
        await self._change(event, lambda stored: _check_new(person, name, stored, taken))
        return secret

    async def join(self, secret: str, name: str) -> tuple[str, str]:
        """Use an invitation up, and return the person and their new token. `name` replaces the displayed name if it is not
        empty.

        Raises:
            PeopleRefused: It is not valid, was used, or has expired.
            PeopleUnusable: The log cannot be used.
        """
        digest, now = sha256_of(secret), stamp(self._now())
        people = (await self.stored()).people.values()
        invited = next(
            (each for each in people if each.invitation == digest and each.expires > now and not each.disabled), None
        )
        if invited is None:
            raise PeopleRefused("This invitation was used before or has expired. Ask for another one.")
        _check_name(name)
        token = secrets.token_urlsafe(32)
        event = PersonChanged(person=invited.id, act="joined", by=invited.id, name=name, token=sha256_of(token))
        await self._change(event, lambda stored: _check_unused(stored, digest))
        return invited.id, token

    async def replace_token(self, person: str, by: str) -> str:
        """Give a person a new token, and return it; the old one and all cookies made with it are invalid at once. Raises as
        `disable` does."""
        await self._existing(person)
        token = secrets.token_urlsafe(32)
        await self._change(PersonChanged(person=person, act="token_replaced", by=by, token=sha256_of(token)))
        return token

    async def disable(self, person: str, by: str, *, enable: bool = False) -> None:
        """Refuse a person from now on, or admit them again.

        Raises:
            PeopleRefused: The log has no such person.
            PeopleUnusable: The log cannot be used.
        """
        await self._existing(person)
        await self._change(PersonChanged(person=person, act="enabled" if enable else "disabled", by=by))

    async def change_role(self, person: str, role: Role, by: str) -> None:
        """Give a person another role, for the tool calls from now on. Raises as `disable` does."""
        await self._existing(person)
        await self._change(PersonRoleChanged(person=person, role=role, by=by))

    async def remove(self, person: str, by: str) -> None:
        """Remove a person; their conversations remain. Raises as `disable` does."""
        await self._existing(person)
        await self._change(PersonChanged(person=person, act="removed", by=by))

    async def _existing(self, person: str) -> StoredPerson:
        found = (await self.stored()).people.get(person)
        if found is None:
            raise PeopleRefused(
                f"There is no {person[:60]!r} among the people who were added; those of the configuration are changed there."
            )
        return found

    async def _change(self, event: PeopleEvent, check: Callable[[StoredPeople], None] = lambda _: None) -> None:
        """Append an event durably, and tell the watchers. `check` raises PeopleRefused if it is not possible: it is called
        when nobody else can change the people."""
        try:
            async with self._log.writing() as writer:
                check(writer.state)
                await writer.append_durable(event)
        except SessionsError as error:
            raise PeopleUnusable(sentence_of(error)) from error
        await self._tell(await self.stored())

    async def _tell(self, stored: StoredPeople) -> None:
        for watcher in self._watchers:
            await watcher(stored)


def _check_new(person: str, name: str, stored: StoredPeople, taken: Mapping[str, object]) -> None:
    if PERSON_ID.fullmatch(person) is None:
        raise PeopleRefused("The id of a person has up to 32 of a-z 0-9 _ and -, beginning with a letter.")
    if person == OWNER or person in taken or person in stored.people:
        raise PeopleRefused(f"There is somebody called {person} already.")
    if person in stored.removed:
        raise PeopleRefused(
            f"Somebody who was called {person} was removed, and their conversations remain; choose another id."
        )
    _check_name(name)


def _check_unused(stored: StoredPeople, invitation: str) -> None:
    if all(each.invitation != invitation for each in stored.people.values()):
        raise PeopleRefused("This invitation was used before or has expired. Ask for another one.")


def _check_name(name: str) -> None:
    if len(name) > NAME_CHARACTERS or not name.isprintable():
        raise PeopleRefused(f"A name has at most {NAME_CHARACTERS} printable characters.")


def sha256_of(secret: str) -> str:
    """Return the SHA-256 of a token or an invitation, in hexadecimal digits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def fold_person(stored: StoredPeople, event: PeopleEvent, *, seq: int, at: str, turn: int | None, size: int) -> StoredPeople:
    """Return the people after one more event."""
    people, known = dict(stored.people), stored.people.get(event.person)
    act: TrailAct = "role_changed" if isinstance(event, PersonRoleChanged) else event.act
    entry = TrailEntry(at=at, by=event.by, act=act, person=event.person)
    trail = (*stored.trail, entry)[-TRAIL:]
    if isinstance(event, PersonRoleChanged):
        if known is not None:
            people[event.person] = msgspec.structs.replace(known, role=event.role)
    elif event.act in ("added", "invited"):
        people[event.person] = StoredPerson(
            id=event.person,
            name=event.name or event.person,
            role=event.role,
            since=at,
            token=event.token,
            invitation=event.invitation,
            expires=event.expires,
        )
    elif event.act == "removed":
        people.pop(event.person, None)
    elif known is not None:
        changes: dict[str, object] = {}
        if event.act in ("disabled", "enabled"):
            changes["disabled"] = event.act == "disabled"
        if event.token:
            changes |= {"token": event.token, "invitation": "", "expires": ""}
        if event.name:
            changes["name"] = event.name
        people[event.person] = msgspec.structs.replace(known, **changes)
    removed = stored.removed | {event.person} if act == "removed" else stored.removed
    return StoredPeople(people=people, trail=trail, removed=removed)


PEOPLE: LogFormat[PeopleEvent, StoredPeople] = LogFormat(
    name="people", events=(PersonChanged, PersonRoleChanged), empty=StoredPeople(), fold=fold_person
)
