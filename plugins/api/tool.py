"""The API of tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import msgspec

from plugins.api.context import PluginContext
from sessions.events.messages import ToolDefinition

if TYPE_CHECKING:
    pass


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """For which call a tool runs. In a `group` others read along."""

    session: str
    person: str
    turn: int
    call: str
    group: bool = False


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returned, as text for the model."""

    text: str


@runtime_checkable
class Tool(Protocol):
    """Something the model may do. One instance serves all sessions."""

    definition: ClassVar[ToolDefinition]
    repeatable: ClassVar[bool]
    """Whether running it twice does the same as once: after a crash such a call is run again. False if in doubt."""

    def __init__(self, context: PluginContext) -> None: ...

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Do it. `arguments` is a JSON object that was not checked against the schema. Raises ToolFailed, whose sentence
        the model is shown. May be cancelled at any await; it then has five seconds to end."""
        ...
