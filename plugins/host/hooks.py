"""The loaded plugins, their classes and their hooks. Only this module uses pluggy.

pluggy collects and validates implementations but does not call them: its own calls lose all results when one implementation
raises, and do not await coroutines. So implementations are called here one by one, and each failure is attributed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import pluggy

from plugins.api import hookspecs
from plugins.api.channel import Channel
from plugins.api.chat import ChatProvider
from plugins.api.command import Command
from plugins.api.compaction import (
    AfterCompaction,
    BeforeCompaction,
    CompactionBudget,
    CompactionContext,
    MemoryFlush,
    Summarizer,
)
from plugins.api.context import NoSettings, PluginContext
from plugins.api.embedding import EmbeddingProvider
from plugins.api.hookspecs import EndedTurn
from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.pruning import PruningBudget, PruningContext
from plugins.api.tool import Tool
from plugins.host.hook_calls import (
    DECISION_SECONDS,
    NOTIFICATION_SECONDS,
    Decision,
    HookCalls,
    Implementation,
    Notification,
)
from plugins.host.registry import CHECKS, LATE, Registry
from plugins.host.validation import InvalidPlugin, hook_function
from plugins.support.untrusted import PluginCallFailed, attempt
from sessions.events.events import PluginFailed, Trigger
from sessions.events.pruning import Edit
from sessions.state.edit_validation import merge_proposals, validate_edits
from sessions.state.view import View

C = TypeVar("C", bound=HookCalls)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin, or one of its hooks, that is not used. `hook` is "" for the whole plugin."""

    plugin: str
    hook: str
    sentence: str


class PruningProposal(msgspec.Struct, frozen=True, kw_only=True):
    """The combined edits of all plugins, and the failures."""

    edits: tuple[Edit, ...]
    failures: tuple[PluginFailed, ...]


class CompactionProposal(msgspec.Struct, frozen=True, kw_only=True):
    """The seq of the first message to keep, or None if no plugin decided, and the failures."""

    keep_from: int | None
    failures: tuple[PluginFailed, ...]


NOTHING = NoSettings()
"""The settings of a plugin that has no settings."""


