"""The tool `spawn`, with which a model gives a task to a subagent. It is offered only if `tools.spawn.enabled` is set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, cast

import msgspec

from gateway.config.keys import SpawnKeys
from gateway.conversations.routing.subagents import SpawnRefused, Subagents, SubagentTask
from gateway.support.errors import sentence_of
from plugins.api.tool import ApprovalRequest, Tool, ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.tools.file_changes import convert
from sessions.events.errors import StorageFailed
from sessions.events.messages import ToolDefinition

WHAT = 100
"""Characters of the task in the line that a person is asked about; all of it is shown below."""


class SpawnArguments(msgspec.Struct, frozen=True):
    """Arguments of the `spawn` tool."""

    task: Annotated[str, msgspec.Meta(min_length=1)]
    tools: tuple[str, ...] | None = None

    @property
    def wanted(self) -> SubagentTask:
        """The task with its tools."""
        return SubagentTask(text=self.task, tools=self.tools)


class SpawnTool:
    """The `spawn` tool."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="spawn",
        description=(
            "Give a task to a subagent, which works on it in a conversation of its own, with your tools and at the same"
            " time. It sees nothing of this conversation, so the task must contain all that it needs. Its result comes as a"
            " message later: end your turn instead of waiting for it."
        ),
        parameters={
            "type": "object",
            "properties": {
                "task": {"type": "string", "description": "The whole task, with all that is needed for it."},
                "tools": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "The only tools of yours that it needs, by name; left out, it has all of them.",
                },
            },
            "required": ["task"],
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = True  # a call starts one subagent, however often it runs

    def __init__(self, subagents: Subagents) -> None:
        self._subagents = subagents

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest:
        """Describe the task. Raises ToolFailed if no subagent can be started."""
        given = convert(arguments, SpawnArguments)
        try:
            self._subagents.check(call.session, given.wanted, f"call:{call.call}")
        except SpawnRefused as error:
            raise ToolFailed(sentence_of(error)) from error
        shown = " ".join(given.task.split())
        tools = "" if given.tools is None else f"\n\nOnly with the tools: {', '.join(given.tools) or 'none'}"
        return ApprovalRequest(
            what=f"spawn: {shown[:WHAT]}{'…' if len(shown) > WHAT else ''}", detail=f"{given.task}{tools}"
        )

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Start the subagent. Raises ToolFailed."""
        wanted = convert(arguments, SpawnArguments).wanted
        try:
            child = await self._subagents.spawn(call.session, wanted, f"call:{call.call}")
        except (SpawnRefused, StorageFailed) as error:
            raise ToolFailed(sentence_of(error)) from error
        return ToolOutput(text=f"Started the subagent {child.started.child}. Its result comes as a message.")


class SpawnTools:
    """The tool as a `ToolSource`. `keys` returns the present section `[tools.spawn]`."""

    def __init__(self, keys: Callable[[], SpawnKeys], subagents: Subagents) -> None:
        self._keys = keys
        self._tools = {SpawnTool.definition.name: cast("Tool", SpawnTool(subagents))}

    def tools(self) -> Mapping[str, Tool]:
        """Return the tool if it is enabled."""
        return self._tools if self._keys().enabled else {}
