"""The tools that a model is offered, limited by `agent.workspace_access`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from gateway.config.settings import Settings
from plugins.api.tool import Tool

Access: TypeAlias = Literal["rw", "ro", "none"]

_WITHHELD: dict[Access, frozenset[str]] = {
    "rw": frozenset(),
    "ro": frozenset({"write", "edit", "write_memory"}),
    "none": frozenset({"read", "write", "edit", "memory_search", "memory_get", "write_memory"}),
}


class OfferedTools(Mapping[str, Tool]):
    """Tools by name. The configuration is read on each access: an allowed tool is offered from the next turn on, a
    forbidden one is refused at once."""

    def __init__(self, tools: Mapping[str, Tool], settings: Settings) -> None:
        self._tools = tools
        self._settings = settings

    def __getitem__(self, name: str) -> Tool:
        if name in _WITHHELD[self._settings.current.agent.workspace_access]:
            raise KeyError(name)
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        withheld = _WITHHELD[self._settings.current.agent.workspace_access]
        return (name for name in self._tools if name not in withheld)

    def __len__(self) -> int:
        return sum(1 for _ in self)
