"""The browsers that are signed in, for the list in which people end their sign-ins.

The list decides nothing: cookies are valid by their signatures until they expire or are signed out. A browser that the list
does not know, such as after the loss of the file, is added at its next visit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import structlog

from gateway.auth.signed_tokens import COOKIE_SECONDS, SignedToken
from gateway.support.small_files import read_at_most
from sessions.files.fsync import replace_file

WRITTEN_AFTER = 3600
"""The age in seconds at which the stored time of a browser's last use is replaced."""

LISTED = 100
"""Browsers that are listed for one person, those that were used last."""

_LONGEST = 16 * 1024 * 1024

_BROWSERS = (
    *(("Edg", "Edge"), ("OPR/", "Opera"), ("SamsungBrowser/", "Samsung Internet"), ("Firefox/", "Firefox")),
    *(("FxiOS/", "Firefox"), ("CriOS/", "Chrome"), ("Chromium/", "Chromium"), ("Chrome/", "Chrome"), ("Safari/", "Safari")),
)
"""Parts of the header `User-Agent` with what they mean. The first that is found counts: most browsers name others, too."""

_SYSTEMS = (
    *(("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"), ("CrOS", "ChromeOS")),
    *(("Mac OS X", "macOS"), ("Macintosh", "macOS"), ("Linux", "Linux")),
)

log = structlog.get_logger()


class SignIn(msgspec.Struct):
    """A browser that is signed in: the number of its cookies, a mark of the key that signed them, the names of the browser
    and its system (empty if unknown), and in seconds since 1970 when it signed in, when it was last used, and when its
    newest cookie expires."""

    number: str
    key: str
    browser: str
    system: str
    at: int
    used: int
    until: int


class SignIns:
    """The browsers of everybody, stored in the file `path`. `now` returns seconds since 1970.

    The file contains neither tokens nor cookies, of which only the numbers are stored.
    """

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._writing = asyncio.Lock()
        self._stored_used: dict[str, int] = {}
        """The times of the last uses in the file, by number."""
        self._open: Counter[str] = Counter()
        self._people: dict[str, list[SignIn]] = {}
        try:
            self._people = msgspec.json.decode(read_at_most(path, _LONGEST) or b"", type=dict[str, list[SignIn]])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, UnicodeError) as error:
            log.warning(
                "sign_ins_unreadable", path=str(path), reason=str(error), effect="browsers are listed at their next visit"
            )
        self._stored_used = {each.number: each.used for known in self._people.values() for each in known}

    def of(self, person: str, key: str) -> list[SignIn]:
        """Return a person's browsers whose cookies were signed with this key and have not expired, last used first."""
        now = self._now()
        known = (each for each in self._people.get(person, ()) if each.key == key and each.until > now)
        return sorted(known, key=lambda each: (each.number in self._open, each.used), reverse=True)

    def is_open(self, number: str) -> bool:
        """Return True if a page of this browser is connected."""
        return number in self._open

    def use(self, cookie: SignedToken) -> None:
        """Note that a browser was used. This is stored by the next `add`."""
        if (known := self._find(cookie)) is not None:
            known.used = int(self._now())

    @contextmanager
    def connected(self, cookie: SignedToken) -> Iterator[None]:
        """Note that a page of a browser is connected while the block runs."""
        self._open[cookie.number] += 1
        try:
            yield
        finally:
            self._open[cookie.number] -= 1
            if not self._open[cookie.number]:
                del self._open[cookie.number]
            self.use(cookie)

    async def add(self, cookie: SignedToken, key: str, user_agent: str) -> None:
        """Add the browser that has this cookie, or note its use, durably when this returns.

        A list that cannot be stored keeps nobody from signing in: it is stored later.
        """
        now = int(self._now())
        browser, system = _name_in(_BROWSERS, user_agent), _name_in(_SYSTEMS, user_agent)
        known = self._find(cookie)
        if known is None:
            made = cookie.until - COOKIE_SECONDS
            known = SignIn(
                number=cookie.number, key=key, browser=browser, system=system, at=made, used=now, until=cookie.until
            )
            self._people[cookie.person] = [known, *self.of(cookie.person, key)][:LISTED]
        known.key, known.browser, known.system, known.used = key, browser, system, now
        is_newer, known.until = cookie.until > known.until, max(cookie.until, known.until)
        if is_newer or now - self._stored_used.get(cookie.number, 0) >= WRITTEN_AFTER:
            await self._store()

    async def remove(self, person: str, numbers: frozenset[str]) -> None:
        """Remove browsers from the list, durably when this returns. Their cookies must have been signed out."""
        self._people[person] = [each for each in self._people.get(person, ()) if each.number not in numbers]
        await self._store()

    async def forget(self, person: str) -> None:
        """Remove all browsers of a person from the list."""
        if self._people.pop(person, None) is not None:
            await self._store()

    def _find(self, cookie: SignedToken) -> SignIn | None:
        return next((each for each in self._people.get(cookie.person, ()) if each.number == cookie.number), None)

    async def _store(self) -> None:
        async with self._writing:
            now = self._now()
            kept = {person: [each for each in known if each.until > now] for person, known in self._people.items()}
            self._people = {person: known for person, known in kept.items() if known}
            used = {each.number: each.used for known in self._people.values() for each in known}
            try:
                await asyncio.to_thread(replace_file, self._path, msgspec.json.encode(self._people) + b"\n")
            except OSError as error:
                log.warning("sign_ins_not_kept", path=str(self._path), reason=str(error))
            else:
                self._stored_used = used


async def forget_in_file(path: Path, person: str) -> None:
    """Remove all browsers of a person from a file that no gateway has open yet. Raises OSError."""
    await asyncio.to_thread(_forget_in, path, person)


def _forget_in(path: Path, person: str) -> None:
    with suppress(FileNotFoundError):
        known = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
        if known.pop(person, None) is not None:
            replace_file(path, msgspec.json.encode(known) + b"\n")


def _name_in(names: tuple[tuple[str, str], ...], user_agent: str) -> str:
    return next((name for part, name in names if part in user_agent), "")
