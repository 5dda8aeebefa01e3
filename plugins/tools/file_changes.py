"""One change of one file by a tool: on a thread, alone in its workspace, given up when the turn is, told in sentences."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from plugins.api.context import PluginContext
from plugins.api.tool import ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.support.safe_open import OutsideFolder
from plugins.tools.file_target import LARGEST, FileChanged, FileTarget, file_place, writable_parts
from plugins.tools.seen_files import KnownFile, lines_in, seen_files

T = TypeVar("T")

_FULL = (errno.ENOSPC, errno.EDQUOT)


class ChangeAborted(Exception):
    """The turn ended before the change counted; nobody reads it any more."""


class FileChange:
    """A file that is about to be changed. `before` are its bytes, None where there is no file; `known` is what the session
    has seen of it."""

    def __init__(self, path: str, place: FileTarget, known: KnownFile | None, go_on: Callable[[], None]) -> None:
        self.path = path
        self.before = place.content()
        self.known = known
        self.after = self.before
        self._place = place
        self._go_on = go_on

    def replace(self, content: bytes) -> None:
        """Make this the file's content; whole or not at all."""
        check_size(len(content))
        self._place.replace(content, self._go_on)
        self.after = content

    def append(self, content: bytes) -> None:
        """Put this behind what is there."""
        assert self.before is not None
        check_size(len(self.before) + len(content))
        self._place.append(content, self._go_on)
        self.after = self.before + content


class FileChanges:
    """Changes the files of a workspace."""

    def __init__(self, context: PluginContext) -> None:
        self._workspace = context.workspace
        self._protected = context.protected
        self._seen = seen_files(context.workspace)

    async def make(self, path: str, call: ToolContext, change: Callable[[FileChange], str], *, new: bool) -> ToolOutput:
        """Let `change` work on the file and return its sentence; with `new`, folders that are missing are made. ToolFailed
        says why it could not be done. Cancelled before it counts, it is undone; a moment later it stands."""
        given_up = threading.Event()
        try:
            return ToolOutput(text=await asyncio.to_thread(self._make, path, call, change, given_up, new))
        except asyncio.CancelledError:
            given_up.set()
            raise

    def _make(
        self, path: str, call: ToolContext, change: Callable[[FileChange], str], given_up: threading.Event, new: bool
    ) -> str:
        session = call.session

        def go_on() -> None:
            if given_up.is_set():
                raise ChangeAborted

        try:
            parts = writable_parts(self._workspace, path, self._protected(), person=call.person, group=call.group)
            with self._seen.changing, file_place(self._workspace, parts, make=new) as place:
                go_on()
                wanted = FileChange("/".join(parts), place, self._seen.known(session, parts), go_on)
                said = change(wanted)
                if wanted.before is None and wanted.after is not None:
                    self._seen.note(session, parts, wanted.after, (1, lines_in(wanted.after) + 1))
                elif wanted.before is not None and wanted.after is not None:
                    self._seen.note_change(session, parts, wanted.before, wanted.after)
                return said
        except (OutsideFolder, ChangeAborted) as error:
            raise ToolFailed(str(error)) from error
        except FileChanged as error:
            raise ToolFailed("Somebody changed the file in this moment and nothing was written; read it again.") from error
        except OSError as error:
            why = "the disk is full" if error.errno in _FULL else error.strerror
            raise ToolFailed(f"It was not written: {why}.") from error


def convert(arguments: dict[str, Any], form: type[T]) -> T:
    """A model's arguments as a Struct, numbers and truths as text too, as some models write them; ToolFailed says what does
    not fit."""
    try:
        return msgspec.convert(arguments, form, strict=False)
    except msgspec.ValidationError as error:
        raise ToolFailed(f"These arguments cannot be used: {error}.") from error


def encoded(text: str) -> bytes:
    """Text as a file's bytes; ToolFailed for what no text file holds."""
    if "\0" in text:
        raise ToolFailed("A text file cannot contain a NUL.")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed("The text contains half a character (a lone surrogate).") from error


def size(content: bytes) -> str:
    """`1,234 bytes, 20 lines`."""
    lines = lines_in(content)
    return f"{len(content):,} byte{'s' * (len(content) != 1)}, {lines:,} line{'s' * (lines != 1)}"


def check_size(count: int) -> None:
    """ToolFailed if a file of that many bytes is not written."""
    if count > LARGEST:
        raise ToolFailed(f"The file would be larger than {LARGEST >> 20} MiB; write what is new to another file.")
