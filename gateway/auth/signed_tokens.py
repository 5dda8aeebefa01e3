"""Signed cookies and one-time links, which a browser sends instead of the token.

A *cookie* authenticates a person for a month, a *link* its owner once, within minutes. Neither needs a store: each names its
person and its expiry, and is signed with a key derived from the person's token. So a cookie survives a restart, and changing
the token invalidates all of them. Only sign-outs, in one small file, and used links are remembered.

No library: itsdangerous would replace the signature and its form, fifteen lines, and not expiry, renewal, sign-out or use.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import structlog

from gateway.support.small_files import read_at_most
from sessions.files.fsync import replace_file

COOKIE_SECONDS = 30 * 24 * 3600
"""Lifetime of a cookie that is not renewed."""

RENEWED_AFTER = 24 * 3600
"""Age at which a cookie is renewed by the browser's next visit."""

LINK_SECONDS = 600
"""Lifetime of a one-time link."""

Purpose: TypeAlias = Literal["cookie", "link"]

_LIFE: dict[Purpose, int] = {"cookie": COOKIE_SECONDS, "link": LINK_SECONDS}
_FORM = re.compile(r"([a-z][a-z0-9_-]{0,31})\.(\d{1,12})\.([A-Za-z0-9_-]{16})\.([0-9a-f]{40})", re.ASCII)

LINES = 100
"""Sign-outs that are listed for one person. Somebody who signs out more often within a month is signed out everywhere."""

_LONGEST = 64 * 1024 * 1024
"""The largest size of the file of sign-outs, in bytes."""

log = structlog.get_logger()


class _Ended(msgspec.Struct):
    """The sign-outs of one person: all cookies made `before` a time but those of the line `kept`, and lines by number,
    each until a Unix time."""

    before: int = 0
    lines: dict[str, int] = {}
    kept: str = ""


class _Kept(msgspec.Struct):
    """The content of the file. `before` applies to everybody."""

    before: int = 0
    people: dict[str, _Ended] = {}


class SignedOut:
    """The cookies that were signed out, stored in the file `path`. `now` returns seconds since 1970.

    A cookie and those that renewed it form a line, which has a number. A line is listed until the last of its cookies would
    have expired. If the file cannot be read, the sign-outs are unknown and everybody has to sign in again.
    """

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._writing = asyncio.Lock()
        try:
            self._kept = msgspec.json.decode(read_at_most(path, _LONGEST) or b"", type=_Kept)
        except FileNotFoundError:
            self._kept = _Kept()
        except (OSError, msgspec.MsgspecError, UnicodeError) as error:
            log.warning("sign_outs_unreadable", path=str(path), reason=str(error), effect="everybody has to sign in again")
            self._kept = _Kept(before=int(now()))
            self._keep_at_start()

    def has(self, person: str, line: str, made: int) -> bool:
        """Return True if a cookie of this line, made at this time, was signed out."""
        ended = self._kept.people.get(person)
        if ended is None or made < self._kept.before:
            return made < self._kept.before
        return line in ended.lines or (made < ended.before and line != ended.kept)

    async def add(self, person: str, line: str, until: int) -> None:
        """End a line at once, and durably when this returns.

        Raises:
            OSError: The file could not be written. The line stays ended until the process exits, and the next write includes
                it.
        """
        now = int(self._now())
        ended = self._kept.people.setdefault(person, _Ended())
        ended.lines = {number: end for number, end in ended.lines.items() if end > now} | {line: until}
        if len(ended.lines) >= LINES:
            ended.before, ended.lines, ended.kept = now, {line: until}, ""
        await self._store()

    async def add_others(self, person: str, kept: str, lines: frozenset[str], until: int) -> None:
        """End all lines of a person but `kept` at once, and durably when this returns. `lines` are those that are known:
        cookies that were made within this second are not older than it.

        Raises:
            OSError: See `add`.
        """
        ended = self._kept.people.setdefault(person, _Ended())
        ended.before, ended.kept = int(self._now()), kept
        ended.lines |= dict.fromkeys(lines, until)
        await self._store()

    async def _store(self) -> None:
        async with self._writing:
            await asyncio.to_thread(replace_file, self._path, self._content())

    def _keep_at_start(self) -> None:
        try:
            replace_file(self._path, self._content())
        except OSError as error:
            log.warning("sign_outs_not_kept", path=str(self._path), reason=str(error))

    def _content(self) -> bytes:
        return msgspec.json.encode(self._kept) + b"\n"


