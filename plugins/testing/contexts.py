"""Contexts for tests, with a manual clock and an HTTP client that does not pause between attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from plugins.api.context import NoSettings, PluginContext, ProviderAccount, ProviderContext
from plugins.api.models import ModelList
from plugins.api.plugin_services import PluginServices
from plugins.host.hooks import Hooks
from plugins.http.client import Timeouts, Transport
from plugins.testing.in_memory_services import in_memory_services

NORMAL = Timeouts(connect=5.0, first=5.0, between=5.0, whole=20.0, attempts=2)
"""Timeouts for servers that respond."""

SHORT = Timeouts(connect=2.0, first=0.2, between=0.2, whole=2.0, attempts=2)
"""Timeouts for servers that do not respond."""

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._seconds = 0.0

    def now(self) -> datetime:
        """Return the time of day."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds by which the clock was moved."""
        return self._seconds

    def move(self, seconds: float) -> None:
        """Move the clock forward."""
        self._now += timedelta(seconds=seconds)
        self._seconds += seconds


def as_third_party(plugin: Any, seconds: float) -> Hooks:
    """Return hooks with only this plugin, treated as third-party, with a timeout for decisions. Fail if it is refused."""
    hooks = Hooks(seconds)
    hooks.register("policy", plugin)
    assert not hooks.refused, hooks.refused[0].sentence
    return hooks


@asynccontextmanager
async def make_context(
    folder: Path,
    settings: Any = None,
    *,
    environment: Mapping[str, str] | None = None,
    timeouts: Timeouts = NORMAL,
    services: PluginServices | None = None,
) -> AsyncIterator[PluginContext]:
    """Provide the context of a tool, channel or `gateway_started` hook in a `with` block.

    Args:
        folder: A folder for the test. The workspace is `workspace` in it.
        settings: The plugin's settings; None if it has none.
        environment: The environment variables; empty by default.
        timeouts: The timeouts of the HTTP client. It does not pause between attempts.
        services: The services; by default an empty memory, and facts, a log, a model and embeddings in memory.
    """
    async with _transport(timeouts) as transport:
        yield PluginContext(
            settings=NoSettings() if settings is None else settings,
            folder=folder / "plugin",
            workspace=_workspace(folder),
            clock=ManualClock(),
            transport=transport,
            environment=environment or {},
            services=services or in_memory_services(),
        )


@asynccontextmanager
async def make_provider_context(
    folder: Path,
    settings: Any,
    *,
    environment: Mapping[str, str] | None = None,
    timeouts: Timeouts = NORMAL,
    reported_models: ModelList | None = None,
    account: ProviderAccount | None = None,
) -> AsyncIterator[ProviderContext]:
    """Provide the context of a chat or embedding provider in a `with` block.

    Args:
        folder: A folder for the test. The workspace is `workspace` in it.
        settings: The provider's settings: its own `Settings`, or `EmbeddingKeys` for an embedding provider.
        environment: The environment variables; empty by default.
        timeouts: The timeouts of the HTTP client. It does not pause between attempts.
        reported_models: The model list that the server reported earlier.
        account: For embedding providers, the account of the chat provider with the same name.
    """
    async with _transport(timeouts) as transport:
        yield ProviderContext(
            settings=settings,
            folder=folder / "plugin",
            workspace=_workspace(folder),
            clock=ManualClock(),
            transport=transport,
            environment=environment or {},
            reported_models=reported_models,
            account=account or ProviderAccount(),
        )


def _transport(timeouts: Timeouts) -> Transport:
    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    return Transport(sleep=no_pause, chance=lambda: 1.0, timeouts=timeouts)


def _workspace(folder: Path) -> Path:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    return workspace
