"""The `write` tool: a new text file, another content for one, or something at its end."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from plugins.api.context import PluginContext
from plugins.api.tool import ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.tools.file_changes import FileChange, FileChanges, convert, encoded, size
from plugins.tools.read import MOST_TEXT
from sessions.events.messages import ToolDefinition


class WriteArguments(msgspec.Struct, frozen=True):
    """What the model gives."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    content: str
    mode: Literal["create", "replace", "append"] = "create"


class Write:
    """Writes a text file of the workspace."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="write",
        description=(
            "Write a text file of the workspace. Missing folders are made. To change a part of a file, `edit` is better."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, from the workspace on."},
                "content": {"type": "string", "description": "The text."},
                "mode": {
                    "type": "string",
                    "enum": ["create", "replace", "append"],
                    "description": (
                        "`create` (the default) makes a new file; `replace` puts the text in the place of all that is in"
                        " the file, which must have been read before, to its end; `append` adds it at the end, on a line of"
                        " its own, and makes the file if there is none."
                    ),
                },
            },
            "required": ["path", "content"],
            "additionalProperties": False,
        },
    )
    # Appended twice is twice there; and a replacement that is made again after a crash would undo what came between.
    repeatable: ClassVar[bool] = False

    def __init__(self, context: PluginContext) -> None:
        self._changes = FileChanges(context)

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Write, and say what was done; ToolFailed with the reason if nothing was."""
        wanted = convert(arguments, WriteArguments)
        ways = {"create": _create, "replace": _replace, "append": _append}
        change = partial(ways[wanted.mode], content=encoded(wanted.content))
        return await self._changes.make(wanted.path, call, change, new=True)


def _create(file: FileChange, content: bytes) -> str:
    if file.before is not None:
        raise ToolFailed("There is such a file already; read it, then use mode replace or append, or edit.")
    file.replace(content)
    return f"Created {file.path}: {size(content)}."


def _replace(file: FileChange, content: bytes) -> str:
    if file.before is None:
        return _create(file, content)
    if file.known is None:
        raise ToolFailed("The file exists and was not read in this session; read it first.")
    if not file.known.is_of(file.before):
        raise ToolFailed("The file has changed since it was read here; read it again first.")
    if unseen := file.known.unseen(file.before):
        raise ToolFailed(_unseen(file.before, *unseen))
    file.replace(content)
    return f"Replaced {file.path}: now {size(content)}, before {size(file.before)}."


def _unseen(content: bytes, first: int, last: int) -> str:
    which = f"line {first:,} was" if first == last else f"lines {first:,} to {last:,} were"
    if len(content.split(b"\n", first)[first - 1]) > MOST_TEXT:
        return f"Line {first:,} of this file is too long to be read whole; use edit, or write to another file."
    return f"Of this file {which} not read in this session; read on with offset {first} first, or use edit."


def _append(file: FileChange, content: bytes) -> str:
    if file.before is None:
        return _create(file, content)
    if file.before and not file.before.endswith(b"\n"):
        content = b"\n" + content
    file.append(content)
    return f"Appended to {file.path}: now {size(file.before + content)}, before {size(file.before)}."
