"""Sign-outs that survive a restart, in one small file.

A cookie and those that renewed it form a line, which has a number. The file lists the lines that were signed out, until the
last of their cookies would have expired.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from gateway.support.small_files import read_at_most
from sessions.files.fsync import sync_folder, write_new

LINES = 100
"""Lines of one person that are listed. Somebody who signs out more often within a month is signed out everywhere."""

_LONGEST = 64 * 1024 * 1024
"""The largest size of the file, in bytes."""

log = structlog.get_logger()


class _Ended(msgspec.Struct):
    """The sign-outs of one person: cookies made before a time, and lines by number, each until a time; in seconds since
    1970."""

    before: int = 0
    lines: dict[str, int] = {}


class _Kept(msgspec.Struct):
    """The content of the file. `before` applies to everybody."""

    before: int = 0
    people: dict[str, _Ended] = {}


class SignedOut:
    """The cookie lines that were signed out, stored in the file `path`. `now` returns seconds since 1970.

    If the file cannot be read, the sign-outs are unknown and everybody has to sign in again.
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
        return made < self._kept.before or (ended is not None and (made < ended.before or line in ended.lines))

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
            ended.before, ended.lines = now, {line: until}
        async with self._writing:
            await asyncio.to_thread(_write, self._path, msgspec.json.encode(self._kept))

    def _keep_at_start(self) -> None:
        try:
            _write(self._path, msgspec.json.encode(self._kept))
        except OSError as error:
            log.warning("sign_outs_not_kept", path=str(self._path), reason=str(error))


def _write(path: Path, content: bytes) -> None:
    """Put the file in its place (0600), whole or not at all. Raises OSError."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_new(new, [content, b"\n"])
    try:
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    sync_folder(path.parent)
