"""The classes that plugins registered, by hook and name. If two have the same name, the first one wins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from plugins.host import validation
from plugins.host.validation import InvalidPlugin
from plugins.support.untrusted import PluginCallFailed, attempt, within

SECONDS = 5.0
"""The timeout for a registration hook of a third-party plugin."""

CHECKS: Mapping[str, Callable[[object], str]] = {
    "register_chat_providers": validation.chat_provider,
    "register_embedding_providers": validation.embedding_provider,
    "register_tools": validation.tool,
    "register_commands": validation.command,
    "register_channels": validation.channel,
    "register_summarizers": validation.summarizer,
    "register_flushes": validation.flush,
    "register_memory_backends": validation.memory_backend,
}
"""The registration hooks, and the functions that validate a class and return its name."""

LATE = frozenset(["register_memory_backends"])
"""Hooks that are called when a class is first needed, since few installations use a memory backend other than SQLite."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A registered class and its plugin."""

    plugin: str
    kind: Any


MOST = 1000
"""The maximum number of classes that a plugin may return from one hook."""


class Registry:
    """All registered classes. `refuse` is called with plugin, hook and reason for a class that is refused."""

    def __init__(self, refuse: Callable[[str, str, str], None]) -> None:
        self._refuse = refuse
        self._taken: dict[str, dict[str, Registration]] = {hook: {} for hook in CHECKS}
        self._kinds: dict[str, dict[str, Any]] = {hook: {} for hook in CHECKS}

    def of_hook(self, hook: str) -> Mapping[str, Any]:
        """Return a live view of the classes of a hook by name, in the order of registration."""
        return MappingProxyType(self._kinds[hook])

    def of_plugin(self, plugin: str) -> dict[str, list[str]]:
        """Return the names of a plugin's classes, by hook."""
        found = {
            hook: [name for name, offer in taken.items() if offer.plugin == plugin] for hook, taken in self._taken.items()
        }
        return {hook: names for hook, names in found.items() if names}

    def owner(self, hook: str, name: str) -> str:
        """Return the plugin that registered a class."""
        return self._taken[hook][name].plugin

    def collect(self, plugin: str, hook: str, function: Callable[[], object], *, builtin: bool) -> None:
        """Call a plugin's registration hook and register the valid classes. Third-party hooks run in a thread."""
        for offered in self._call(plugin, hook, function, builtin=builtin):
            self._take(plugin, hook, offered)

    def adopt(self, others: Registry, *, without: str = "") -> None:
        """Replace all registrations by those of another registry, except those of one plugin."""
        for hook, taken in others._taken.items():
            left = {name: offer for name, offer in taken.items() if offer.plugin != without}
            self._taken[hook] = left
            self._kinds[hook].clear()
            self._kinds[hook].update({name: offer.kind for name, offer in left.items()})

    def _call(self, plugin: str, hook: str, function: Callable[[], object], *, builtin: bool) -> Iterable[object]:
        try:
            if builtin:
                return _listed(function())
            return within(SECONDS, lambda: _listed(function()), thread=f"plugin:{plugin}")
        except PluginCallFailed as failed:
            self._refuse(plugin, hook, str(failed))
            return ()

    def _take(self, plugin: str, hook: str, offered: object) -> None:
        taken = self._taken[hook]
        try:
            name = attempt(lambda: CHECKS[hook](offered))
        except PluginCallFailed as failed:
            self._refuse(plugin, hook, str(failed))
            return
        if name in taken:
            self._refuse(plugin, hook, f"the name {name!r} is already used by {taken[name].plugin!r}")
        else:
            taken[name] = Registration(plugin=plugin, kind=offered)
            self._kinds[hook][name] = offered


def _listed(answer: object) -> list[object]:
    """Return the result of a registration hook as a new list, since its own type may be unsafe to use.

    Raises:
        InvalidPlugin: It is not a list or tuple, or too long.
    """
    if inspect.iscoroutine(answer):
        answer.close()
    if not isinstance(answer, list | tuple):
        raise InvalidPlugin(f"it returned {type(answer).__name__} instead of a list")
    offered = list(answer)
    if len(offered) > MOST:
        raise InvalidPlugin(f"it returned {len(offered):,} classes; at most {MOST:,} are allowed")
    return offered
