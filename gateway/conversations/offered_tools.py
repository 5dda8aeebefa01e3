"""The tools that the model is offered now, by what `agent.workspace_access` lets it do with the workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import structlog

from gateway.errors import sentence_of
from plugins.contracts import House, NoSettings, Tool

Access: TypeAlias = Literal["rw", "ro", "none"]

log = structlog.get_logger("exuvia")

_WITHHELD: dict[Access, frozenset[str]] = {
    "rw": frozenset(),
    "ro": frozenset({"write", "edit", "write_memory"}),
    "none": frozenset({"read", "write", "edit", "memory_search", "memory_get", "write_memory"}),
}


class OfferedTools(Mapping[str, Tool]):
    """Tools by name. The configuration is asked each time: what it allows is offered from the next turn on, and what it
    forbids is refused at once."""

    def __init__(self, tools: Mapping[str, Tool], access: Callable[[], Access]) -> None:
        self._tools = tools
        self._access = access

    def __getitem__(self, name: str) -> Tool:
        if name in _WITHHELD[self._access()]:
            raise KeyError(name)
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        withheld = _WITHHELD[self._access()]
        return (name for name in self._tools if name not in withheld)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def opened_tools(kinds: Mapping[str, type[Tool]], house: Callable[[str, Any], House]) -> dict[str, Tool]:
    """Each tool with its house; one that cannot be made is named in the log and left out."""
    tools: dict[str, Tool] = {}
    for name, kind in kinds.items():
        try:
            tools[name] = kind(house(name, NoSettings()))
        except Exception as error:
            log.error("tool_not_opened", tool=name, reason=sentence_of(error))
    return tools
