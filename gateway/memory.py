"""The memory of a home's workspace, opened for the gateway or for the command line."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

import structlog

from gateway.configuration.settings import Settings
from gateway.errors import sentence_of
from gateway.home import Home
from plugins.contracts import Clock, House, NoSettings
from plugins.embedding import EmbeddingProvider
from plugins.memory.memory import Memory

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
                home.workspace(settings.current.agent.workspace),
                keys=lambda: settings.current.memory,
                providers=providers,
                today=today,
            )
        )
