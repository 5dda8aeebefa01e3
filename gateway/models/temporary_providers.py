"""The providers as a command opens them that asks them something, whether a gateway runs on the home or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from gateway.config.keys import Config
from gateway.models.model_list_cache import AllTold
from gateway.models.providers import OpenProviders, open_chats
from gateway.models.registry import ModelRegistry
from gateway.support.clock import SystemClock
from gateway.support.home import Home
from plugins.api.chat import ChatProvider
from plugins.api.context import PluginContext
from plugins.http.client import Transport


@asynccontextmanager
async def opened_briefly(
    home: Home,
    config: Config,
    kinds: Mapping[str, type[ChatProvider]],
    environment: Mapping[str, str],
    told: AllTold,
) -> AsyncIterator[OpenProviders[ChatProvider]]:
    """The providers while the block runs, on the settings that a start would give them."""

    def context(name: str, settings: Any) -> PluginContext:
        return PluginContext(
            settings=settings,
            folder=home.plugins / name,
            workspace=home.workspace(config.agent.workspace),
            clock=SystemClock(),
            transport=transport,
            environment=environment,
            reported_models=told.get(name),
        )

    async with Transport() as transport, open_chats(kinds, context) as providers:
        await providers.fit(config)
        yield providers


def models_of(providers: Mapping[str, ChatProvider], config: Config) -> ModelRegistry:
    """Which of them answers, as a start would have it."""
    agent = config.agent
    return ModelRegistry(
        providers,
        configured=agent.model,
        window=agent.context_window,
        windows=agent.context_windows,
        fallbacks=agent.fallback_models,
    )