class Hooks:
    """The plugins in the order of registration. If two register the same name, the first one wins.

    `refused` lists what was refused or disabled, each with a sentence for people. Methods do not raise because of a plugin.
    `seconds` is the timeout of a third-party decision hook, `notification_seconds` that of a notification hook.
    """

    def __init__(self, seconds: float = DECISION_SECONDS, notification_seconds: float = NOTIFICATION_SECONDS) -> None:
        self.refused: list[Refusal] = []
        self._pluggy = _empty()
        self._registry = Registry(self.refuse)
        self._late_plugins: list[str] = []
        """The plugins whose late registration hooks (LATE) have not been called yet."""
        self._builtin: set[str] = set()
        self._settings: dict[str, Any] = {}
        self._seconds = seconds
        self._notification_seconds = notification_seconds
        self._decisions: dict[str, Decision] = {}
        self._notifications: dict[str, Notification] = {}

    def register(self, name: str, plugin: object, *, builtin: bool = False, settings: Any = NOTHING) -> bool:
        """Register a plugin (a module or object with hook implementations) and call its registration hooks.

        Args:
            name: The plugin's name.
            plugin: The module or object.
            builtin: True for a built-in plugin, whose hooks run without a thread.
            settings: The plugin's settings.

        Returns:
            False if the plugin as a whole was refused.
        """
        try:
            attempt(lambda: self._register(name, plugin))
        except PluginCallFailed as failed:
            self.refuse(name, "", str(failed))
            return False
        self._builtin |= {name} if builtin else set()
        self._settings[name] = settings
        self._decisions.clear()
        self._notifications.clear()
        for hook in CHECKS:
            if hook not in LATE:
                self._collect(name, hook)
        self._late_plugins.append(name)
        return True

    def without(self, name: str) -> Hooks:
        """Return the same plugins except one, without calling registration hooks again."""
        others = Hooks(self._seconds, self._notification_seconds)
        others.refused = [refusal for refusal in self.refused if refusal.plugin != name]
        for plugin in self.plugins:
            if plugin != name:
                others._pluggy.register(self._pluggy.get_plugin(plugin), plugin)
                others._settings[plugin] = self._settings[plugin]
        others._builtin = self._builtin - {name}
        others._late_plugins = [plugin for plugin in self._late_plugins if plugin != name]
        others._registry.adopt(self._registry, without=name)
        return others

    def adopt(self, others: Hooks) -> None:
        """Replace the plugins by those of another instance. Mappings are updated; disabled hooks are enabled again."""
        self.refused, self._pluggy, self._settings = others.refused, others._pluggy, others._settings
        self._builtin, self._late_plugins = others._builtin, others._late_plugins
        self._registry.adopt(others._registry)
        self._decisions.clear()
        self._notifications.clear()

    def refuse(self, plugin: str, hook: str, reason: str) -> None:
        """Record that a plugin or one of its hooks is not used. `reason` is the end of a sentence."""
        what = f"The plugin {plugin!r}" if not hook else f"Part of the plugin {plugin!r} ({hook})"
        self.refused.append(Refusal(plugin=plugin, hook=hook, sentence=f"{what} is not used: {reason}."))

    @property
    def plugins(self) -> tuple[str, ...]:
        """The names of the plugins, in the order of registration."""
        return tuple(self._settings)

    def settings(self, plugin: str) -> Any:
        """Return the settings of a plugin."""
        return self._settings[plugin]

    def owner(self, hook: str, name: str) -> str:
        """Return the plugin that registered a class."""
        return self._registry.owner(hook, name)

    def third_party_modules(self) -> dict[str, str]:
        """Return the names of the plugins that are not built in, by their top-level package or module."""
        found = {}
        for name in self.plugins:
            if name not in self._builtin:
                plugin = self._pluggy.get_plugin(name)
                module = getattr(plugin, "__name__", "") if inspect.ismodule(plugin) else type(plugin).__module__
                found[str(module).partition(".")[0]] = name
        return found

    def is_builtin(self, plugin: str) -> bool:
        """Return True if a plugin is built in."""
        return plugin in self._builtin

    def provided(self, plugin: str) -> dict[str, list[str]]:
        """Return the names of the classes that a plugin registered, by hook."""
        self.memory_backends()
        return self._registry.of_plugin(plugin)

    def implemented(self, plugin: str) -> list[str]:
        """Return the hooks that a plugin implements."""
        callers = self._pluggy.get_hookcallers(self._pluggy.get_plugin(plugin)) or ()
        return sorted(caller.name for caller in callers)

    def chat_providers(self) -> Mapping[str, type[ChatProvider]]:
        """Return the chat providers by name, in the order of registration."""
        return self._registry.of_hook("register_chat_providers")

    def embedding_providers(self) -> Mapping[str, type[EmbeddingProvider]]:
        """Return the embedding providers by name, in the order of registration."""
        return self._registry.of_hook("register_embedding_providers")

    def memory_backends(self) -> Mapping[str, type[MemoryBackend]]:
        """Return the memory backends by name, without the default one. Their registration hooks are called now."""
        while self._late_plugins:
            name = self._late_plugins.pop(0)
            for hook in LATE:
                self._collect(name, hook)
        return self._registry.of_hook("register_memory_backends")

    def tools(self) -> Mapping[str, type[Tool]]:
        """Return the tools by name."""
        return self._registry.of_hook("register_tools")

    def commands(self) -> Mapping[str, type[Command]]:
        """Return the commands by name."""
        return self._registry.of_hook("register_commands")

    def channels(self) -> Mapping[str, type[Channel]]:
        """Return the channels by name."""
        return self._registry.of_hook("register_channels")

    def summarizers(self) -> Mapping[str, type[Summarizer]]:
        """Return the summarizers by name."""
        return self._registry.of_hook("register_summarizers")

    def flushes(self) -> Mapping[str, type[MemoryFlush]]:
        """Return the memory flushes by name."""
        return self._registry.of_hook("register_flushes")

    async def propose_prunes(
        self, view: View, context: PruningContext, budget: PruningBudget, now: datetime
    ) -> PruningProposal:
        """Ask all plugins which tool results to shorten in the next request, and combine their edits."""
        decision = self._decision("propose_prunes")
        given = {"context": context, "budget": budget, "now": now}
        edits: list[Edit] = []
        failures: list[PluginFailed] = []
        for implementation in decision.implementations():
            decided = await decision.ask(
                implementation, given, functools.partial(_checked_prunes, view, implementation.plugin)
            )
            edits += decided.value or ()
            failures += [decided.failure] if decided.failure else []
        return PruningProposal(edits=merge_proposals(view, edits), failures=tuple(failures))

    async def plan_compaction(
        self, context: CompactionContext, budget: CompactionBudget, trigger: Trigger
    ) -> CompactionProposal:
        """Ask the plugins, in order, where to cut the view, until one decides."""
        decision = self._decision("plan_compaction")
        given = {"context": context, "budget": budget, "trigger": trigger}
        failures: list[PluginFailed] = []
        for implementation in decision.implementations():
            decided = await decision.ask(implementation, given, functools.partial(_checked_cut, context))
            failures += [decided.failure] if decided.failure else []
            if decided.value is not None:
                return CompactionProposal(keep_from=decided.value, failures=tuple(failures))
        return CompactionProposal(keep_from=None, failures=tuple(failures))

    async def before_compaction(self, compaction: BeforeCompaction) -> tuple[PluginFailed, ...]:
        """Notify the plugins that a compaction starts, and return the failures."""
        return await self._notification("before_compaction").notify(lambda _: {"compaction": compaction})

    async def after_compaction(self, compaction: AfterCompaction) -> tuple[PluginFailed, ...]:
        """Notify the plugins that a compaction was made, and return the failures."""
        return await self._notification("after_compaction").notify(lambda _: {"compaction": compaction})

    async def gateway_started(self, context: Callable[[str], PluginContext], *, only: str = "") -> tuple[PluginFailed, ...]:
        """Notify the plugins, or one of them, that the gateway is about to serve, and return the failures."""
        return await self._notification("gateway_started").notify(lambda plugin: {"context": context(plugin)}, only=only)

    async def gateway_stopping(self) -> tuple[PluginFailed, ...]:
        """Notify the plugins that the gateway is stopping, and return the failures."""
        return await self._notification("gateway_stopping").notify(lambda _: {})

    async def turn_ended(self, turn: EndedTurn) -> tuple[PluginFailed, ...]:
        """Notify the plugins that a turn ended, and return the failures."""
        return await self._notification("turn_ended").notify(lambda _: {"turn": turn})

    def is_implemented(self, hook: str) -> bool:
        """Return True if any plugin implements a hook."""
        return bool(getattr(self._pluggy.hook, hook).get_hookimpls())

    def _decision(self, hook: str) -> Decision:
        if hook not in self._decisions:
            self._decisions[hook] = self._calls(Decision, hook, self._seconds)
        return self._decisions[hook]

    def _notification(self, hook: str) -> Notification:
        if hook not in self._notifications:
            self._notifications[hook] = self._calls(Notification, hook, self._notification_seconds)
        return self._notifications[hook]

    def _calls(self, kind: type[C], hook: str, seconds: float) -> C:
        implementations = (
            Implementation(
                plugin=each.plugin_name,
                function=each.function,
                parameters=tuple(each.argnames),
                builtin=each.plugin_name in self._builtin,
            )
            for each in getattr(self._pluggy.hook, hook).get_hookimpls()
        )

        def on_disabled(plugin: str, why: str) -> None:
            self.refuse(plugin, hook, f"it is disabled until a restart ({why})")

        return kind(hook, implementations, seconds=seconds, on_disabled=on_disabled)

    def _register(self, name: str, plugin: object) -> None:
        if self._pluggy.has_plugin(name):
            raise InvalidPlugin("a plugin of this name is already registered")
        if inspect.isclass(plugin):
            raise InvalidPlugin("it is a class; register an instance of it, or a module")
        implementations = self._implementations(plugin)
        if not implementations:
            raise InvalidPlugin("it implements no hook; is @hookimpl missing?")
        for hook, function, options in implementations:
            self._check(hook, function, options)
        try:
            self._pluggy.register(plugin, name)
        except pluggy.PluginValidationError as error:
            # The last line says what is wrong; the lines before it repeat the plugin and the hook.
            raise InvalidPlugin(f"pluggy rejects it: {str(error).splitlines()[-1]}") from error
        except ValueError as error:
            raise InvalidPlugin("it is already registered under another name") from error

    def _implementations(self, plugin: object) -> list[tuple[str, Any, Mapping[str, Any]]]:
        found: list[tuple[str, Any, Mapping[str, Any]]] = []
        for attribute in dir(plugin):
            options: Mapping[str, Any] | None = self._pluggy.parse_hookimpl_opts(plugin, attribute)
            if options is not None:
                found.append((options.get("specname") or attribute, getattr(plugin, attribute), options))
        return found

    def _check(self, hook: str, function: Any, options: Mapping[str, Any]) -> None:
        if getattr(self._pluggy.hook, hook, None) is None:
            raise InvalidPlugin(f"there is no hook {hook!r}")
        if options.get("wrapper") or options.get("hookwrapper"):
            raise InvalidPlugin(f"{hook} is a wrapper, which is not supported")
        hook_function(hook, function)

    def _collect(self, plugin: str, hook: str) -> None:
        for implementation in getattr(self._pluggy.hook, hook).get_hookimpls():
            if implementation.plugin_name == plugin:
                self._registry.collect(plugin, hook, implementation.function, builtin=plugin in self._builtin)


