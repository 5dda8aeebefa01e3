"""The memory of a home's workspace, opened by the gateway or by the command line, and what triggers its indexing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import date

from gateway.config.keys import Config
from gateway.config.settings import Settings
from gateway.models.providers import OpenProviders
from gateway.support.home import Home
from gateway.support.storage import session_logs
from plugins.api.context import Clock
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.memory.source import Source
from plugins.api.plugin_services import Purpose
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import ExtraNotes, Notes
from plugins.memory.sources.transcripts import IDLE_SECONDS, Transcripts
from sessions.events.events import ContextCompacted, Recorded, SessionClosed, TurnEnded

SOON = 1.0
"""Seconds after which the event that triggers the indexing is surely durable."""


@contextlib.asynccontextmanager
async def open_memory(
    home: Home,
    settings: Settings,
    embeddings: OpenProviders[EmbeddingProvider],
    backends: Callable[[], Mapping[str, type[MemoryBackend]]],
    clock: Clock,
    *,
    counted: Callable[[Purpose, str, int], None] = lambda *_: None,
) -> AsyncIterator[Memory]:
    """Open the memory of the home's workspace; it follows changes of the settings.

    `embeddings` are the open providers for its vectors. `counted` is called with the purpose, the model and the estimated
    tokens of embedded texts.
    """

    def today() -> date:
        return clock.now().astimezone(settings.zone).date()

    async with Memory(
        home.memory,
        sources(home, settings),
        keys=lambda: settings.current.memory,
        providers=embeddings,
        in_use=embeddings.in_use,
        backends=backends,
        today=today,
        counted=counted,
    ) as memory:
        yield memory


def sources(home: Home, settings: Settings) -> list[Source]:
    """Return all sources that can be searched; of two documents with the same path, the first counts."""
    workspace = home.workspace(settings.current.agent.workspace)
    return [
        Notes(workspace),
        ExtraNotes(workspace, lambda: settings.current.memory.extra_paths),
        Transcripts(session_logs(home), lambda: settings.zone),
    ]


def chosen_sources(home: Home, config: Config) -> list[Source]:
    """Return the sources that a configuration selects."""
    return [source for source in sources(home, Settings(config)) if source.name in config.memory.enabled_sources()]


class IndexTrigger:
    """Calls `wake` to index journals: soon after messages left a view, and after a while without new ones."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._rested = 0.0
        """The time at which sessions count as idle, on the event loop's clock."""

    def on_event(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, TurnEnded):
            self._rested = asyncio.get_running_loop().time() + IDLE_SECONDS + SOON
            self._wake_at(self._rested)
        elif isinstance(recorded.event, ContextCompacted | SessionClosed):
            self._wake_at(asyncio.get_running_loop().time() + SOON)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None and self._timer.when() <= when:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._wake()
        if self._rested > asyncio.get_running_loop().time():
            self._wake_at(self._rested)
