"""A plugin with one unrepeatable tool, whose effect can be counted: a line in the file `CLUSTER_EFFECTS` for each run.

It is loaded by the gateways of a cluster, which find it by the metadata that `install` writes.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from exuvia import PluginContext, ToolContext, ToolDefinition, ToolOutput, hookimpl

NAME = "effect"
EFFECTS = "CLUSTER_EFFECTS"
PAUSE_SECONDS = 0.05
"""How long a call runs after its effect, in which the gateway may be killed."""


class Effect:
    """The tool."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name=NAME, description="Does something that must not be done twice.", parameters={"type": "object"}
    )
    repeatable: ClassVar[bool] = False

    def __init__(self, context: PluginContext) -> None:
        self._path = context.environment[EFFECTS]

    async def run(self, arguments: Mapping[str, Any], call: ToolContext) -> ToolOutput:
        """Write one line, at once."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{call.call}\n".encode())
        finally:
            os.close(file)
        await asyncio.sleep(PAUSE_SECONDS)
        return ToolOutput(text="Done.")


@hookimpl
def register_tools() -> Sequence[type]:
    """Provide the tool."""
    return [Effect]


def install(folder: Path) -> None:
    """Write the metadata of an installed package into a folder of the path of imports."""
    info = folder / f"{NAME}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[exuvia]\n{NAME} = {__name__}\n")


def effects(path: Path) -> Counter[str]:
    """Count the effects of each call."""
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()
