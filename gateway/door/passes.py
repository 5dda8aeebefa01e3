"""Passes: what a browser shows in the place of the token, signed with a key that is made from it.

A *cookie* stands for a person for a month, and a *link* for its owner once, within minutes. Neither needs a store: each
says whom it names and until when, so a cookie outlives a restart, and whoever changes the token has made all of them
worthless. What is remembered is only which were given back, and which links were used.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

COOKIE_SECONDS = 30 * 24 * 3600
"""How long a browser stays signed in that does not come back."""

RENEWED_AFTER = 24 * 3600
"""A cookie of this age is renewed when its browser comes back."""

LINK_SECONDS = 600
"""How long a one-time link is good."""

Purpose: TypeAlias = Literal["cookie", "link"]

_LIFE: dict[Purpose, int] = {"cookie": COOKIE_SECONDS, "link": LINK_SECONDS}
_FORM = re.compile(r"([a-z][a-z0-9_-]{0,31})\.(\d{1,12})\.([A-Za-z0-9_-]{16})\.([0-9a-f]{40})", re.ASCII)


class Pass(msgspec.Struct, frozen=True):
    """Names a person (by `id`) until a time in seconds since 1970; `number` is its own."""

    person: str
    until: int
    number: str


class Passes:
    """Makes passes and reads them. `now` tells seconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = int(now())
        self._ended: dict[str, int] = {}
        """Numbers that count no more, and until when their passes would have."""

    def issue(self, purpose: Purpose, person: str, key: bytes) -> str:
        """A new pass for a person, signed with the key of their token."""
        made = Pass(person, int(self._now()) + _LIFE[purpose], secrets.token_urlsafe(12))
        return f"{_plain(made)}.{_signature(purpose, made, key)}"

    def read(self, purpose: Purpose, text: str, key_of: Callable[[str], bytes | None]) -> Pass | None:
        """What a pass says, if it is one of ours and counts now; `key_of` gives a person's key. None otherwise."""
        form = _FORM.fullmatch(text)
        if form is None or (key := key_of(form[1])) is None:
            return None
        found = Pass(form[1], int(form[2]), form[3])
        genuine = hmac.compare_digest(_signature(purpose, found, key), form[4])
        return found if genuine and self.counts(found) and not self._is_from_before(purpose, found) else None

    def counts(self, found: Pass) -> bool:
        """Whether a pass is in force still: neither its time nor its owner has ended it."""
        return found.until > self._now() and found.number not in self._ended

    def ages(self, found: Pass) -> bool:
        """Whether a cookie should be renewed."""
        return found.until - self._now() < COOKIE_SECONDS - RENEWED_AFTER

    def end(self, ended: Pass) -> None:
        """Let a pass count no more."""
        now = self._now()
        self._ended = {number: until for number, until in self._ended.items() if until > now} | {ended.number: ended.until}

    def _is_from_before(self, purpose: Purpose, found: Pass) -> bool:
        """Whether a link was made before this process, which cannot know whether it was used."""
        return purpose == "link" and found.until - LINK_SECONDS < self._began


def signing_key(token: str) -> bytes:
    """The key that a token's passes are signed with. It tells nothing of the token, which has 128 random bits or more."""
    return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=32, person=b"exuvia passes").digest()


def _plain(made: Pass) -> str:
    return f"{made.person}.{made.until}.{made.number}"


def _signature(purpose: Purpose, made: Pass, key: bytes) -> str:
    return hmac.new(key, f"{purpose}.{_plain(made)}".encode(), hashlib.sha256).hexdigest()[:40]
