"""Passes: what a browser shows in the place of the token, signed with a key that is made from it.

A *cookie* stands for a person for a month, and a *link* for its owner once, within minutes. Neither needs a store: each
says whom it names and until when, so a cookie outlives a restart, and whoever changes the token has made all of them
worthless. What is remembered is only which were signed out, and which links were used.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from gateway.auth.signed_out import SignedOut

COOKIE_SECONDS = 30 * 24 * 3600
"""How long a browser stays signed in that does not come back."""

RENEWED_AFTER = 24 * 3600
"""A cookie of this age is renewed when its browser comes back."""

LINK_SECONDS = 600
"""How long a one-time link is good."""

Purpose: TypeAlias = Literal["cookie", "link"]

_LIFE: dict[Purpose, int] = {"cookie": COOKIE_SECONDS, "link": LINK_SECONDS}
_FORM = re.compile(r"([a-z][a-z0-9_-]{0,31})\.(\d{1,12})\.([A-Za-z0-9_-]{16})\.([0-9a-f]{40})", re.ASCII)


class SignedToken(msgspec.Struct, frozen=True):
    """Names a person (by `id`) until a time in seconds since 1970. `number` is its own, or that of the cookie it renews."""

    person: str
    until: int
    number: str


class TokenSigner:
    """Makes passes and reads them. `now` tells seconds since 1970; `signed_out` keeps which cookies were ended."""

    def __init__(self, now: Callable[[], float], signed_out: SignedOut) -> None:
        self._now = now
        self._began = int(now())
        self._signed_out = signed_out
        self._used: dict[str, int] = {}
        """Numbers of links that were used, and until when they would have been good."""

    def issue(self, purpose: Purpose, person: str, key: bytes, renewed: SignedToken | None = None) -> str:
        """A new pass for a person, signed with the key of their token; a cookie may renew another."""
        number = secrets.token_urlsafe(12) if renewed is None else renewed.number
        made = SignedToken(person, int(self._now()) + _LIFE[purpose], number)
        return f"{_plain(made)}.{_signature(purpose, made, key)}"

    def read(self, purpose: Purpose, text: str, key_of: Callable[[str], bytes | None]) -> SignedToken | None:
        """What a pass says, if it is one of ours and counts now; `key_of` gives a person's key. None otherwise."""
        form = _FORM.fullmatch(text)
        if form is None or (key := key_of(form[1])) is None:
            return None
        found = SignedToken(form[1], int(form[2]), form[3])
        genuine = hmac.compare_digest(_signature(purpose, found, key), form[4])
        return found if genuine and (self.counts(found) if purpose == "cookie" else self._is_unused(found)) else None

    def counts(self, cookie: SignedToken) -> bool:
        """Whether a cookie is in force still: neither its time nor its owner has ended it."""
        made = cookie.until - COOKIE_SECONDS
        return cookie.until > self._now() and not self._signed_out.has(cookie.person, cookie.number, made)

    def ages(self, found: SignedToken) -> bool:
        """Whether a cookie should be renewed."""
        return found.until - self._now() < COOKIE_SECONDS - RENEWED_AFTER

    async def sign_out(self, cookie: SignedToken) -> None:
        """Let a cookie count no more, nor those that renewed it or were renewed by it; durably when this returns. OSError
        if it cannot be kept, and is undone by a restart."""
        await self._signed_out.add(cookie.person, cookie.number, int(self._now()) + COOKIE_SECONDS)

    def use_up(self, link: SignedToken) -> None:
        """Let a link count no more."""
        now = self._now()
        self._used = {number: until for number, until in self._used.items() if until > now} | {link.number: link.until}

    def _is_unused(self, link: SignedToken) -> bool:
        """Whether a link is good still. One that was made before this process is not: it cannot know whether it was used."""
        return link.until > self._now() and link.number not in self._used and link.until - LINK_SECONDS >= self._began


def signing_key(token: str) -> bytes:
    """The key that a token's passes are signed with. It tells nothing of the token, which has 128 random bits or more."""
    return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=32, person=b"exuvia passes").digest()


def _plain(made: SignedToken) -> str:
    return f"{made.person}.{made.until}.{made.number}"


def _signature(purpose: Purpose, made: SignedToken, key: bytes) -> str:
    return hmac.new(key, f"{purpose}.{_plain(made)}".encode(), hashlib.sha256).hexdigest()[:40]
