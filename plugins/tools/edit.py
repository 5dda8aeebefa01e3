"""The `edit` tool: a passage of a text file for another."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any, ClassVar

import msgspec

from plugins.api.context import PluginContext
from plugins.api.tool import ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.tools.file_changes import FileChange, FileChanges, check_size, convert, encoded
from sessions.events.messages import ToolDefinition

AROUND = 2
"""Lines shown before and behind what was edited."""

MOST_SHOWN = 20
"""Lines shown of an edit."""

LINE_SHOWN = 200
"""Characters shown of one line."""

MOST_NAMED = 10
"""Places named by their lines."""

LINES_COMPARED = 3000
"""Lines that are looked through for one that resembles a passage that is not there."""


class EditArguments(msgspec.Struct, frozen=True):
    """What the model gives."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    old: Annotated[str, msgspec.Meta(min_length=1)]
    new: str
    all: bool = False


class Edit:
    """Puts one passage of a text file in the place of another."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="edit",
        description="Replace a passage of a text file of the workspace. Everything else in the file stays as it is.",
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, from the workspace on."},
                "old": {
                    "type": "string",
                    "description": "The passage as it stands in the file, with enough around it to occur only once.",
                },
                "new": {"type": "string", "description": "What stands there afterwards; empty removes the passage."},
                "all": {"type": "boolean", "description": "Replace it wherever it occurs; by default it must occur once."},
            },
            "required": ["path", "old", "new"],
            "additionalProperties": False,
        },
    )
    # Where the new passage contains the old one, doing it twice is not doing it once.
    repeatable: ClassVar[bool] = False

    def __init__(self, context: PluginContext) -> None:
        self._changes = FileChanges(context)

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Edit, and show the lines as they are now; ToolFailed with the reason if nothing was done."""
        wanted = convert(arguments, EditArguments)
        encoded(wanted.new)
        if wanted.old == wanted.new:
            raise ToolFailed("The old and the new passage are the same.")
        return await self._changes.make(wanted.path, call, lambda file: _edit(file, wanted), new=False)


def _edit(file: FileChange, wanted: EditArguments) -> str:
    if file.before is None:
        raise ToolFailed("There is no such file.")
    text = _text(file.before)
    old, new = _with_its_line_ends(text, wanted.old, wanted.new)
    count = text.count(old)
    if count == 0:
        raise ToolFailed(_not_there(text, old))
    if count > 1 and not wanted.all:
        raise ToolFailed(
            f"The passage occurs {count:,} times, in {_lines(text, old, count)}; give more of the text around the one that"
            " is meant, or set all to true."
        )
    check_size(len(text) + count * (len(new) - len(old)))  # before the memory is taken for it
    edited = text.replace(old, new)
    file.replace(encoded(edited))
    places = f"{count:,} place{'s' * (count != 1)}"
    # The passage was found all the same, so nothing was overwritten blindly.
    changed = (
        ""
        if file.known is None or file.known.is_of(file.before)
        else " The rest of the file has changed since it was read here."
    )
    return f"Edited {file.path} in {places}.{changed}\n{_shown(edited, text.index(old), new)}"


def _text(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ToolFailed("The file is not UTF-8 text, so it is not edited.") from error
    if "\0" in text:
        raise ToolFailed("It is not a text file.")
    return text


def _with_its_line_ends(text: str, old: str, new: str) -> tuple[str, str]:
    """The passages with the file's line ends where it has those of Windows, which models do not write."""
    if old in text and "\n" in old:
        return old, new
    if "\r\n" not in text or "\r" in old or "\r" in new:
        return old, new
    return old.replace("\n", "\r\n"), new.replace("\n", "\r\n")


def _lines(text: str, old: str, count: int) -> str:
    numbers, at = [], -len(old)
    for _ in range(min(count, MOST_NAMED)):
        at = text.index(old, at + len(old))
        numbers.append(f"{text.count(chr(10), 0, at) + 1}")
    more = f" and {count - MOST_NAMED:,} more" if count > MOST_NAMED else ""
    return f"lines {', '.join(numbers)}{more}"


def _not_there(text: str, old: str) -> str:
    sentence = "The passage does not occur in the file"
    wanted = next((line for line in old.splitlines() if line.strip()), "")[:LINE_SHOWN]
    lines = [line[:LINE_SHOWN] for line in islice(text.split("\n"), LINES_COMPARED)]
    nearest = get_close_matches(wanted, lines, n=1) if wanted.strip() else []
    if not nearest:
        return f"{sentence}; read it again."
    return f"{sentence}; the nearest is line {lines.index(nearest[0]) + 1}: {nearest[0].strip()}"


def _shown(text: str, at: int, new: str) -> str:
    """The first place that was edited, with its lines numbered and those around it."""
    first = text.count("\n", 0, at)
    last = first + new.count("\n")
    lines = text.removesuffix("\n").split("\n")
    numbered = list(enumerate(lines, start=1))[max(0, first - AROUND) : last + AROUND + 1]
    shown = [f"{number:>5}  {line.rstrip(chr(13))[:LINE_SHOWN]}" for number, line in numbered[:MOST_SHOWN]]
    return "\n".join(shown + ["       …"] * (len(numbered) > MOST_SHOWN))