class SignedToken(msgspec.Struct, frozen=True):
    """The content of a cookie or link: a person's `id`, the expiry (`until`, seconds since 1970), and a random number.

    A cookie that renews another has the same number.
    """

    person: str
    until: int
    number: str


class TokenSigner:
    """Issues and verifies cookies and one-time links. `now` returns seconds since 1970."""

    def __init__(self, now: Callable[[], float], signed_out: SignedOut) -> None:
        self._now = now
        self._began = int(now())
        self._signed_out = signed_out
        self._used: dict[str, int] = {}
        """The numbers of used links, with their expiry."""

    def issue(self, purpose: Purpose, person: str, key: bytes, renewed: SignedToken | None = None) -> str:
        """Return a new cookie or link for a person, signed with `key`; a cookie may renew another."""
        number = secrets.token_urlsafe(12) if renewed is None else renewed.number
        token = SignedToken(person, int(self._now()) + _LIFE[purpose], number)
        return f"{_payload(token)}.{_signature(purpose, token, key)}"

    def read(self, purpose: Purpose, text: str, key_of: Callable[[str], bytes | None]) -> SignedToken | None:
        """Return the content of a valid cookie or link; None otherwise. `key_of` returns a person's key."""
        form = _FORM.fullmatch(text)
        if form is None or (key := key_of(form[1])) is None:
            return None
        found = SignedToken(form[1], int(form[2]), form[3])
        genuine = hmac.compare_digest(_signature(purpose, found, key), form[4])
        return found if genuine and (self.is_valid(found) if purpose == "cookie" else self._is_unused(found)) else None

    def is_valid(self, cookie: SignedToken) -> bool:
        """Return True if a cookie has neither expired nor been signed out."""
        made = cookie.until - COOKIE_SECONDS
        return cookie.until > self._now() and not self._signed_out.has(cookie.person, cookie.number, made)

    def should_renew(self, cookie: SignedToken) -> bool:
        """Return True if a cookie is old enough to be renewed."""
        return cookie.until - self._now() < COOKIE_SECONDS - RENEWED_AFTER

    async def sign_out(self, cookie: SignedToken) -> None:
        """Invalidate a cookie and every cookie of its line, durably when this returns.

        Raises:
            OSError: The sign-out could not be saved; a restart will undo it.
        """
        await self._signed_out.add(cookie.person, cookie.number, int(self._now()) + COOKIE_SECONDS)

    async def sign_out_others(self, person: str, kept: str, lines: frozenset[str]) -> None:
        """Invalidate all cookies of a person but those of the line `kept`; see `SignedOut.add_others`.

        Raises:
            OSError: See `sign_out`.
        """
        await self._signed_out.add_others(person, kept, lines, int(self._now()) + COOKIE_SECONDS)

    def use_up(self, link: SignedToken) -> None:
        """Invalidate a link that was used."""
        now = self._now()
        self._used = {number: until for number, until in self._used.items() if until > now} | {link.number: link.until}

    def _is_unused(self, link: SignedToken) -> bool:
        """Return True if a link is still valid. Links made before this process started are not: they may have been used."""
        return link.until > self._now() and link.number not in self._used and link.until - LINK_SECONDS >= self._began


def signing_key(token: str) -> bytes:
    """Derive the key that signs a person's cookies and links from their token, which has 128 random bits or more."""
    return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=32, person=b"exuvia passes").digest()


def key_mark(key: bytes) -> str:
    """Return a short digest of a signing key, which tells it from others and says nothing about it."""
    return hashlib.blake2b(key, digest_size=6, person=b"exuvia key mark").hexdigest()


def _payload(token: SignedToken) -> str:
    return f"{token.person}.{token.until}.{token.number}"


def _signature(purpose: Purpose, token: SignedToken, key: bytes) -> str:
    return hmac.new(key, f"{purpose}.{_payload(token)}".encode(), hashlib.sha256).hexdigest()[:40]
