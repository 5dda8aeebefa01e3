"""A tool whose output comes when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from exuvia import PluginContext, ToolContext, ToolDefinition, ToolFailed, ToolOutput
from tests.gateway.gateways import Gateway, gateway
from tests.shelf import Shelf

SOURCE = """
from exuvia import hookimpl
from tests.gateway.working_tool import Working

@hookimpl
def register_tools():
    return [Working]
"""


class Working:
    """The tool `work`. `orders` are carried out one by one: a text is shown, a result or an error ends the call."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="work", description="Work.", parameters={"type": "object", "properties": {"command": {"type": "string"}}}
    )
    repeatable: ClassVar[bool] = True
    orders: ClassVar[asyncio.Queue[str | ToolOutput | ToolFailed]] = asyncio.Queue()

    def __init__(self, context: PluginContext) -> None:
        type(self).orders = asyncio.Queue()

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Carry out the orders until one of them ends the call."""
        while isinstance(order := await self.orders.get(), str):
            call.progress(order)
        if isinstance(order, ToolFailed):
            raise order
        return order


CALLING: list[Mapping[str, Any]] = [
    {"text": "Let me see.", "calls": [{"tool": "work", "arguments": {"command": "make test"}}]},
    {"text": "Done."},
]


@asynccontextmanager
async def working(
    home: Path, patch: pytest.MonkeyPatch, *, script: list[Mapping[str, Any]] | None = None, **given: Any
) -> AsyncIterator[Gateway]:
    """Run a gateway whose model calls the tool `work` once, unless a script says otherwise."""
    Shelf(home / "shelf", patch).install("exuvia_work", "work", SOURCE)
    settings = {"plugins.allow": ["work"]} | given.pop("settings", {})
    async with gateway(home, script=script or CALLING, settings=settings, **given) as running:
        yield running
