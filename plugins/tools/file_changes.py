"""Changes of workspace files by tools: in a thread, one at a time per workspace, cancelled together with the turn."""

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
from plugins.tools.file_target import MAX_FILE_BYTES, FileChanged, FileTarget, open_target, writable_parts
from plugins.tools.seen_files import KnownFile, count_lines, seen_files

T = TypeVar("T")

_FULL = (errno.ENOSPC, errno.EDQUOT)


class ChangeAborted(Exception):
    """The turn was cancelled before the change took effect."""


class FileChange:
    """A pending change of one file.

    `before` is the current content, None if the file does not exist; `known` is what the session has read of it.
    """

    def __init__(self, path: str, target: FileTarget, known: KnownFile | None, check_cancelled: Callable[[], None]) -> None:
        self.path = path
        self.before = target.content()
        self.known = known
        self.after = self.before
        self._target = target
        self._check_cancelled = check_cancelled

    def replace(self, content: bytes) -> None:
        """Replace the whole content atomically."""
        check_size(len(content))
        self._target.replace(content, self._check_cancelled)
        self.after = content

    def append(self, content: bytes) -> None:
        """Append to the existing content."""
        assert self.before is not None
        check_size(len(self.before) + len(content))
        self._target.append(content, self._check_cancelled)
        self.after = self.before + content


class FileChanges:
    """The changes that the tools of one workspace make."""

    def __init__(self, context: PluginContext) -> None:
        self._workspace = context.workspace
        self._protected = context.protected
        self._seen = seen_files(context.workspace)

    async def apply(self, path: str, call: ToolContext, change: Callable[[FileChange], str], *, new: bool) -> ToolOutput:
        """Run `change` on a file and return its message as the tool's output.

        A cancellation before the change takes effect undoes it; afterwards the change stands.

        Args:
            path: The path as the model wrote it.
            call: The tool call.
            change: Changes the file and returns a message for the model. Runs in a thread.
            new: Create missing directories.

        Raises:
            ToolFailed: The file was not changed; the message says why.
        """
        cancelled = threading.Event()
        try:
            return ToolOutput(text=await asyncio.to_thread(self._apply, path, call, change, cancelled, new))
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def _apply(
        self, path: str, call: ToolContext, change: Callable[[FileChange], str], cancelled: threading.Event, new: bool
    ) -> str:
        session = call.session

        def check_cancelled() -> None:
            if cancelled.is_set():
                raise ChangeAborted

        try:
            parts = writable_parts(self._workspace, path, self._protected(), person=call.person, group=call.group)
            with self._seen.changing, open_target(self._workspace, parts, make=new) as target:
                check_cancelled()
                file = FileChange("/".join(parts), target, self._seen.known(session, parts), check_cancelled)
                message = change(file)
                if file.before is None and file.after is not None:
                    self._seen.note(session, parts, file.after, (1, count_lines(file.after) + 1))
                elif file.before is not None and file.after is not None:
                    self._seen.note_change(session, parts, file.before, file.after)
                return message
        except (OutsideFolder, ChangeAborted) as error:
            raise ToolFailed(str(error)) from error
        except FileChanged as error:
            raise ToolFailed("The file was changed by another process and nothing was written; read it again.") from error
        except OSError as error:
            why = "the disk is full" if error.errno in _FULL else error.strerror
            raise ToolFailed(f"The file was not written: {why}.") from error


def convert(arguments: dict[str, Any], form: type[T]) -> T:
    """Convert a model's arguments into a Struct, accepting numbers and booleans written as text.

    Raises:
        ToolFailed: An argument is missing or invalid.
    """
    try:
        return msgspec.convert(arguments, form, strict=False)
    except msgspec.ValidationError as error:
        raise ToolFailed(f"Invalid arguments: {error}.") from error


def encode_text(text: str) -> bytes:
    """Encode text for a file.

    Raises:
        ToolFailed: The text contains a NUL or a lone surrogate.
    """
    if "\0" in text:
        raise ToolFailed("A text file cannot contain a NUL.")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed("The text contains a lone surrogate.") from error


def describe_size(content: bytes) -> str:
    """Return a size such as `1,234 bytes, 20 lines`."""
    lines = count_lines(content)
    return f"{len(content):,} byte{'s' * (len(content) != 1)}, {lines:,} line{'s' * (lines != 1)}"


def check_size(count: int) -> None:
    """Raise ToolFailed if a file of `count` bytes would be too large."""
    if count > MAX_FILE_BYTES:
        raise ToolFailed(f"The file would be larger than {MAX_FILE_BYTES >> 20} MiB; write the new content to another file.")
