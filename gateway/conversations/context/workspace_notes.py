"""The notes of the workspace that are part of every request: the assistant's identity and behaviour.

They are read again when they change, each up to a budget; `instructions_set` records the text.
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
from sessions.events.codec import replace_surrogates
from sessions.events.events import LoadedNote
from sessions.state.truncation import head_and_tail

MOST_TOKENS = 6000
"""The most tokens of one note."""

SHARE = 8
"""The divisor of the model's window that limits a note."""

TOKEN_BYTES = 3
"""Bytes that one token has at least."""

LARGEST = 1024 * 1024
"""Bytes of the largest file that is read."""

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
        self._places = {name: str(folder / name) for name in STANDING}  # built once, used in each turn
        self._files: dict[str, _Read] = {}
        self._refused: dict[str, str] = {}

    async def load(self, window: int | None) -> tuple[LoadedNote, ...]:
        """Return the existing notes, each within the budget of a model with this window (tokens; None if unknown).

        A note that cannot be read keeps its last text, which is logged; a removed one is dropped.
        """
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
        text = replace_surrogates(content.decode(errors="replace"))
        self._files[name] = _Read(stamp, text, sha256(content).hexdigest())


def _content(path: Path) -> bytes:
    """Return a file's bytes. Raises ValueError if it cannot be a note: not a regular file, or too large."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a file")
        if found.st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST:,} bytes")
        return file.read(LARGEST)
