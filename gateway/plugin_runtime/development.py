"""`exuvia run --plugin DIR`: a plugin that its author is at work on. Each time it is saved it is loaded again, and the next
turn uses it; one that cannot be used changes nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from gateway.support.errors import sentence_of
from plugins.host.hooks import Hooks
from plugins.host.loading import Fit, load_one
from plugins.host.plugin_folder import PluginFolder
from plugins.support.file_watcher import changes

QUIET_MILLIS = 200
"""So long nothing more must be saved before it is loaded."""

_SEEN = (".py", ".toml", ".json", ".txt")
"""The endings of the files whose saving counts."""

_UNSEEN = ("__pycache__", "tests", ".git", ".venv", "build", "dist")
"""Folders in which no saving counts."""

log = structlog.get_logger("exuvia.plugins")


class PluginDevelopment:
    """Keeps `hooks` equal to what stands in a folder. `fit` gives the plugin its settings; `check` raises ConfigRefused
    about hooks that cannot be taken; `taken` puts into force what
    changed of the plugin of a name."""

    def __init__(
        self,
        folder: PluginFolder,
        hooks: Hooks,
        *,
        fit: Fit,
        check: Callable[[Hooks], None],
        taken: Callable[[str], Awaitable[None]],
    ) -> None:
        self._folder = folder
        self._hooks = hooks
        self._fit = fit
        self._check = check
        self._taken = taken
        self._fault = ""
        self._loaded = time.time_ns() - 50_000_000  # the clock of a file system is a little behind

    def troubles(self) -> list[str]:
        """Why what was saved last is not in use, as a sentence; empty where it is."""
        return [self._fault] if self._fault else []

    async def run(self) -> None:
        """Until it is cancelled."""
        log.info("plugin_watched", plugin=self._folder.name, folder=str(self._folder.path))
        async for _ in self._saved():
            try:
                await self._load_again()
            except Exception as error:
                self._keep(sentence_of(error))

    async def _saved(self) -> AsyncIterator[None]:
        looked = False
        watch = changes(
            self._folder.path,
            watch_filter=self._counts,
            debounce=QUIET_MILLIS,
            step=QUIET_MILLIS,
            rust_timeout=QUIET_MILLIS * 5,
            yield_on_timeout=True,
        )
        async for found in watch:
            # What was saved since the plugin was loaded, and before the watching began, is told by nobody.
            if found or (not looked and await asyncio.to_thread(self._is_newer)):
                yield
            looked = True

    def _is_newer(self) -> bool:
        """Return True if a file was saved since the plugin was loaded."""
        paths = (path for path in self._folder.path.rglob("*") if self._counts(None, str(path)))
        try:
            return any(path.stat().st_mtime_ns > self._loaded for path in paths)
        except OSError:  # one that went meanwhile
            return True

    async def _load_again(self) -> None:
        """Load what stands there now beside the other plugins, and take it if nothing of it is refused."""
        tried = await asyncio.to_thread(self._try)
        own = [refusal for refusal in tried.refused if refusal.plugin == self._folder.name]
        if own:
            self._keep("; ".join(refusal.sentence.partition(" is not used: ")[2].rstrip(".") for refusal in own) + ".")
            return
        self._fault = ""
        self._hooks.adopt(tried)
        await self._taken(self._folder.name)
        log.info("plugin_reloaded", plugin=self._folder.name)

    def _try(self) -> Hooks:
        """All plugins, with the one of the folder as it is now. Blocks; runs its code."""
        name = self._folder.name
        tried = self._hooks.without(name)
        if load_one(tried, name, str(self._folder.path), self._folder.load, self._fit):
            tried.provided(name)
            self._check(tried)
        return tried

    def _keep(self, sentence: str) -> None:
        self._fault = f"What was saved of the plugin {self._folder.name!r} is not in use, the one before is: {sentence}"
        log.error("plugin_not_reloaded", plugin=self._folder.name, reason=self._fault)

    def _counts(self, _: object, path: str) -> bool:
        """Whether a file that was saved may be one of the plugin's."""
        below = os.path.relpath(path, self._folder.path)
        return below.endswith(_SEEN) and not set(below.split(os.sep)) & set(_UNSEEN)
