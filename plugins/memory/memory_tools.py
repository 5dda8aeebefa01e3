"""The tools `memory_search` and `memory_get`, which return results with their citations."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from plugins.api.context import PluginContext
from plugins.api.memory.scope import Scope
from plugins.api.plugin_services import IndexUnusable
from plugins.api.tool import ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.support.workspace import own_note
from plugins.tools.file_changes import convert
from sessions.events.messages import ToolDefinition

LINES = 400
"""Maximum lines of a note in one answer."""


def scope_of(call: ToolContext) -> Scope:
    """Return the scope of the conversation of a call."""
    return Scope.of_person(call.person, group=call.group, notes=call.notes)


class SearchArguments(msgspec.Struct, frozen=True):
    """Arguments of `memory_search`: the query and its filters."""

    query: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    max_results: Annotated[int, msgspec.Meta(ge=1, le=50)] | None = None
    since: date | None = msgspec.field(name="from", default=None)
    until: date | None = msgspec.field(name="to", default=None)
    sender: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None
    source: Literal["notes", "sessions"] | None = None

    def narrowed(self, scope: Scope) -> Scope:
        """Return the scope restricted by the filters."""
        sources = {None: None, "notes": frozenset({"notes", "extra"}), "sessions": frozenset({"sessions"})}[self.source]
        return msgspec.structs.replace(scope, since=self.since, until=self.until, sender=self.sender, sources=sources)


class GetArguments(msgspec.Struct, frozen=True):
    """Arguments of `memory_get`: a path, the first line (from 1) and the number of lines."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    start: Annotated[int, msgspec.Meta(ge=1)] = 1
    lines: Annotated[int, msgspec.Meta(ge=1)] = LINES


class MemorySearch:
    """The `memory_search` tool, which searches notes and conversations."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="memory_search",
        description=(
            "Search the notes (MEMORY.md and memory/) and earlier conversations for what was said, decided or preferred"
            " before. Give a question or the exact words. Each result has a citation, path#Lfirst-Llast; memory_get reads"
            " more of it."
        ),
        parameters={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "max_results": {"type": "integer", "minimum": 1, "maximum": 50, "description": "How many results at most."},
                "from": {"type": "string", "format": "date", "description": "The first day, YYYY-MM-DD."},
                "to": {"type": "string", "format": "date", "description": "The last day, YYYY-MM-DD."},
                "sender": {"type": "string", "description": "Who said it, in conversations; “assistant” is you."},
                "source": {
                    "type": "string",
                    "enum": ["notes", "sessions"],
                    "description": "Search only these; default: both.",
                },
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = True

    def __init__(self, context: PluginContext) -> None:
        self._memory = context.services.memory

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Return the results as JSON.

        Raises:
            ToolFailed: The index cannot be used.
        """
        request = convert(arguments, SearchArguments)
        try:
            found = await self._memory.search(request.query, request.narrowed(scope_of(call)), results=request.max_results)
        except IndexUnusable as error:
            raise ToolFailed(str(error)) from error
        results = [
            {
                "citation": hit.citation,
                "score": round(hit.score, 3),
                "headings": hit.chunk.headings,
                "text": hit.chunk.text,
            }
            for hit in found.hits
        ]
        answer: dict[str, Any] = {"results": results}
        if found.remarks:
            answer["remarks"] = found.remarks
        return ToolOutput(text=msgspec.json.encode(answer).decode())


class MemoryGet:
    """The `memory_get` tool, which reads a note or conversation."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="memory_get",
        description=(
            "Read a note (MEMORY.md or one in memory/) or an earlier conversation (sessions/….jsonl), or lines of it, such"
            " as those that memory_search named."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The note, such as memory/2026-11-21.md."},
                "start": {"type": "integer", "minimum": 1, "description": "The first line, counted from 1."},
                "lines": {"type": "integer", "minimum": 1, "description": f"How many lines, {LINES} at most."},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = True

    def __init__(self, context: PluginContext) -> None:
        self._memory = context.services.memory

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Return JSON with `text` and `path`; the text is empty if the note does not exist.

        Raises:
            ToolFailed: The path cannot be a note (ENOENT).
        """
        request = convert(arguments, GetArguments)
        path = own_note(call.person, request.path)
        text = await self._memory.excerpt(path, request.start, min(request.lines, LINES), scope_of(call))
        if text is None:
            raise ToolFailed(f"ENOENT: {request.path} is not a note; notes are MEMORY.md and the .md files in memory/.")
        return ToolOutput(text=msgspec.json.encode({"text": text, "path": path}).decode())
