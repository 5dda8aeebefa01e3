"""The tools, commands, summarizers and flushes of plugins, each instantiated once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from plugins.api.command import Command
from plugins.api.compaction import MemoryFlush, Summarizer
from plugins.api.context import PluginContext
from plugins.api.tool import Tool
from plugins.host.hooks import Hooks
from plugins.support.untrusted import PluginCallFailed, attempt

T = TypeVar("T")


class OpenedPlugins:
    """The instances by name.

    A holder of one of these mappings sees the changes of a later `refresh`; a running turn keeps the instances that it
    took. `context` returns the context of a plugin by its folder's name and its settings.
    """

    def __init__(self, hooks: Hooks, context: Callable[[str, Any], PluginContext]) -> None:
        self._hooks = hooks
        self._context = context
        self.tools: dict[str, Tool] = {}
        self.commands: dict[str, Command] = {}
        self.summarizers: dict[str, Summarizer] = {}
        self.flushes: dict[str, MemoryFlush] = {}
        self.refresh()

    def refresh(self) -> None:
        """Instantiate what is new and drop what is gone. A class that cannot be instantiated is refused by name."""
        hooks = self._hooks
        self._refresh("register_tools", self.tools, hooks.tools(), lambda name, kind: kind(self._context_of(name)))
        self._refresh("register_commands", self.commands, hooks.commands(), lambda _, kind: kind())
        self._refresh("register_summarizers", self.summarizers, hooks.summarizers(), lambda _, kind: kind())
        self._refresh("register_flushes", self.flushes, hooks.flushes(), lambda _, kind: kind())

    def _refresh(self, hook: str, made: dict[str, T], kinds: Mapping[str, type[T]], make: Callable[[str, Any], T]) -> None:
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

    def _context_of(self, tool: str) -> PluginContext:
        owner = self._hooks.owner("register_tools", tool)
        return self._context(tool if self._hooks.is_builtin(owner) else owner, self._hooks.settings(owner))
