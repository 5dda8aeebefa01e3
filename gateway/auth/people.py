"""The people of a gateway: who they are, and which token names whom."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from gateway.auth.signed_tokens import SignedToken, signing_key
from gateway.auth.token import GOOD_ONE, token_weakness
from gateway.support.errors import ConfigRefused
from plugins.support.secrets import Secret
from plugins.support.workspace import OWNER, PERSON_ID

if TYPE_CHECKING:
    from gateway.config.keys import Config

_KEY = secrets.token_bytes(32)


class Person(msgspec.Struct, frozen=True):
    """Somebody who may speak. `id` stands in journals for ever; `name` is for the eye and may change."""

    id: str
    name: str


class Admission(msgspec.Struct, frozen=True):
    """A person who was let in, and the mark of the token that did it; `shown` is the cookie that a browser had instead."""

    person: Person
    mark: bytes
    shown: SignedToken | None = None


class People:
    """Everybody who may speak now. Each token names one person."""

    def __init__(self, tokens: Iterable[tuple[Secret, Person]]) -> None:
        known = [(token.reveal(), person) for token, person in tokens]
        self._by_mark = {mark_of(token): person for token, person in known}
        self._marks = {person.id: mark_of(token) for token, person in known}
        self.keys = {person.id: signing_key(token) for token, person in known}
        """What each person's passes are signed with, by the person's id."""

    def admit(self, token: str) -> Admission | None:
        """Whom this token names; None if nobody."""
        mark = mark_of(token)
        person = self._by_mark.get(mark)
        return None if person is None else Admission(person, mark)

    def named(self, person: str, shown: SignedToken | None = None) -> Admission:
        """The admission of somebody who showed a pass that is good; `person` is one of `keys`."""
        mark = self._marks[person]
        return Admission(self._by_mark[mark], mark, shown)

    def still_admit(self, admission: Admission) -> bool:
        """Whether the token that let somebody in still names them."""
        person = self._by_mark.get(admission.mark)
        return person is not None and person.id == admission.person.id


def mark_of(token: str) -> bytes:
    """What stands for a token in memory. It is made with a key of this process, so neither the time that a comparison of
    marks takes nor a mark itself tells anything of a token."""
    return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=32, key=_KEY).digest()


def people_of(config: Config, owner: Secret) -> People:
    """The owner, by the gateway's token, and those in `[people]`. ConfigRefused names the key that cannot be used."""
    names = {OWNER: OWNER}
    tokens = {OWNER: owner}
    for person, keys in config.people.items():
        if fault := _fault(person, keys.token, tokens):
            key, reason = fault
            raise ConfigRefused(f"{config.sources.place(key)}: {key} {reason}.", key=key)
        names[person] = keys.name or person
        if keys.token is not None:
            tokens[person] = keys.token
    return People((token, Person(person, names[person])) for person, token in tokens.items())


def _fault(person: str, token: Secret | None, others: Mapping[str, Secret]) -> tuple[str, str] | None:
    """The key of a person's table that cannot be used, and why, as what follows it in a sentence, without the end."""
    key = f"people.{person}"
    if PERSON_ID.fullmatch(person) is None:
        return key, "is not a name: up to 32 of a-z 0-9 _ and -, beginning with a letter"
    if person == OWNER:
        return None if token is None else (f"{key}.token", "is gateway.token; set that one")
    if token is None:
        return f"{key}.token", "is missing"
    if weakness := token_weakness(token.reveal()):
        return f"{key}.token", f"{weakness}. {GOOD_ONE}"
    twin = next((other for other, known in others.items() if known == token), None)
    return None if twin is None else (f"{key}.token", f"is the token of {twin} too; each person needs their own")
