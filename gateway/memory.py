"""The memory of a home's workspace, opened for the gateway or for the command line."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

import structlog

from gateway.configuration.keys import Config
from gateway.configuration.settings import Settings
from gateway.errors import sentence_of
from gateway.home import Home
from plugins.contracts import Clock, House, NoSettings
from plugins.embedding import EmbeddingProvider
from plugins.memory.extra_notes import ExtraNotes
from plugins.memory.memory import Memory
from plugins.memory.notes import Notes
from plugins.memory.sources import Source

log = structlog.get_logger("exuvia.memory")


@contextlib.asynccontextmanager
async def open_memory(
    home: Home,
    settings: Settings,
    kinds: Mapping[str, type[EmbeddingProvider]],
    house: Callable[[str, Any], House],
    clock: Clock,
) -> AsyncIterator[Memory]:
    """The memory with all embedding providers that can be opened; one that cannot is named in the log and left out. It
    follows the settings as they change."""

    def today() -> date:
        name = settings.current.agent.timezone
        return clock.now().astimezone(ZoneInfo(name) if name else None).date()

    async with contextlib.AsyncExitStack() as stack:
        providers: dict[str, EmbeddingProvider] = {}
        for name, kind in kinds.items():
            try:
                providers[name] = await stack.enter_async_context(kind(house(f"embedding-{name}", NoSettings())))
            except Exception as error:
                log.error("embedding_provider_not_opened", provider=name, reason=sentence_of(error))
        yield await stack.enter_async_context(
            Memory(
                home.memory,
                sources(home, settings),
                keys=lambda: settings.current.memory,
                providers=providers,
                today=today,
            )
        )


def sources(home: Home, settings: Settings) -> list[Source]:
    """All that can be searched; of two that have the same path, the first counts."""
    workspace = home.workspace(settings.current.agent.workspace)
    return [Notes(workspace), ExtraNotes(workspace, lambda: settings.current.memory.extra_paths)]


def chosen_sources(home: Home, config: Config) -> list[Source]:
    """Those that a configuration has searched."""
    return [source for source in sources(home, Settings(config)) if source.name in config.memory.chosen()]
