"""Who implements one hook, and who of them is let be: a plugin that is lost, or that failed three times in a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from plugins.support.untrusted import PluginCallFailed, error_text
from sessions.events.events import PluginFailed

IN_A_ROW = 3
"""Failures, one after the other, after which a hook is switched off."""


class Implementation(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin's function, with the names of the arguments that it wants, in order. `ours`: a built-in, which is called
    without a thread of its own."""

    plugin: str
    function: Callable[..., Any]
    wants: tuple[str, ...]
    ours: bool


class Implementations:
    """Everybody who implements `hook`. `switched_off` is told who is not called any more, and why, as the end of a
    sentence."""

    def __init__(
        self, hook: str, implementations: Sequence[Implementation], *, switched_off: Callable[[str, str], None]
    ) -> None:
        self._hook = hook
        self._implementations = list(implementations)
        self._switched_off = switched_off
        self._failures: dict[str, int] = {}

    def active(self) -> tuple[Implementation, ...]:
        """Whom to call now, in order."""
        return tuple(self._implementations)

    def record_success(self, called: Implementation) -> None:
        """Note that one did what was promised; its earlier failures are forgiven."""
        self._failures.pop(called.plugin, None)

    def record_failure(self, called: Implementation, error: PluginCallFailed, *, off: bool = False) -> PluginFailed:
        """Note that one failed, and switch it off if that is `off`, or too often; returns what the log is to say."""
        sentence = error_text(error) or "it failed without a word"
        count = self._failures[called.plugin] = self._failures.get(called.plugin, 0) + 1
        off = off or count >= IN_A_ROW
        if off and called in self._implementations:  # another session may have been told so a moment ago
            self._implementations.remove(called)
            self._switched_off(called.plugin, sentence)
        return PluginFailed(plugin=called.plugin, hook=self._hook, sentence=sentence, off=off)
