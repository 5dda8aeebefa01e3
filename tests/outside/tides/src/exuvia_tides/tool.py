"""The tool `tide`."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from exuvia import PluginContext, ProviderError, ToolContext, ToolDefinition, ToolFailed, ToolOutput


class Arguments(msgspec.Struct, frozen=True):
    """What the model gives."""

    harbour: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """What the service says."""

    high: str
    low: str


class Tide:
    """Asks the service when the water is high and when it is low."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="tide",
        description="Say when the water is high and when it is low today, in a harbour.",
        parameters={
            "type": "object",
            "properties": {"harbour": {"type": "string", "description": "The harbour; by default the one at home."}},
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = True

    def __init__(self, context: PluginContext) -> None:
        self._context = context

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Ask for today's."""
        settings = self._context.settings
        try:
            wanted = msgspec.convert(arguments, Arguments)
            answer = await self._context.transport.post(
                f"{settings.address}/today",
                headers={"X-Key": settings.api_key.reveal() if settings.api_key else ""},
                body=msgspec.json.encode({"harbour": wanted.harbour or settings.harbour}),
            )
            told = msgspec.json.decode(answer, type=Answer)
        except (ProviderError, msgspec.MsgspecError, UnicodeError) as error:
            raise ToolFailed(f"Nobody knows the tides: {error}") from error
        return ToolOutput(text=f"High at {told.high}, low at {told.low}.")
