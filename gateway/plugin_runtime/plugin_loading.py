"""Loading the plugins that the configuration allows, and instantiating what they provide."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import structlog

from gateway.config.keys import Config
from gateway.config.validation import Validator
from gateway.support.errors import ConfigRefused
from plugins.api.command import Command
from plugins.api.compaction import MemoryFlush, Summarizer
from plugins.api.context import PluginContext
from plugins.api.tool import Tool
from plugins.host.hooks import Hooks
from plugins.host.loading import Fit, PluginFolder, load_one, load_plugins
from plugins.support.errors import SettingsRefused
from plugins.support.untrusted import PluginCallFailed, attempt

T = TypeVar("T")

log = structlog.get_logger("exuvia.config")


def allowed_plugins(config: Config, folders: Sequence[PluginFolder] = (), *, but: str = "") -> Hooks:
    """Load the built-in plugins, those in `folders`, and those listed in `plugins.allow`, except `but`. Of the built-in
    channels only those that are configured are loaded.

    A plugin whose table is invalid is refused with the path of the key; the others are loaded.
    """
    fit = plugin_tables(config)
    ours = {but, *(folder.name for folder in folders)}
    channels = {keys.kind for keys in config.channels.values()}
    hooks = load_plugins([name for name in config.plugins.allow if name not in ours], fit, channels)
    for folder in folders:
        load_one(hooks, folder.name, str(folder.path), folder.load, fit)
    return hooks


def plugin_tables(config: Config) -> Fit:
    """Return a function that validates a plugin's table `[plugins.NAME]`, with secrets resolved and warnings logged."""

    def fit(name: str, form: type[Any]) -> Any:
        validator = Validator(config.sources, config.references)
        try:
            settings = validator.fit(config.plugins.tables.get(name, {}), form, f"plugins.{name}")
        except ConfigRefused as refused:
            raise SettingsRefused(str(refused)) from refused
        for warning in validator.warnings:
            log.warning("configuration", warning=warning)
        return settings

    return fit


def unread_tables(config: Config, hooks: Hooks) -> list[str]:
    """Return a sentence for each table `[plugins.NAME]` whose plugin is neither loaded nor refused."""
    known = {*hooks.plugins, *config.plugins.allow}
    return [
        f"{config.sources.place(f'plugins.{name}')}: plugins.{name} is not used; plugins.allow does not list {name!r}."
        for name in config.plugins.tables
        if name not in known
    ]


class OpenedPlugins:
    """The tools, commands, summarizers and flushes of plugins by name, each instantiated once.

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
        """Create new instances and drop those of removed plugins. A class that cannot be instantiated is refused by name."""
        hooks = self._hooks
        self._refresh("register_tools", self.tools, hooks.tools(), lambda name, kind: kind(self._context_of(name)))
        self._refresh("register_commands", self.commands, hooks.commands(), lambda _, kind: kind())
        self._refresh("register_summarizers", self.summarizers, hooks.summarizers(), lambda _, kind: kind())
        self._refresh("register_flushes", self.flushes, hooks.flushes(), lambda _, kind: kind())

    def _refresh(
        self, hook: str, instances: dict[str, T], kinds: Mapping[str, type[T]], make: Callable[[str, Any], T]
    ) -> None:
        before = dict(instances)
        instances.clear()
        for name, kind in kinds.items():
            if type(before.get(name)) is kind:
                instances[name] = before[name]
                continue
            try:
                instances[name] = attempt(functools.partial(make, name, kind))
            except PluginCallFailed as failed:
                self._hooks.refuse(self._hooks.owner(hook, name), hook, f"{name!r} could not be created ({failed})")

    def _context_of(self, tool: str) -> PluginContext:
        owner = self._hooks.owner("register_tools", tool)
        return self._context(tool if self._hooks.is_builtin(owner) else owner, self._hooks.settings(owner))
