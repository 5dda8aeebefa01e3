"""The `write_memory` tool, which stores a long-term fact."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from plugins.api.context import PluginContext
from plugins.api.fact_values import TYPES, FactsError, InvalidFact, draft_fact
from plugins.api.tool import ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.tools.file_changes import convert
from sessions.events.messages import ToolDefinition


class WriteArguments(msgspec.Struct, frozen=True):
    """Arguments of the `write_memory` tool."""

    content: Annotated[str, msgspec.Meta(min_length=1)]
    type: str = "fact"
    importance: float = 0.6
    tags: tuple[str, ...] = ()


class WriteMemory:
    """The `write_memory` tool, which stores a fact for the person of the conversation."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="write_memory",
        description=(
            "Keep one small fact for later conversations: a preference, a decision, a convention, something about the person"
            " or their project. One self-contained sentence. Longer things belong in a note."
        ),
        parameters={
            "type": "object",
            "properties": {
                "content": {"type": "string", "description": "The fact, as one sentence."},
                "type": {"type": "string", "enum": list(TYPES)},
                "importance": {"type": "number", "minimum": 0.3, "maximum": 1.0, "description": "0.7 and more is critical."},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["content"],
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = False

    def __init__(self, context: PluginContext) -> None:
        self._facts = context.services.facts

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Store the fact and return its id as JSON.

        Raises:
            ToolFailed: The fact is invalid or cannot be stored.
        """
        wanted = convert(arguments, WriteArguments)
        try:
            draft = draft_fact(
                wanted.content, wanted.type, [tag for tag in wanted.tags if ":" not in tag], wanted.importance
            )
            (stored,) = await self._facts.write([draft], "model", owner=call.person)
        except (InvalidFact, FactsError) as error:
            raise ToolFailed(str(error)) from error
        return ToolOutput(text=msgspec.json.encode({"id": stored.id, "kept": stored.content}).decode())
