"""A workspace with something outside it, and the file tools on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from exuvia import NoSettings, PluginContext, ProviderContext, Tool, ToolContext, ToolFailed
from plugins.testing.contexts import ManualClock, in_memory_services
from plugins.tools.edit import Edit
from plugins.tools.read import Read
from plugins.tools.write import Write

CANARY = "the secret outside\n"


def context(workspace: Path) -> PluginContext:
    return PluginContext(
        settings=NoSettings(),
        folder=workspace,
        workspace=workspace,
        clock=ManualClock(),
        transport=cast(Any, None),
        environment=os.environ,
        services=in_memory_services(),
        protected=lambda: ("AGENTS.md", "memory/sealed.md"),
    )


def provider_context(workspace: Path) -> ProviderContext:
    return ProviderContext(
        settings=NoSettings(),
        folder=workspace,
        workspace=workspace,
        clock=ManualClock(),
        transport=cast(Any, None),
        environment=os.environ,
    )


def call(session: str = "s") -> ToolContext:
    return ToolContext(session=session, person="owner", turn=1, call="call_1_0")


class Workspace:
    """The three tools, asked as a model asks them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "workspace"
        self.outside = folder / "outside"
        self.canary = self.outside / "secret.txt"
        self.folder.mkdir()
        self.outside.mkdir()
        self.canary.write_text(CANARY)
        rules = context(self.folder)
        self.tools: dict[str, Tool] = {"read": Read(rules), "write": Write(rules), "edit": Edit(rules)}

    async def do(self, tool: str, path: str, *, session: str = "s", **arguments: object) -> str:
        return (await self.tools[tool].run({"path": path, **arguments}, call(session))).text

    async def refusal(self, tool: str, path: str, **arguments: Any) -> str:
        with pytest.raises(ToolFailed) as refused:
            await self.do(tool, path, **arguments)
        return str(refused.value)

    def text(self, path: str) -> str:
        return (self.folder / path).read_bytes().decode()

    def put(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.write_bytes(text.encode())
        return file

    def names(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}

    def check_outside(self) -> None:
        """Nothing outside was touched."""
        assert os.listdir(self.outside) == ["secret.txt"]
        assert self.canary.read_text() == CANARY
        assert set(os.listdir(self.outside.parent)) <= {"workspace", "outside", "link", "aside"}
