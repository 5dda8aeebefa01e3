"""The `write` tool, which creates, replaces or extends a text file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from plugins.api.context import PluginContext
from plugins.api.tool import ApprovalRequest, ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.tools.file_changes import FileChange, FileChanges, convert, describe_size, encode_text
from plugins.tools.read import MAX_TEXT_BYTES
from sessions.events.messages import ToolDefinition


class WriteArguments(msgspec.Struct, frozen=True):
    """Arguments of the `write` tool."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    content: str
    mode: Literal["create", "replace", "append"] = "create"


class Write:
    """The `write` tool, which writes a text file of the workspace."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="write",
        description=(
            "Write a text file in the workspace. Missing folders are created. To change part of a file, use `edit`."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Path of the file, relative to the workspace."},
                "content": {"type": "string", "description": "The text."},
                "mode": {
                    "type": "string",
                    "enum": ["create", "replace", "append"],
                    "description": (
                        "`create` (the default) creates a new file; `replace` replaces the whole content of a file that was"
                        " read completely before; `append` adds the text on a new line at the end, creating the file if"
                        " necessary."
                    ),
                },
            },
            "required": ["path", "content"],
            "additionalProperties": False,
        },
    )
    # Not idempotent: an append would be duplicated, and a replacement repeated after a crash would undo later changes.
    repeatable: ClassVar[bool] = False

    def __init__(self, context: PluginContext) -> None:
        self._changes = FileChanges(context)

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Write the file and return a summary.

        Raises:
            ToolFailed: Nothing was written; the message says why.
        """
        path, change = _requested(arguments)
        return await self._changes.apply(path, call, change, new=True)

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest:
        """Describe the difference that it makes.

        Raises:
            ToolFailed: Nothing would be written.
        """
        path, change = _requested(arguments)
        return await self._changes.describe(path, call, change)


def _requested(arguments: dict[str, Any]) -> tuple[str, Callable[[FileChange], str]]:
    """Return the path and the change that the arguments request."""
    request = convert(arguments, WriteArguments)
    ways = {"create": _create, "replace": _replace, "append": _append}
    return request.path, partial(ways[request.mode], content=encode_text(request.content))


def _create(file: FileChange, content: bytes) -> str:
    if file.before is not None:
        raise ToolFailed("The file already exists; read it, then use mode replace or append, or edit.")
    file.replace(content)
    return f"Created {file.path}: {describe_size(content)}."


def _replace(file: FileChange, content: bytes) -> str:
    if file.before is None:
        return _create(file, content)
    if file.known is None:
        raise ToolFailed("The file exists but was not read in this session; read it first.")
    if not file.known.is_of(file.before):
        raise ToolFailed("The file has changed since it was read in this session; read it again first.")
    if unseen := file.known.unseen(file.before):
        raise ToolFailed(_unseen(file.before, *unseen))
    file.replace(content)
    return f"Replaced {file.path}: now {describe_size(content)}, before {describe_size(file.before)}."


def _unseen(content: bytes, first: int, last: int) -> str:
    which = f"Line {first:,} was" if first == last else f"Lines {first:,} to {last:,} were"
    if len(content.split(b"\n", first)[first - 1]) > MAX_TEXT_BYTES:
        return f"Line {first:,} is too long to be read completely; use edit, or write to another file."
    return f"{which} not read in this session; read from offset {first} first, or use edit."


def _append(file: FileChange, content: bytes) -> str:
    if file.before is None:
        return _create(file, content)
    if file.before and not file.before.endswith(b"\n"):
        content = b"\n" + content
    file.append(content)
    return f"Appended to {file.path}: now {describe_size(file.before + content)}, before {describe_size(file.before)}."
