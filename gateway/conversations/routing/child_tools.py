"""The tools of one session: those that its agent has and the person's role allows, and of a subagent those chosen for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, ValuesView
from fnmatch import fnmatchcase

from gateway.support.printable import one_line
from plugins.api.tool import Tool
from sessions.events.events import ChildOf

PATTERNS, PATTERN_CHARACTERS = 50, 64
"""The number of names that may be chosen, and the length of each."""

LISTED = 10
"""Maximum tools that a refusal names."""


def fault_of_tools(chosen: Sequence[str], tools: Mapping[str, Tool]) -> str | None:
    """Return a sentence that says why these names cannot be chosen of the parent's tools; None if they can."""
    if len(chosen) > PATTERNS or any(len(name) > PATTERN_CHARACTERS for name in chosen):
        return f"At most {PATTERNS} tools of {PATTERN_CHARACTERS} characters each can be chosen."
    for name in chosen:
        if not any(fnmatchcase(tool, name) for tool in tools):
            known = ", ".join([one_line(tool, 30) for tool in tools][:LISTED]) or "none"
            return f"There is no tool {one_line(name, PATTERN_CHARACTERS)!r} here; the first ones are: {known}."
    return None


def tools_of_session(
    tools: Mapping[str, Tool], parent: ChildOf | None, allowed: Callable[[str], bool]
) -> Mapping[str, Tool]:
    """Return the tools that a session has, of those that its agent has now: `allowed` says which the person's role has."""
    patterns = None if parent is None else parent.tools

    def has(name: str) -> bool:
        return allowed(name) and (patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns))

    return ChosenTools(tools, has)


class ChosenTools(Mapping[str, Tool]):
    """The tools whose names are chosen, as they are at each time."""

    def __init__(self, tools: Mapping[str, Tool], has: Callable[[str], bool]) -> None:
        self._tools = tools
        self._has = has

    def __getitem__(self, name: str) -> Tool:
        if not self._has(name):
            raise KeyError(name)
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return filter(self._has, self._tools)

    def values(self) -> ValuesView[Tool]:
        """Return the tools, each examined once: every turn lists them."""
        return {name: tool for name, tool in self._tools.items() if self._has(name)}.values()

    def __len__(self) -> int:
        return sum(1 for _ in self)
