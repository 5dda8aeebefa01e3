"""The notes of the workspace that stand in every request: who the assistant is, and how it behaves.

They are read again when they change, each up to a budget; what was read stands in the log, in `instructions_set`.
"""

from __future__ import annotations

import asyncio
import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import structlog

from plugins.support.workspace import STANDING
from sessions.attachments.store import head_and_tail
from sessions.events.codec import carriable
from sessions.events.events import LoadedNote

MOST_TOKENS = 6000
"""Tokens of one note at most."""

SHARE = 8
"""A note takes no more than this part of the model's window."""

TOKEN_BYTES = 3
"""Bytes of text that one token surely has."""

LARGEST = 1024 * 1024
"""Bytes of a file that are read; what is larger is no note."""

_Stamp: TypeAlias = tuple[int, int, int]

log = structlog.get_logger("exuvia.workspace")


class _Read:
    """A file as it was last read."""

    def __init__(self, stamp: _Stamp, text: str, digest: str) -> None:
        self.stamp = stamp
        self.text = text
        self.digest = digest


class WorkspaceNotes:
    """The standing notes of one workspace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places = {name: str(folder / name) for name in STANDING}  # each turn looks at them
        self._files: dict[str, _Read] = {}
        self._refused: dict[str, str] = {}

    async def load(self, window: int | None) -> tuple[LoadedNote, ...]:
        """Those that are there now, each within the budget of a model with this window (tokens; None if unknown). One that
        cannot be read stays as it was, and the log says so; one that was removed is gone."""
        budget = min(MOST_TOKENS, window // SHARE if window else MOST_TOKENS) * TOKEN_BYTES
        for name in STANDING:
            stamp = self._stamp(name)
            if stamp is None:
                self._files.pop(name, None)
            elif name not in self._files or self._files[name].stamp != stamp:
                await self._read(name, stamp)
        return tuple(
            LoadedNote(path=name, digest=file.digest, text=head_and_tail(file.text, budget))
            for name in STANDING
            if (file := self._files.get(name)) is not None and file.text.strip()
        )

    def _stamp(self, name: str) -> _Stamp | None:
        try:
            found = os.stat(self._places[name])
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    async def _read(self, name: str, stamp: _Stamp) -> None:
        try:
            content = await asyncio.to_thread(_content, self.folder / name)
        except (OSError, ValueError) as error:
            reason = str(error)
            if self._refused.get(name) != reason:
                log.error("note_not_read", note=name, reason=reason)
            self._refused[name] = reason
            return
        self._refused.pop(name, None)
        text = carriable(content.decode(errors="replace"))
        self._files[name] = _Read(stamp, text, sha256(content).hexdigest())


def _content(path: Path) -> bytes:
    """A file's bytes; ValueError for what cannot be a note: no regular file, or too large a one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a file")
        if found.st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST:,} bytes")
        return file.read(LARGEST)