def _empty() -> pluggy.PluginManager:
    """Return a plugin manager that knows the hooks and has no plugins."""
    empty = pluggy.PluginManager(hookspecs.GROUP)
    empty.add_hookspecs(hookspecs)
    return empty


MAX_REASONS = 3
"""The maximum number of rejected edits that a message names."""


def _checked_prunes(view: View, plugin: str, answer: object) -> tuple[tuple[Edit, ...], str]:
    """Return the valid edits of a result, and why others are invalid."""
    if not isinstance(answer, list | tuple):
        raise InvalidPlugin(f"it returned {type(answer).__name__} instead of a list")
    checked = validate_edits(view, answer, plugin)
    more = len(checked.refused) - MAX_REASONS
    return checked.edits, "; ".join(checked.refused[:MAX_REASONS]) + (f" (and {more} more)" if more > 0 else "")


def _checked_cut(context: CompactionContext, answer: object) -> tuple[int | None, str]:
    """Return the seq of a result if it is a valid cut, and what is wrong with it otherwise."""
    if answer is None:
        return None, ""
    if type(answer) is not int:  # a subclass of int may compare in any way
        raise InvalidPlugin(f"it returned {type(answer).__name__} instead of a seq or None")
    if answer not in context.cuts:
        raise InvalidPlugin(f"it returned {answer}, which is not in context.cuts")
    return answer, ""
