"""The providers as a command opens them that asks them something, whether a gateway runs on the home or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from gateway.clock import SystemClock
from gateway.configuration.keys import Config
from gateway.home import Home
from gateway.models.choosing import Models
from gateway.models.open_providers import OpenProviders, open_chats
from gateway.models.told import AllTold
from plugins.contracts import ChatProvider, House
from plugins.transport import Transport


@asynccontextmanager
async def opened_briefly(
    home: Home,
    config: Config,
    kinds: Mapping[str, type[ChatProvider]],
    environment: Mapping[str, str],
    told: AllTold,
) -> AsyncIterator[OpenProviders[ChatProvider]]:
    """The providers while the block runs, on the settings that a start would give them."""

    def house(name: str, settings: Any) -> House:
        return House(
            settings=settings,
            folder=home.plugins / name,
            workspace=home.workspace(config.agent.workspace),
            clock=SystemClock(),
            transport=transport,
            environment=environment,
            told=told.get(name),
        )

    async with Transport() as transport, open_chats(kinds, house) as providers:
        await providers.fit(config)
        yield providers


def models_of(providers: Mapping[str, ChatProvider], config: Config) -> Models:
    """Which of them answers, as a start would have it."""
    agent = config.agent
    return Models(
        providers,
        configured=agent.model,
        window=agent.context_window,
        windows=agent.context_windows,
        fallbacks=agent.fallback_models,
    )
