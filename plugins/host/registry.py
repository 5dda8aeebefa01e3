"""What plugins provide: each thing under its name, by the hook that returned it. Of two with one name the first stays."""

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
"""How long a stranger may take to say what it provides."""

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
"""The hooks that offer something, and what says under which name a thing is offered."""

LATE = frozenset(["register_memory_backends"])
"""Those that are asked when one is first named: few homes use another than SQLite, and no start is to pay for them."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a plugin provides."""

    plugin: str
    kind: Any


MOST = 1000
"""Things that a plugin may offer through one hook."""


class Registry:
    """Everything that is provided. `refuse` is told what of whom cannot be used: plugin, hook, and the end of a sentence."""

    def __init__(self, refuse: Callable[[str, str, str], None]) -> None:
        self._refuse = refuse
        self._taken: dict[str, dict[str, Registration]] = {hook: {} for hook in CHECKS}
        self._kinds: dict[str, dict[str, Any]] = {hook: {} for hook in CHECKS}

    def of_hook(self, hook: str) -> Mapping[str, Any]:
        """What is offered through a hook, by name, in the order in which it came; a live view."""
        return MappingProxyType(self._kinds[hook])

    def of_plugin(self, plugin: str) -> dict[str, list[str]]:
        """The names of what a plugin provides, by hook."""
        found = {
            hook: [name for name, offer in taken.items() if offer.plugin == plugin] for hook, taken in self._taken.items()
        }
        return {hook: names for hook, names in found.items() if names}

    def owner(self, hook: str, name: str) -> str:
        """The plugin that provides a thing."""
        return self._taken[hook][name].plugin

    def collect(self, plugin: str, hook: str, function: Callable[[], object], *, ours: bool) -> None:
        """Ask a plugin what it provides, a stranger in a thread, and take what is fit."""
        for offered in self._asked(plugin, hook, function, ours=ours):
            self._take(plugin, hook, offered)

    def adopt(self, others: Registry, *, without: str = "") -> None:
        """Have all that others have, and nothing else; leaving out one plugin."""
        for hook, taken in others._taken.items():
            left = {name: offer for name, offer in taken.items() if offer.plugin != without}
            self._taken[hook] = left
            self._kinds[hook].clear()
            self._kinds[hook].update({name: offer.kind for name, offer in left.items()})

    def _asked(self, plugin: str, hook: str, function: Callable[[], object], *, ours: bool) -> Iterable[object]:
        try:
            if ours:
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
            self._refuse(plugin, hook, f"the name {name!r} is taken already, by {taken[name].plugin!r}")
        else:
            taken[name] = Registration(plugin=plugin, kind=offered)
            self._kinds[hook][name] = offered


def _listed(answer: object) -> list[object]:
    """Return what a plugin offers, as a list of our own: another's may do anything when it is looked at. Raises Unfit."""
    if inspect.iscoroutine(answer):
        answer.close()
    if not isinstance(answer, list | tuple):
        raise InvalidPlugin(f"it returned {type(answer).__name__} where a list was promised")
    offered = list(answer)
    if len(offered) > MOST:
        raise InvalidPlugin(f"it returned {len(offered):,} things; {MOST:,} are the most")
    return offered
