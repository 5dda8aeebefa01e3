"""Providers that a command opens for its own requests, whether or not a gateway runs on the home."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from gateway.config.keys import Config
from gateway.models.model_list_cache import CachedModelLists
from gateway.models.providers import OpenProviders, open_chats
from gateway.models.registry import ModelRegistry
from gateway.support.clock import SystemClock
from gateway.support.home import Home
from plugins.api.chat import ChatProvider
from plugins.api.context import ProviderContext
from plugins.http.client import Transport


@asynccontextmanager
async def open_temporarily(
    home: Home,
    config: Config,
    kinds: Mapping[str, type[ChatProvider]],
    environment: Mapping[str, str],
    reported: CachedModelLists,
) -> AsyncIterator[OpenProviders[ChatProvider]]:
    """Open the providers while the block runs, with the settings that the gateway would use."""

    def context(name: str, settings: Any) -> ProviderContext:
        return ProviderContext(
            settings=settings,
            folder=home.plugins / name,
            workspace=home.workspace(config.agent.workspace),
            clock=SystemClock(),
            transport=transport,
            environment=environment,
            reported_models=reported.get(name),
        )

    async with Transport() as transport, open_chats(kinds, context) as providers:
        await providers.reconfigure(config)
        yield providers


def make_registry(providers: Mapping[str, ChatProvider], config: Config) -> ModelRegistry:
    """Return the model registry that the gateway would use."""
    agent = config.agent
    return ModelRegistry(
        providers,
        configured=agent.model,
        window=agent.context_window,
        windows=agent.context_windows,
        fallbacks=agent.fallback_models,
    )
