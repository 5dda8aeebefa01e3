"""The `edit` tool, which replaces a passage of a text file."""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Annotated, Any, ClassVar

import msgspec

from plugins.api.context import PluginContext
from plugins.api.tool import ApprovalRequest, ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.tools.file_changes import FileChange, FileChanges, check_size, convert, encode_text
from sessions.events.messages import ToolDefinition

CONTEXT_LINES = 2
"""Lines shown before and after the edited lines."""

MAX_LINES_SHOWN = 20
"""Maximum lines shown of an edit."""

MAX_LINE_CHARACTERS = 200
"""Maximum characters shown of a line."""

MAX_LINE_NUMBERS = 10
"""Maximum line numbers listed when a passage occurs more than once."""

MAX_LINES_COMPARED = 3000
"""Maximum lines searched for one that resembles a missing passage."""


class EditArguments(msgspec.Struct, frozen=True):
    """Arguments of the `edit` tool."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    old: Annotated[str, msgspec.Meta(min_length=1)]
    new: str
    all: bool = False


class Edit:
    """The `edit` tool, which replaces one passage of a text file by another."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="edit",
        description="Replace a passage of a text file in the workspace. The rest of the file is left unchanged.",
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Path of the file, relative to the workspace."},
                "old": {
                    "type": "string",
                    "description": "The passage exactly as in the file, with enough context to occur only once.",
                },
                "new": {"type": "string", "description": "The replacement; empty removes the passage."},
                "all": {
                    "type": "boolean",
                    "description": "Replace every occurrence; by default the passage must occur once.",
                },
            },
            "required": ["path", "old", "new"],
            "additionalProperties": False,
        },
    )
    # Not idempotent: the new passage may contain the old one.
    repeatable: ClassVar[bool] = False

    def __init__(self, context: PluginContext) -> None:
        self._changes = FileChanges(context)

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Edit the file and return the changed lines.

        Raises:
            ToolFailed: Nothing was changed; the message says why.
        """
        request = _checked(arguments)
        return await self._changes.apply(request.path, call, partial(_edit, request=request), new=False)

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest:
        """Describe the edit by the difference that it makes.

        Raises:
            ToolFailed: The edit would fail.
        """
        request = _checked(arguments)
        return await self._changes.describe(request.path, call, partial(_edit, request=request))


def _checked(arguments: dict[str, Any]) -> EditArguments:
    request = convert(arguments, EditArguments)
    encode_text(request.new)
    if request.old == request.new:
        raise ToolFailed("The old and the new passage are the same.")
    return request


def _edit(file: FileChange, request: EditArguments) -> str:
    if file.before is None:
        raise ToolFailed("The file does not exist.")
    text = _decode(file.before)
    old, new = _match_line_endings(text, request.old, request.new)
    count = text.count(old)
    if count == 0:
        raise ToolFailed(_not_found(text, old))
    if count > 1 and not request.all:
        raise ToolFailed(
            f"The passage occurs {count:,} times, in {_line_numbers(text, old, count)}; include more surrounding text,"
            " or set all to true."
        )
    check_size(len(text) + count * (len(new) - len(old)))  # before allocating the result
    edited = text.replace(old, new)
    file.replace(encode_text(edited))
    places = f"{count:,} place{'s' * (count != 1)}"
    # Not an error: the passage was found, so nothing was overwritten unseen.
    changed = (
        ""
        if file.known is None or file.known.is_of(file.before)
        else " The rest of the file has changed since it was read in this session."
    )
    return f"Edited {file.path} in {places}.{changed}\n{_excerpt(edited, text.index(old), new)}"


def _decode(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ToolFailed("The file is not UTF-8 text and cannot be edited.") from error
    if "\0" in text:
        raise ToolFailed("The file is not a text file.")
    return text


def _match_line_endings(text: str, old: str, new: str) -> tuple[str, str]:
    """Return both passages with the line endings of the file: models write `\\n` where the file has `\\r\\n`."""
    if old in text and "\n" in old:
        return old, new
    if "\r\n" not in text or "\r" in old or "\r" in new:
        return old, new
    return old.replace("\n", "\r\n"), new.replace("\n", "\r\n")


def _line_numbers(text: str, old: str, count: int) -> str:
    numbers, at = [], -len(old)
    for _ in range(min(count, MAX_LINE_NUMBERS)):
        at = text.index(old, at + len(old))
        numbers.append(f"{text.count(chr(10), 0, at) + 1}")
    more = f" and {count - MAX_LINE_NUMBERS:,} more" if count > MAX_LINE_NUMBERS else ""
    return f"lines {', '.join(numbers)}{more}"


def _not_found(text: str, old: str) -> str:
    sentence = "The passage does not occur in the file"
    first_line = next((line for line in old.splitlines() if line.strip()), "")[:MAX_LINE_CHARACTERS]
    lines = [line[:MAX_LINE_CHARACTERS] for line in islice(text.split("\n"), MAX_LINES_COMPARED)]
    nearest = get_close_matches(first_line, lines, n=1) if first_line.strip() else []
    if not nearest:
        return f"{sentence}; read the file again."
    return f"{sentence}; the nearest is line {lines.index(nearest[0]) + 1}: {nearest[0].strip()}"


def _excerpt(text: str, at: int, new: str) -> str:
    """Return the first edited place with line numbers and context."""
    first = text.count("\n", 0, at)
    last = first + new.count("\n")
    lines = text.removesuffix("\n").split("\n")
    numbered = list(enumerate(lines, start=1))[max(0, first - CONTEXT_LINES) : last + CONTEXT_LINES + 1]
    shown = [f"{number:>5}  {line.rstrip(chr(13))[:MAX_LINE_CHARACTERS]}" for number, line in numbered[:MAX_LINES_SHOWN]]
    return "\n".join(shown + ["       …"] * (len(numbered) > MAX_LINES_SHOWN))
