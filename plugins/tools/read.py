"""The `read` tool: text files and folders of the workspace, and nothing outside it."""

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
from plugins.tools.file_changes import convert
from plugins.tools.file_target import LARGEST, readable_parts
from plugins.tools.seen_files import seen_files
from sessions.events.messages import ToolDefinition

MOST_TEXT = 255 * 1024
"""Bytes of a file in one answer; with the note after it, an answer stays under 256 KiB."""

FARTHEST = 64 * 1024 * 1024
"""Bytes of a file that are passed over to reach a line. A thread cannot be cancelled, so its work is bounded."""

MOST_ENTRIES = 500
"""Names of a folder in one answer."""

BINARY = "It is not a text file."

_BLOCK = 64 * 1024
_FIRST = 8192


class ReadArguments(msgspec.Struct, frozen=True):
    """What the model gives: a path, the first line (from 1), how many lines."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    offset: Annotated[int, msgspec.Meta(ge=1)] = 1
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Read:
    """Reads a text file, or lists a folder."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="read",
        description=(
            "Read a text file of the workspace, or list one of its folders. A long file comes in pieces: the note at the"
            " end of a piece says with which offset to read on."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file or folder, from the workspace on; `.` lists it."},
                "offset": {"type": "integer", "minimum": 1, "description": "The first line to read, counted from 1."},
                "limit": {"type": "integer", "minimum": 1, "description": "How many lines to read at most."},
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
        """Return the text, or the folder's names; ToolFailed where there is none, or none that may be read."""
        wanted = convert(arguments, ReadArguments)
        return ToolOutput(text=await asyncio.to_thread(self._read, wanted, call))

    def _read(self, wanted: ReadArguments, call: ToolContext) -> str:
        try:
            named = components(self._workspace, wanted.path)
            if named == (".",) and call.person != OWNER:
                return _listed(chain(self._names(meant(named, call.person), call), self._names(named, call)))
            parts = readable_parts(self._workspace, wanted.path, person=call.person, group=call.group)
            opened = open_beneath(self._workspace, "/".join(parts))
        except OutsideFolder as error:
            raise ToolFailed(str(error)) from error
        except OSError as error:
            raise ToolFailed(f"It cannot be opened: {error.strerror}.") from error
        try:
            if stat.S_ISDIR(os.fstat(opened).st_mode):
                return _listed(_names_in(opened, parts, call))
            with open(opened, "rb", buffering=_BLOCK, closefd=False) as file:
                if os.fstat(opened).st_size > LARGEST:
                    return _text(file, wanted)[0]
                # What is shown and what is remembered as seen are the same bytes.
                content = file.read()
            text, following = _text(io.BytesIO(content), wanted)
            self._seen.note(call.session, parts, content, (wanted.offset, following))
            return text
        except OSError as error:
            raise ToolFailed(f"It cannot be read: {error.strerror}.") from error
        finally:
            os.close(opened)

    def _names(self, parts: tuple[str, ...], call: ToolContext) -> list[str]:
        """What the caller may see of a folder; nothing where there is none."""
        try:
            opened = open_beneath(self._workspace, "/".join(parts))
        except FileNotFoundError:
            return []
        try:
            return list(_names_in(opened, parts, call))
        finally:
            os.close(opened)


def _text(file: IO[bytes], wanted: ReadArguments) -> tuple[str, int]:
    """What is answered, and the first line that is not shown whole."""
    if b"\0" in file.read(_FIRST):
        raise ToolFailed(BINARY)
    file.seek(0)
    _pass_over(file, wanted.offset - 1)
    lines: list[str] = []
    room, number = MOST_TEXT, wanted.offset
    while wanted.limit is None or len(lines) < wanted.limit:
        # A byte more than fits, so that a line that just fits and one that is too long can be told apart.
        piece = file.readline(room + 1)
        if not piece:
            return _whole(lines, wanted), number
        if b"\0" in piece:
            raise ToolFailed(BINARY)
        text = piece.decode("utf-8", "replace")
        size = len(text.encode())
        if size > room:
            return _cut_line(text, number) if not lines else _with_note(lines, number), number
        lines.append(text)
        room, number = room - size, number + 1
    return _with_note(lines, number) if file.read(1) else _whole(lines, wanted), number


def _pass_over(file: IO[bytes], lines: int) -> None:
    passed = read = 0
    while passed < lines:
        piece = file.readline(_BLOCK)
        read += len(piece)
        if not piece:
            raise ToolFailed(f"The file ends before line {lines + 1:,}.")
        if read > FARTHEST:
            raise ToolFailed(f"That line lies beyond the first {FARTHEST >> 20} MiB, where this tool stops.")
        passed += piece.endswith(b"\n")


def _whole(lines: list[str], wanted: ReadArguments) -> str:
    if not lines and wanted.offset > 1:
        raise ToolFailed(f"The file ends before line {wanted.offset:,}.")
    return "".join(lines) or "(The file is empty.)"


def _with_note(lines: list[str], following: int) -> str:
    return f"{''.join(lines)}[There is more; read on with offset {following}.]"


def _cut_line(text: str, number: int) -> str:
    shown = text.encode()[:MOST_TEXT].decode("utf-8", "ignore")
    return f"{shown}\n[Line {number:,} is longer than this; read on after it with offset {number + 1}.]"


def _names_in(folder: int, parts: tuple[str, ...], call: ToolContext) -> Iterator[str]:
    """The names in an open folder that the caller may see, no more of them than it takes to tell that there are more."""
    above = () if parts == (".",) else parts

    def shown(entry: os.DirEntry[str]) -> bool:
        return not why_refused((*above, entry.name), call.person, group=call.group)

    with os.scandir(folder) as entries:
        yield from map(_name, islice(filter(shown, entries), MOST_ENTRIES + 1))


def _listed(names: Iterable[str]) -> str:
    some = list(names)
    shown = sorted(some[:MOST_ENTRIES])
    if len(some) > MOST_ENTRIES:
        shown.append(f"[There are more than these {MOST_ENTRIES}.]")
    return "\n".join(shown) or "(The folder is empty.)"


def _name(entry: os.DirEntry[str]) -> str:
    name = os.fsencode(entry.name).decode("utf-8", "replace")
    printable = "".join(character if character.isprintable() else "�" for character in name)
    return f"{printable}/" if entry.is_dir(follow_symlinks=False) else printable
