"""Tools: functions that the model can call."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from plugins.api.context import PluginContext
from sessions.events.messages import ToolDefinition


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """The call that a tool runs for.

    Attributes:
        session: The session's id.
        person: The id of the person whose message started the turn.
        turn: The number of the turn.
        call: The id of the call.
        group: Several people read this conversation. Do not return private data.
    """

    session: str
    person: str
    turn: int
    call: str
    group: bool = False


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call, as text for the model."""

    text: str


@runtime_checkable
class Tool(Protocol):
    """A function that the model can call. One instance serves all sessions concurrently."""

    definition: ClassVar[ToolDefinition]
    """The name, description and JSON Schema that the model sees."""
    repeatable: ClassVar[bool]
    """True if running a call twice has the same effect as running it once. If unsure, False.

    After a crash, interrupted calls of repeatable tools run again.
    """

    def __init__(self, context: PluginContext) -> None: ...

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Run a call and return its result.

        The task may be cancelled at any await and then has five seconds to finish.

        Args:
            arguments: The arguments as a JSON object. They have not been validated against the schema.
            call: The call.

        Raises:
            ToolFailed: The call failed. The model sees the message.
        """
        ...
