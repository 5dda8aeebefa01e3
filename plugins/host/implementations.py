"""The implementations of a hook. One that times out, or fails three times in a row, is disabled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from plugins.support.untrusted import PluginCallFailed, error_text
from sessions.events.events import PluginFailed

IN_A_ROW = 3
"""The number of consecutive failures after which an implementation is disabled."""


class Implementation(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin's function and the names of the arguments that it declares. `ours`: the plugin is built in."""

    plugin: str
    function: Callable[..., Any]
    wants: tuple[str, ...]
    ours: bool


class Implementations:
    """The implementations of `hook`.

    `switched_off` is called with the plugin and the reason, as the end of a sentence, when one is disabled.
    """

    def __init__(
        self, hook: str, implementations: Sequence[Implementation], *, switched_off: Callable[[str, str], None]
    ) -> None:
        self._hook = hook
        self._implementations = list(implementations)
        self._switched_off = switched_off
        self._failures: dict[str, int] = {}

    def active(self) -> tuple[Implementation, ...]:
        """Return the enabled implementations, in order."""
        return tuple(self._implementations)

    def record_success(self, called: Implementation) -> None:
        """Reset the count of consecutive failures."""
        self._failures.pop(called.plugin, None)

    def record_failure(self, called: Implementation, error: PluginCallFailed, *, off: bool = False) -> PluginFailed:
        """Record a failure, disable the implementation after too many or if `off`, and return the event for the log."""
        sentence = error_text(error) or "it failed without a word"
        count = self._failures[called.plugin] = self._failures.get(called.plugin, 0) + 1
        off = off or count >= IN_A_ROW
        if off and called in self._implementations:  # another session may have been told so a moment ago
            self._implementations.remove(called)
            self._switched_off(called.plugin, sentence)
        return PluginFailed(plugin=called.plugin, hook=self._hook, sentence=sentence, off=off)
