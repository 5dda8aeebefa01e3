"""`Hooks`: the plugins and what they provide. The only code that touches pluggy.

pluggy chooses and validates; it never calls. Its own calling loses all results when one implementation raises, and does
not await coroutines, so implementations are called one by one here, and each failure is named.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pluggy

from plugins import hookspecs, validation
from plugins.contracts import ChatProvider, Command, Tool
from plugins.strangers import StrangerFailed, attempt
from plugins.validation import Unfit


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Something of a plugin that is not used. `hook` is empty where it is the plugin as a whole."""

    plugin: str
    hook: str
    sentence: str


class Hooks:
    """All plugins, in the order of their registration, which decides between two things of one name: the first stays.

    `refused` lists what was turned away, each with a sentence for people. Nothing that a plugin does raises here.
    """

    def __init__(self) -> None:
        self.refused: list[Refusal] = []
        self._pluggy = pluggy.PluginManager(hookspecs.GROUP)
        self._pluggy.add_hookspecs(hookspecs)
        self._chat_providers: dict[str, type[ChatProvider]] = {}
        self._tools: dict[str, type[Tool]] = {}
        self._commands: dict[str, type[Command]] = {}

    def register(self, name: str, plugin: object) -> bool:
        """Take in a plugin, a module or an object with hook implementations, and ask it what it provides.

        Returns False when the plugin as a whole was refused, with nothing of it taken.
        """
        try:
            attempt(lambda: self._take_in(name, plugin))
        except StrangerFailed as failed:
            self.refuse(name, "", str(failed))
            return False
        self._collect(name, "register_chat_providers", validation.chat_provider, self._chat_providers)
        self._collect(name, "register_tools", validation.tool, self._tools)
        self._collect(name, "register_commands", validation.command, self._commands)
        return True

    def refuse(self, plugin: str, hook: str, reason: str) -> None:
        """Note that something of a plugin is not used; `reason` is the end of a sentence."""
        what = f"The plugin {plugin!r}" if not hook else f"Something of the plugin {plugin!r} ({hook})"
        self.refused.append(Refusal(plugin=plugin, hook=hook, sentence=f"{what} is not used: {reason}."))

    def chat_providers(self) -> Mapping[str, type[ChatProvider]]:
        """The chat providers by name, in the order in which they were registered."""
        return dict(self._chat_providers)

    def tools(self) -> Mapping[str, type[Tool]]:
        """The tools by name."""
        return dict(self._tools)

    def commands(self) -> Mapping[str, type[Command]]:
        """The chat commands by name."""
        return dict(self._commands)

    def _take_in(self, name: str, plugin: object) -> None:
        if self._pluggy.has_plugin(name):
            raise Unfit("a plugin of this name is there already")
        if inspect.isclass(plugin):
            raise Unfit("it is a class; offer an instance of it, or a module")
        offered = self._implementations(plugin)
        if not offered:
            raise Unfit("it implements no hook; is @hookimpl missing?")
        for hook, function, options in offered:
            self._check(hook, function, options)
        try:
            self._pluggy.register(plugin, name)
        except pluggy.PluginValidationError as error:
            # The last line says what is wrong; the lines before it repeat the plugin and the hook.
            raise Unfit(f"pluggy refuses it: {str(error).splitlines()[-1]}") from error
        except ValueError as error:
            raise Unfit("it is registered under another name already") from error

    def _implementations(self, plugin: object) -> list[tuple[str, Any, Mapping[str, Any]]]:
        found: list[tuple[str, Any, Mapping[str, Any]]] = []
        for attribute in dir(plugin):
            options: Mapping[str, Any] | None = self._pluggy.parse_hookimpl_opts(plugin, attribute)
            if options is not None:
                found.append((options.get("specname") or attribute, getattr(plugin, attribute), options))
        return found

    def _check(self, hook: str, function: Any, options: Mapping[str, Any]) -> None:
        if getattr(self._pluggy.hook, hook, None) is None:
            raise Unfit(f"there is no hook {hook!r}")
        if options.get("wrapper") or options.get("hookwrapper"):
            raise Unfit(f"{hook} is a wrapper, and nothing wraps hooks here")
        if (
            inspect.iscoroutinefunction(function)
            or inspect.isasyncgenfunction(function)
            or inspect.isgeneratorfunction(function)
        ):
            raise Unfit(f"{hook} must be a plain function that returns a list, neither async nor a generator")

    def _collect(self, plugin: str, hook: str, check: Callable[[object], str], taken: dict[str, Any]) -> None:
        for implementation in getattr(self._pluggy.hook, hook).get_hookimpls():
            if implementation.plugin_name == plugin:
                for offered in self._asked(plugin, hook, implementation.function):
                    self._take(plugin, hook, offered, check, taken)

    def _asked(self, plugin: str, hook: str, function: Callable[[], Any]) -> Iterable[object]:
        try:
            answer = attempt(function)
            if inspect.iscoroutine(answer):
                answer.close()
            if not isinstance(answer, list | tuple):
                raise Unfit(f"it returned {type(answer).__name__} where a list was promised")
        except StrangerFailed as failed:
            self.refuse(plugin, hook, str(failed))
            return ()
        return answer

    def _take(self, plugin: str, hook: str, offered: object, check: Callable[[object], str], taken: dict[str, Any]) -> None:
        try:
            name = attempt(lambda: check(offered))
        except StrangerFailed as failed:
            self.refuse(plugin, hook, str(failed))
            return
        if name in taken:
            self.refuse(plugin, hook, f"the name {name!r} is taken already")
        else:
            taken[name] = offered
