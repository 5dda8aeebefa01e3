"""`exuvia run --plugin DIR`: reload a plugin in development each time it is saved.

The next turn uses the new version; one that cannot be loaded changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from gateway.support.errors import sentence_of
from plugins.host.hooks import Hooks
from plugins.host.loading import Fit, PluginFolder, load_one
from plugins.support.file_watcher import changes

QUIET_MILLIS = 200
"""Milliseconds without further changes after which the plugin is loaded."""

_SUFFIXES = (".py", ".toml", ".json", ".txt")
"""The suffixes of the files that are watched."""

_IGNORED = ("__pycache__", "tests", ".git", ".venv", "build", "dist")
"""Folders that are not watched."""

log = structlog.get_logger("exuvia.plugins")


class PluginDevelopment:
    """Keeps `hooks` in step with the plugin in a folder.

    `fit` gives the plugin its settings, `check` raises ConfigRefused for hooks that cannot be used, and `reloaded` applies
    the changes of the plugin of a name.
    """

    def __init__(
        self,
        folder: PluginFolder,
        hooks: Hooks,
        *,
        fit: Fit,
        check: Callable[[Hooks], None],
        reloaded: Callable[[str], Awaitable[None]],
    ) -> None:
        self._folder = folder
        self._hooks = hooks
        self._fit = fit
        self._check = check
        self._reloaded = reloaded
        self._fault = ""
        self._loaded = time.time_ns() - 50_000_000  # the clock of a file system is a little behind

    def problems(self) -> list[str]:
        """Return why the last saved version is not in use, as a sentence; empty if it is."""
        return [self._fault] if self._fault else []

    async def run(self) -> None:
        """Watch the folder until cancelled."""
        log.info("plugin_watched", plugin=self._folder.name, folder=str(self._folder.path))
        async for _ in self._saved():
            try:
                await self._load_again()
            except Exception as error:
                self._keep(sentence_of(error))

    async def _saved(self) -> AsyncIterator[None]:
        checked = False
        watch = changes(
            self._folder.path,
            watch_filter=self._is_watched,
            debounce=QUIET_MILLIS,
            step=QUIET_MILLIS,
            rust_timeout=QUIET_MILLIS * 5,
            yield_on_timeout=True,
        )
        async for found in watch:
            # A file saved between loading and watching is not reported.
            if found or (not checked and await asyncio.to_thread(self._is_newer)):
                yield
            checked = True

    def _is_newer(self) -> bool:
        """Return True if a file was saved since the plugin was loaded."""
        paths = (path for path in self._folder.path.rglob("*") if self._is_watched(None, str(path)))
        try:
            return any(path.stat().st_mtime_ns > self._loaded for path in paths)
        except OSError:  # a file was removed
            return True

    async def _load_again(self) -> None:
        """Load the current version together with the other plugins, and use it if none of its hooks is refused."""
        tried = await asyncio.to_thread(self._try)
        own = [refusal for refusal in tried.refused if refusal.plugin == self._folder.name]
        if own:
            self._keep("; ".join(refusal.sentence.partition(" is not used: ")[2].rstrip(".") for refusal in own) + ".")
            return
        self._fault = ""
        self._hooks.adopt(tried)
        await self._reloaded(self._folder.name)
        log.info("plugin_reloaded", plugin=self._folder.name)

    def _try(self) -> Hooks:
        """Return the hooks of all plugins, with the folder's plugin in its current version. Blocks; runs the plugin's
        code."""
        name = self._folder.name
        tried = self._hooks.without(name)
        if load_one(tried, name, str(self._folder.path), self._folder.load, self._fit):
            tried.provided(name)
            self._check(tried)
        return tried

    def _keep(self, sentence: str) -> None:
        self._fault = f"The saved version of the plugin {self._folder.name!r} is not in use, the previous one is: {sentence}"
        log.error("plugin_not_reloaded", plugin=self._folder.name, reason=self._fault)

    def _is_watched(self, _: object, path: str) -> bool:
        """Return True if a saved file may belong to the plugin."""
        below = os.path.relpath(path, self._folder.path)
        return below.endswith(_SUFFIXES) and not set(below.split(os.sep)) & set(_IGNORED)
