"""What plugins provide besides models: tools, commands, summarizers and flushes, each made once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from plugins.api.command import Command
from plugins.api.context import PluginContext
from plugins.api.summarization import MemoryFlush, Summarizer
from plugins.api.tool import Tool
from plugins.host.hooks import Hooks
from plugins.support.untrusted import PluginCallFailed, attempt

T = TypeVar("T")


class OpenedPlugins:
    """The four by name. Who holds one of these mappings sees what `fit` makes of it later; a turn that runs keeps what it
    took. `context` gives a thing what it is opened with, by the name of its folder and its settings."""

    def __init__(self, hooks: Hooks, context: Callable[[str, Any], PluginContext]) -> None:
        self._hooks = hooks
        self._house = context
        self.tools: dict[str, Tool] = {}
        self.commands: dict[str, Command] = {}
        self.summarizers: dict[str, Summarizer] = {}
        self.flushes: dict[str, MemoryFlush] = {}
        self.fit()

    def fit(self) -> None:
        """Make what is new, and leave out what is gone. What cannot be made is refused by name."""
        hooks = self._hooks
        self._fit("register_tools", self.tools, hooks.tools(), lambda name, kind: kind(self._house_of(name)))
        self._fit("register_commands", self.commands, hooks.commands(), lambda _, kind: kind())
        self._fit("register_summarizers", self.summarizers, hooks.summarizers(), lambda _, kind: kind())
        self._fit("register_flushes", self.flushes, hooks.flushes(), lambda _, kind: kind())

    def _fit(self, hook: str, made: dict[str, T], kinds: Mapping[str, type[T]], make: Callable[[str, Any], T]) -> None:
        before = dict(made)
        made.clear()
        for name, kind in kinds.items():
            if type(before.get(name)) is kind:
                made[name] = before[name]
                continue
            try:
                made[name] = attempt(functools.partial(make, name, kind))
            except PluginCallFailed as failed:
                self._hooks.refuse(self._hooks.owner(hook, name), hook, f"{name!r} could not be made ({failed})")

    def _house_of(self, tool: str) -> PluginContext:
        owner = self._hooks.owner("register_tools", tool)
        return self._house(tool if self._hooks.is_ours(owner) else owner, self._hooks.settings(owner))
