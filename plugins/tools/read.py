"""The `read` tool, which reads text files and lists folders of the workspace."""

from __future__ import annotations

import asyncio
import io
import os
import stat
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import IO, Annotated, Any, ClassVar

import msgspec

from plugins.api.context import PluginContext
from plugins.api.tool import ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.support.safe_open import OutsideFolder, components, open_beneath
from plugins.support.workspace import OWNER, meant, why_refused
from plugins.tools.file_changes import convert, seen_files
from plugins.tools.file_target import MAX_FILE_BYTES, readable_parts
from sessions.events.messages import ToolDefinition

MAX_TEXT_BYTES = 255 * 1024
"""Maximum bytes of a file in one answer; together with the note after it, an answer stays below 256 KiB."""

MAX_SKIPPED_BYTES = 64 * 1024 * 1024
"""Maximum bytes skipped to reach a line. A thread cannot be cancelled, so its work is bounded."""

MAX_ENTRIES = 500
"""Maximum names in a listing."""

BINARY = "The file is not a text file."

_BLOCK = 64 * 1024
_FIRST = 8192


class ReadArguments(msgspec.Struct, frozen=True):
    """Arguments of the `read` tool: a path, the first line (from 1) and the maximum number of lines."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    offset: Annotated[int, msgspec.Meta(ge=1)] = 1
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Read:
    """The `read` tool, which reads a text file or lists a folder."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="read",
        description=(
            "Read a text file of the workspace, or list one of its folders. A long file is returned in parts: a note"
            " at the end of a part gives the offset of the next one."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "Path of the file or folder, relative to the workspace; `.` lists the workspace.",
                },
                "offset": {"type": "integer", "minimum": 1, "description": "The first line to read, counted from 1."},
                "limit": {"type": "integer", "minimum": 1, "description": "Maximum number of lines to read."},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = True

    def __init__(self, context: PluginContext) -> None:
        self._workspace = context.workspace
        self._seen = seen_files(context.workspace)

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Return the text of a file, or the names in a folder.

        Raises:
            ToolFailed: The path does not exist or may not be read.
        """
        request = convert(arguments, ReadArguments)
        return ToolOutput(text=await asyncio.to_thread(self._read, request, call))

    def _read(self, request: ReadArguments, call: ToolContext) -> str:
        try:
            named = components(self._workspace, request.path)
            if named == (".",) and call.person != OWNER:
                return _format_listing(chain(self._names(meant(named, call.person), call), self._names(named, call)))
            parts = readable_parts(self._workspace, request.path, person=call.person, group=call.group, notes=call.notes)
            opened = open_beneath(self._workspace, "/".join(parts))
        except OutsideFolder as error:
            raise ToolFailed(str(error)) from error
        except OSError as error:
            raise ToolFailed(f"The file cannot be opened: {error.strerror}.") from error
        try:
            if stat.S_ISDIR(os.fstat(opened).st_mode):
                return _format_listing(_names_in(opened, parts, call))
            with open(opened, "rb", buffering=_BLOCK, closefd=False) as file:
                if os.fstat(opened).st_size > MAX_FILE_BYTES:
                    return _read_lines(file, request)[0]
                # Read once: exactly the bytes that are shown are recorded as seen.
                content = file.read()
            text, following = _read_lines(io.BytesIO(content), request)
            self._seen.record_read(call.session, parts, content, (request.offset, following))
            return text
        except OSError as error:
            raise ToolFailed(f"The file cannot be read: {error.strerror}.") from error
        finally:
            os.close(opened)

    def _names(self, parts: tuple[str, ...], call: ToolContext) -> list[str]:
        """Return the names that the caller may see in a folder, empty if it does not exist."""
        try:
            opened = open_beneath(self._workspace, "/".join(parts))
        except FileNotFoundError:
            return []
        try:
            return list(_names_in(opened, parts, call))
        finally:
            os.close(opened)


def _read_lines(file: IO[bytes], request: ReadArguments) -> tuple[str, int]:
    """Return the answer, and the number of the first line that it does not contain completely."""
    if b"\0" in file.read(_FIRST):
        raise ToolFailed(BINARY)
    file.seek(0)
    _skip_lines(file, request.offset - 1)
    lines: list[str] = []
    room, number = MAX_TEXT_BYTES, request.offset
    while request.limit is None or len(lines) < request.limit:
        # One byte more than fits, to tell a line that just fits from one that is too long.
        piece = file.readline(room + 1)
        if not piece:
            return _complete(lines, request), number
        if b"\0" in piece:
            raise ToolFailed(BINARY)
        text = piece.decode("utf-8", "replace")
        size = len(text.encode())
        if size > room:
            return _cut_line(text, number) if not lines else _incomplete(lines, number), number
        lines.append(text)
        room, number = room - size, number + 1
    return _incomplete(lines, number) if file.read(1) else _complete(lines, request), number


def _skip_lines(file: IO[bytes], lines: int) -> None:
    passed = read = 0
    while passed < lines:
        piece = file.readline(_BLOCK)
        read += len(piece)
        if not piece:
            raise ToolFailed(f"The file ends before line {lines + 1:,}.")
        if read > MAX_SKIPPED_BYTES:
            raise ToolFailed(
                f"That line is beyond the first {MAX_SKIPPED_BYTES >> 20} MiB, which is as far as this tool reads."
            )
        passed += piece.endswith(b"\n")


def _complete(lines: list[str], request: ReadArguments) -> str:
    if not lines and request.offset > 1:
        raise ToolFailed(f"The file ends before line {request.offset:,}.")
    return "".join(lines) or "(The file is empty.)"


def _incomplete(lines: list[str], following: int) -> str:
    return f"{''.join(lines)}[Truncated; continue with offset {following}.]"


def _cut_line(text: str, number: int) -> str:
    shown = text.encode()[:MAX_TEXT_BYTES].decode("utf-8", "ignore")
    return f"{shown}\n[Line {number:,} is truncated; continue after it with offset {number + 1}.]"


def _names_in(folder: int, parts: tuple[str, ...], call: ToolContext) -> Iterator[str]:
    """Yield the names in an open folder that the caller may see, at most one more than `MAX_ENTRIES`."""
    above = () if parts == (".",) else parts

    def shown(entry: os.DirEntry[str]) -> bool:
        return not why_refused((*above, entry.name), call.person, group=call.group, notes=call.notes)

    with os.scandir(folder) as entries:
        yield from map(_display_name, islice(filter(shown, entries), MAX_ENTRIES + 1))


def _format_listing(names: Iterable[str]) -> str:
    some = list(names)
    shown = sorted(some[:MAX_ENTRIES])
    if len(some) > MAX_ENTRIES:
        shown.append(f"[Only the first {MAX_ENTRIES} entries are listed.]")
    return "\n".join(shown) or "(The folder is empty.)"


def _display_name(entry: os.DirEntry[str]) -> str:
    name = os.fsencode(entry.name).decode("utf-8", "replace")
    printable = "".join(character if character.isprintable() else "�" for character in name)
    return f"{printable}/" if entry.is_dir(follow_symlinks=False) else printable
