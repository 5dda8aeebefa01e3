"""The memory of a home's workspace, opened for the gateway or for the command line."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import date, tzinfo
from zoneinfo import ZoneInfo

from gateway.config.keys import Config
from gateway.config.settings import Settings
from gateway.models.providers import OpenProviders
from gateway.support.home import Home
from plugins.api.context import Clock
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.memory.source import Source
from plugins.api.services import Purpose
from plugins.memory.memory import Memory
from plugins.memory.sources.extra_notes import ExtraNotes
from plugins.memory.sources.notes import Notes
from plugins.memory.sources.transcripts import Transcripts


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
    """The memory of the home's workspace, which follows the settings as they change; its vectors are made by one of the
    providers that are open. `counted` is told for what which model was given texts of how many estimated tokens."""

    def today() -> date:
        return clock.now().astimezone(_zone(settings)).date()

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
    """All that can be searched; of two that have the same path, the first counts."""
    workspace = home.workspace(settings.current.agent.workspace)
    return [
        Notes(workspace),
        ExtraNotes(workspace, lambda: settings.current.memory.extra_paths),
        Transcripts(home.sessions, lambda: _zone(settings)),
    ]


def _zone(settings: Settings) -> tzinfo | None:
    """The time zone in which a day is one; None for the system's."""
    name = settings.current.agent.timezone
    return ZoneInfo(name) if name else None


def chosen_sources(home: Home, config: Config) -> list[Source]:
    """Those that a configuration has searched."""
    return [source for source in sources(home, Settings(config)) if source.name in config.memory.chosen()]
