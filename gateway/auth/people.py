"""The people of a gateway and their tokens."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from gateway.auth.people_log import StoredPerson, sha256_of
from gateway.auth.proxy_header import ProxyHeader, proxy_header_of
from gateway.auth.signed_tokens import SignedToken, signing_key
from gateway.auth.token import HOW_TO_GENERATE, token_weakness
from gateway.support.errors import ConfigRefused
from plugins.support.secrets import Secret
from plugins.support.workspace import OWNER, PERSON_ID

if TYPE_CHECKING:
    from gateway.config.keys import Config, Permission

_KEY = secrets.token_bytes(32)


class Person(msgspec.Struct, frozen=True):
    """Somebody who may use the gateway. `id` is permanent (journals hold it); `name` is for display and may change."""

    id: str
    name: str


class Admission(msgspec.Struct, frozen=True):
    """A person who was authenticated, the digest of their token, and the cookie if they sent one instead."""

    person: Person
    digest: bytes
    cookie: SignedToken | None = None


class ProgramGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A program that was authenticated by a token of `[mcp_access]`: its name, the person that it acts for, and what it may
    do. Such a token is accepted at `/mcp` only."""

    name: str
    person: str
    allow: frozenset[Permission]


class People:
    """Everybody who may use the gateway now, and the programs that act for them. Each token belongs to one person or
    program."""

    def __init__(
        self,
        tokens: Iterable[tuple[Secret, Person]],
        programs: Mapping[bytes, ProgramGrant] | None = None,
        stored: Iterable[StoredPerson] = (),
        proxy_header: ProxyHeader | None = None,
    ) -> None:
        self.proxy_header = proxy_header
        """How a reverse proxy names people; None if none does."""
        known = [(token.reveal(), person) for token, person in tokens]
        self._by_digest = {token_digest(token): person for token, person in known}
        self._admitted = dict(self._by_digest)
        """The people by the digests in their admissions."""
        self._digests = {person.id: token_digest(token) for token, person in known}
        self.keys = {person.id: signing_key(token) for token, person in known}
        """The key that signs each person's cookies and links, by the person's id."""
        self._programs = programs or {}
        self._by_hash: dict[str, Person] = {}
        for each in stored:
            if each.token and not each.disabled and each.id not in self._digests:
                person = Person(each.id, each.name)
                self._by_hash[each.token] = person
                # Nobody can send what this is the digest of: a token is hashed before it is looked up there.
                self._digests[each.id] = digest = token_digest(f"sha256:{each.token}")
                self._admitted[digest] = person
                self.keys[each.id] = signing_key(each.token)

    def program(self, token: str) -> ProgramGrant | None:
        """Return what a program's token grants; None if it is no program's."""
        return self._programs.get(token_digest(token)) if self._programs else None

    def admit(self, token: str) -> Admission | None:
        """Return the admission that this token grants; None if it is nobody's."""
        digest = token_digest(token)
        person = self._by_digest.get(digest)
        if person is None and self._by_hash:
            person = self._by_hash.get(sha256_of(token))
            digest = digest if person is None else self._digests[person.id]
        return None if person is None else Admission(person, digest)

    def admission_of(self, person: str, cookie: SignedToken | None = None) -> Admission:
        """Return the admission of a person who sent a valid cookie or link; `person` is one of `keys`."""
        digest = self._digests[person]
        return Admission(self._admitted[digest], digest, cookie)

    def still_admit(self, admission: Admission) -> bool:
        """Return True if the token of this admission still belongs to the same person."""
        person = self._admitted.get(admission.digest)
        return person is not None and person.id == admission.person.id


def token_digest(token: str) -> bytes:
    """Return the keyed digest that represents a token in memory.

    The key belongs to this process, so neither the digest nor the time of a comparison reveals anything about the token.
    """
    return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=32, key=_KEY).digest()


def people_of(config: Config, owner: Secret, stored: Iterable[StoredPerson] = ()) -> People:
    """Return the owner, by the gateway's token, the people in `[people]`, and those who were added while the gateway ran.

    Raises:
        ConfigRefused: A key is invalid; the error names it.
    """
    names = {OWNER: OWNER}
    tokens = {OWNER: owner}
    for person, keys in config.people.items():
        if fault := _fault(person, keys.token, tokens):
            key, reason = fault
            raise ConfigRefused(f"{config.sources.place(key)}: {key} {reason}.", key=key)
        names[person] = keys.name or person
        if keys.token is not None:
            tokens[person] = keys.token
    programs = _programs(config, frozenset(token_digest(token.reveal()) for token in tokens.values()))
    return People(
        ((token, Person(person, names[person])) for person, token in tokens.items()),
        programs,
        stored,
        proxy_header_of(config),
    )


def _programs(config: Config, taken: frozenset[bytes]) -> dict[bytes, ProgramGrant]:
    """Return the programs in `[mcp_access]` by the digests of their tokens; `taken` are those of people."""
    grants: dict[bytes, ProgramGrant] = {}
    for name, keys in config.mcp_access.items():
        digest = b"" if keys.token is None else token_digest(keys.token.reveal())
        key, reason = f"mcp_access.{name}.token", ""
        if keys.token is None:
            reason = "is missing"
        elif weakness := token_weakness(keys.token.reveal()):
            reason = f"{weakness}. {HOW_TO_GENERATE}"
        elif digest in grants or digest in taken:
            reason = "is also the token of somebody else; each program needs its own"
        elif keys.person != OWNER and keys.person not in config.people:
            key, reason = f"mcp_access.{name}.person", f"is {keys.person!r}, who is not in [people]"
        if reason:
            raise ConfigRefused(f"{config.sources.place(key)}: {key} {reason}.", key=key)
        grants[digest] = ProgramGrant(name=name, person=keys.person, allow=frozenset(keys.allow))
    return grants


def _fault(person: str, token: Secret | None, others: Mapping[str, Secret]) -> tuple[str, str] | None:
    """Return the invalid key of a person's table and the reason, as the rest of a sentence; None if all is valid."""
    key = f"people.{person}"
    if PERSON_ID.fullmatch(person) is None:
        return key, "is not a valid name: use up to 32 of a-z 0-9 _ and -, beginning with a letter"
    if person == OWNER:
        return None if token is None else (f"{key}.token", "is not read; set gateway.token instead")
    if token is None:
        return f"{key}.token", "is missing"
    if weakness := token_weakness(token.reveal()):
        return f"{key}.token", f"{weakness}. {HOW_TO_GENERATE}"
    twin = next((other for other, known in others.items() if known == token), None)
    return None if twin is None else (f"{key}.token", f"is also the token of {twin}; each person needs their own")
