"""Changes of workspace files by tools: in a thread, one at a time per workspace, cancelled together with the turn.

The lines of each file that a session has read are remembered, so that a tool does not overwrite content the session has not
seen. They are kept in memory only: after a restart a file must be read again.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec

from plugins.api.context import PluginContext
from plugins.api.tool import ApprovalRequest, FileVersions, ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.support.safe_open import OutsideFolder
from plugins.tools.file_diff import unified_diff
from plugins.tools.file_target import MAX_FILE_BYTES, FileChanged, FileTarget, open_target, writable_parts

MAX_FILES = 4096
"""Maximum files remembered, of all sessions together; the least recently used is dropped first."""

MAX_RANGES = 100
"""Maximum line ranges remembered per file; beyond that the last ones are dropped."""

MAX_DESCRIBED = 100
"""Maximum descriptions remembered until their calls run."""

_shared: WeakValueDictionary[Path, SeenFiles] = WeakValueDictionary()


T = TypeVar("T")

_FULL = (errno.ENOSPC, errno.EDQUOT)


class KnownFile(msgspec.Struct, frozen=True, gc=False):
    """The version of a file that a session has read, and which of its lines.

    `ranges` are half-open line ranges, counted from 1, sorted and disjoint.
    """

    digest: bytes
    ranges: tuple[tuple[int, int], ...]

    def is_of(self, content: bytes) -> bool:
        """Return True if this is the version that was read."""
        return self.digest == _digest(content)

    def unseen(self, content: bytes) -> tuple[int, int] | None:
        """Return the first and last line of the first range that was not read, or None if all was."""
        end = count_lines(content) + 1
        first = self.ranges[0][1] if self.ranges and self.ranges[0][0] == 1 else 1
        if first >= end:
            return None
        return first, min([start for start, _ in self.ranges if start > first] + [end]) - 1


class SeenFiles:
    """The files that the sessions of one workspace have read.

    `changing` is held while a file is changed, so that no tool changes a file between another's read and write.
    """

    def __init__(self) -> None:
        self.changing = threading.Lock()
        self._known: OrderedDict[tuple[str, tuple[str, ...]], KnownFile] = OrderedDict()
        self._guard = threading.Lock()

    def record_read(self, session: str, parts: tuple[str, ...], content: bytes, seen_range: tuple[int, int]) -> None:
        """Record that a session was shown a half-open range of lines of this content."""
        digest = _digest(content)
        with self._guard:
            known = self._known.get((session, parts))
            ranges = known.ranges if known is not None and known.digest == digest else ()
            self._put(session, parts, KnownFile(digest, _merge((*ranges, seen_range))[:MAX_RANGES]))

    def record_change(self, session: str, parts: tuple[str, ...], before: bytes, after: bytes) -> None:
        """Record that a session itself changed the content of a file it knew.

        If it had read all of the file, it knows all of the new content; otherwise it keeps what it knew of the lines before
        the first change, since the numbers of later lines may have changed.
        """
        with self._guard:
            known = self._known.get((session, parts))
            if known is None or not known.is_of(before):
                return
            whole = known.unseen(before) is None
            end = count_lines(after) + 1 if whole else _first_difference(before, after)
            ranges = ((1, end),) if whole else tuple((a, min(b, end)) for a, b in known.ranges if a < end)
            self._put(session, parts, KnownFile(_digest(after), ranges))

    def known(self, session: str, parts: tuple[str, ...]) -> KnownFile | None:
        """Return what the session has read of a file, None for nothing."""
        with self._guard:
            return self._known.get((session, parts))

    def _put(self, session: str, parts: tuple[str, ...], known: KnownFile) -> None:
        self._known[session, parts] = known
        self._known.move_to_end((session, parts))
        while len(self._known) > MAX_FILES:
            self._known.popitem(last=False)


def seen_files(workspace: Path) -> SeenFiles:
    """Return the `SeenFiles` shared by the tools of a workspace."""
    return _shared.setdefault(workspace, SeenFiles())


def count_lines(content: bytes) -> int:
    """Return the number of lines, including a last one without a line ending."""
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def _merge(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Merge overlapping and adjacent ranges."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(seen_range for seen_range in ranges if seen_range[0] < seen_range[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def _first_difference(before: bytes, after: bytes) -> int:
    """Return the number of the first line in which two contents differ."""
    low, high = 0, min(len(before), len(after))
    while low < high:  # between `low` and `high` leading bytes are equal
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
    return before.count(b"\n", 0, low) + 1


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


class ChangeAborted(Exception):
    """The turn was cancelled before the change took effect."""


class FileChange:
    """A pending change of one file.

    `before` is the current content, None if the file does not exist; `known` is what the session has read of it. Without a
    `target` nothing is written, so that a change can be described before it is made.
    """

    def __init__(
        self,
        path: str,
        before: bytes | None,
        known: KnownFile | None,
        target: FileTarget | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self.before = before
        self.known = known
        self.after = before
        self._target = target
        self._check_cancelled = check_cancelled

    def replace(self, content: bytes) -> None:
        """Replace the whole content atomically."""
        check_size(len(content))
        if self._target is not None:
            self._target.replace(content, self._check_cancelled)
        self.after = content

    def append(self, content: bytes) -> None:
        """Append to the existing content."""
        assert self.before is not None
        check_size(len(self.before) + len(content))
        if self._target is not None:
            self._target.append(content, self._check_cancelled)
        self.after = self.before + content


class FileChanges:
    """The changes that the tools of one workspace make."""

    def __init__(self, context: PluginContext) -> None:
        self._workspace = context.workspace
        self._protected = context.protected
        self._seen = seen_files(context.workspace)
        self._described: OrderedDict[str, bytes | None] = OrderedDict()
        """By call, the content on which a description of the change is based."""

    async def apply(self, path: str, call: ToolContext, change: Callable[[FileChange], str], *, new: bool) -> ToolOutput:
        """Run `change` on a file and return its message as the tool's output, with the difference of the file.

        A cancellation before the change takes effect undoes it; afterwards the change stands. If the change was described
        before, it is made only to the content that the description was based on.

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
            return await asyncio.to_thread(self._apply, path, call, change, cancelled, new)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def describe(self, path: str, call: ToolContext, change: Callable[[FileChange], str]) -> ApprovalRequest:
        """Describe what `apply` would do with the same arguments: the path, and the difference of the file.

        Raises:
            ToolFailed: The change would fail; the message says why.
        """
        return await asyncio.to_thread(self._describe, path, call, change)

    def _describe(self, path: str, call: ToolContext, change: Callable[[FileChange], str]) -> ApprovalRequest:
        with _as_tool_failure():
            parts = self._parts(path, call)
            try:
                with open_target(self._workspace, parts, make=False) as target:
                    before = target.content()
            except FileNotFoundError:  # not even its folder exists
                before = None
        file = FileChange("/".join(parts), before, self._seen.known(call.session, parts))
        change(file)
        self._described[call.call] = before
        while len(self._described) > MAX_DESCRIBED:
            self._described.popitem(last=False)
        state = "" if before is None else _digest(before).hex()
        return ApprovalRequest(
            what=file.path, detail=unified_diff(file.path, before, file.after), path=file.path, state=state
        )

    def _apply(
        self, path: str, call: ToolContext, change: Callable[[FileChange], str], cancelled: threading.Event, new: bool
    ) -> ToolOutput:
        session = call.session

        def check_cancelled() -> None:
            if cancelled.is_set():
                raise ChangeAborted

        with _as_tool_failure():
            parts = self._parts(path, call)
            with self._seen.changing, open_target(self._workspace, parts, make=new) as target:
                check_cancelled()
                before = target.content()
                if self._described.pop(call.call, before) != before:
                    raise ToolFailed("The file has changed since this was approved; read it again.")
                file = FileChange("/".join(parts), before, self._seen.known(session, parts), target, check_cancelled)
                message = change(file)
                if before is None and file.after is not None:
                    self._seen.record_read(session, parts, file.after, (1, count_lines(file.after) + 1))
                elif before is not None and file.after is not None:
                    self._seen.record_change(session, parts, before, file.after)
        versions = FileVersions(path=file.path, before=before, after=file.after)
        return ToolOutput(text=message, diff=unified_diff(file.path, before, file.after), changes=(versions,))

    def _parts(self, path: str, call: ToolContext) -> tuple[str, ...]:
        return writable_parts(
            self._workspace, path, self._protected(), person=call.person, group=call.group, notes=call.notes
        )


@contextmanager
def _as_tool_failure() -> Iterator[None]:
    """Turn the reasons why a file cannot be changed into a ToolFailed with a message for the model."""
    try:
        yield
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
