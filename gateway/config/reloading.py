"""Hot reload: a saved configuration takes effect from the next turn on; an invalid one changes nothing.

The operating system reports changes in a folder; whether they concern the configuration is read from the files themselves,
so that every way to save works: in place, by rename, or through a link. The files are also polled every few seconds, for
network file systems that report nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import structlog

from gateway.config.keys import Config, fit_config, load_config
from gateway.config.secret_references import References
from gateway.config.settings import Settings, waiting_sentence
from gateway.config.sources import merge, read_file
from gateway.support.errors import ConfigRefused, sentence_of
from plugins.support.file_watcher import changes

QUIET = 0.15
"""Seconds without a change before the files are read: an editor may still be writing."""

GONE = 3.0
"""Seconds that the file must be missing before it counts as deleted: many programs save by delete and create."""

POLL_SECONDS = 2.0
"""Seconds between polls of the files."""

_Stamps: TypeAlias = Mapping[Path, tuple[int, int, int] | None]
"""For each file, a value that changes when it is written or replaced; None if it does not exist."""

log = structlog.get_logger("exuvia.config")


class ConfigReloader:
    """Keeps the settings equal to the files.

    `check` runs in a thread and raises ConfigRefused for a configuration that is well-formed and cannot be used.
    """

    def __init__(self, settings: Settings, *, check: Callable[[Config], None]) -> None:
        self._settings = settings
        self._check = check
        self._usable = settings.current
        """The newest valid configuration, in force or not."""
        self._fault: str | None = None
        """The reason why the current files cannot be used."""
        self._wanted: Config | None = None
        """A configuration that is about to be applied."""
        self._arrived = asyncio.Event()
        self._seen = stamps(self._files())
        if _text_of(settings.current) != settings.current.sources.text:
            self._seen = {}  # it was saved after it was read

    async def run(self, admit: Callable[[Config], Awaitable[None]], apply: Callable[[Config], Awaitable[set[str]]]) -> None:
        """Watch the files and apply changes until cancelled.

        Args:
            admit: Applies the people and tokens of a configuration at once; it must not block or wait.
            apply: Applies the other keys, offers the configuration to the settings, and returns the keys that changed.
                It may take long.

        Both raise ConfigRefused if the configuration cannot be applied.
        """
        async with asyncio.TaskGroup() as tasks, contextlib.aclosing(self._changes()) as changed:
            tasks.create_task(self._apply_changes(apply))
            async for _ in changed:
                try:
                    await self._check_files(admit)
                except Exception as error:
                    self._refuse(f"The reload failed: {sentence_of(error)}", error)

    # --- watching -----------------------------------------------------------------------------------------------------

    def _files(self) -> list[Path]:
        sources, references = self._usable.sources, self._usable.references
        return [*([] if sources.path is None else [sources.path]), *sorted(references.files)]

    def _folders(self) -> set[Path]:
        """Return the folders of the files and of the targets of links."""
        places = {place for path in self._files() for place in (path.parent, _link_target(path).parent)}
        return {place for place in places if place.is_dir()}

    async def _changes(self) -> AsyncGenerator[None, None]:
        """Yield whenever something may have changed."""
        reported = False
        while True:
            try:
                folders = await asyncio.to_thread(self._folders)
                watch = changes(
                    *folders,
                    watch_filter=None,
                    recursive=False,
                    rust_timeout=round(POLL_SECONDS * 1000),
                    yield_on_timeout=True,
                )
                async with contextlib.aclosing(watch):
                    async for _ in watch:
                        yield
                        if await asyncio.to_thread(self._folders) != folders:
                            break
            except Exception as error:  # such as a limit of the system; polling continues
                if not reported:
                    log.warning("configuration_not_watched", reason=sentence_of(error), seconds_between_looks=POLL_SECONDS)
                reported = True
                await asyncio.sleep(POLL_SECONDS)
                yield

    async def _check_files(self, admit: Callable[[Config], Awaitable[None]]) -> None:
        """Read the files if they changed since the last read, or if that read failed."""
        now = await asyncio.to_thread(stamps, self._files())
        if now == self._seen and (self._settings.fault is None or self._wanted is not None):
            return
        missing = 0.0
        while now != self._seen or (self._is_missing(now) and missing < GONE):
            missing = missing + QUIET if now == self._seen else 0.0
            self._seen = now
            await asyncio.sleep(QUIET)
            now = await asyncio.to_thread(stamps, self._files())
        try:
            config = await asyncio.to_thread(self._read)
            await admit(config)
        except ConfigRefused as error:
            self._fault = await self._admit_again(admit, str(error))
            self._refuse(self._fault)
            self._settings.handled(await asyncio.to_thread(_text_of, self._usable))
            return
        self._fault = None
        if self._is_missing(now):
            log.warning("configuration_deleted", file=config.sources.file, in_force="the defaults")
        await self._remember(config)
        self._wanted = config
        self._arrived.set()

    async def _admit_again(self, admit: Callable[[Config], Awaitable[None]], fault: str) -> str:
        """Apply a changed token although the configuration has a fault; return the fault, extended by the token's."""
        try:
            await admit(await asyncio.to_thread(_resolved_anew, self._usable))
        except ConfigRefused as error:
            return fault if str(error) in fault else f"{fault} {error}"
        return fault

    # --- applying -----------------------------------------------------------------------------------------------------

    async def _apply_changes(self, apply: Callable[[Config], Awaitable[set[str]]]) -> None:
        """Apply the newest valid configuration, one at a time: a provider may be slow to open."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            config = self._wanted
            if config is None:
                continue
            mended, waited = self._settings.fault is not None, self._settings.waiting
            try:
                changed = await apply(config)
            except ConfigRefused as error:
                self._refuse(str(error))
            except Exception as error:
                self._refuse(f"The reload failed: {sentence_of(error)}", error)
            else:
                self._settings.fault = self._fault  # a later version may have one
                self._report(config, changed, mended=mended, waited=waited)
            if self._wanted is config:
                self._wanted = None
            self._settings.handled(config.sources.text)

    def _report(self, config: Config, changed: set[str], *, mended: bool, waited: tuple[str, ...]) -> None:
        for warning in config.warnings:
            log.warning("configuration", warning=warning)
        log.info("configuration_reloaded", changed=sorted(changed), **({"mended": True} if mended else {}))
        if self._settings.waiting not in ((), waited):
            log.warning("configuration_waits", reason=waiting_sentence(self._settings.waiting))

    def _read(self) -> Config:
        """Read and validate the files. Blocks."""
        sources, references = self._usable.sources, self._usable.references
        path = sources.path
        config = load_config(path, environment=references.environment, overrides=sources.overrides)
        if sources.text and not config.sources.text.strip():
            _check_deleted(path)
        self._check(config)
        return config

    def _is_missing(self, now: _Stamps) -> bool:
        """Return True if the file of the configuration in force is missing."""
        sources = self._usable.sources
        return sources.path is not None and bool(sources.text) and now.get(sources.path) is None

    def _refuse(self, sentence: str, unforeseen: Exception | None = None) -> None:
        if sentence != self._settings.fault:
            log.error("configuration_refused", reason=sentence, in_force="the previous one", exc_info=unforeseen)
        self._settings.fault = sentence

    async def _remember(self, config: Config) -> None:
        """Watch the files of this configuration.

        A file that changed after it was read keeps its earlier stamp, and is read again at the next poll.
        """
        self._usable = config
        now = await asyncio.to_thread(stamps, self._files())
        self._seen = {path: self._seen.get(path, stamp) for path, stamp in now.items()}


def stamps(files: Iterable[Path]) -> _Stamps:
    """Return the current state of the files, links followed. Blocks."""
    found: dict[Path, tuple[int, int, int] | None] = {}
    for path in files:
        try:
            stat = path.stat()
        except OSError:
            found[path] = None
        else:
            found[path] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    return found


def _check_deleted(path: Path | None) -> None:
    """Raise ConfigRefused if an empty file is not an intentional deletion. Blocks."""
    if path is None or path.exists():
        # An editor may truncate the file before it writes; a full disk may leave it empty.
        raise ConfigRefused(f"{path} is empty; delete it to use the defaults.")
    if os.path.lexists(path):
        raise ConfigRefused(f"{path} links to a file that does not exist.")
    if not path.parent.is_dir():
        raise ConfigRefused(f"{path} and its folder no longer exist.")


def _resolved_anew(config: Config) -> Config:
    """Return the same configuration with its references resolved again. Blocks; raises ConfigRefused."""
    sources, references = config.sources, config.references
    merged = merge(sources.path, references.environment, sources.overrides, text=sources.text)
    return fit_config(merged, References(references.environment, references.folder))


def _link_target(path: Path) -> Path:
    """Return the target of a path; the path itself if its links are circular."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _text_of(config: Config) -> str:
    """Return the readable text of the configuration file."""
    path = config.sources.path
    try:
        return "" if path is None else read_file(path)
    except ConfigRefused:
        return ""
