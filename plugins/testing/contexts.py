"""A `PluginContext` as a plugin is given it, for a test: in a folder of the test's, with a transport that does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from plugins.api.context import NoSettings, PluginContext
from plugins.host.hooks import Hooks
from plugins.http.client import Timeouts, Transport

PATIENT = Timeouts(connect=5.0, first=5.0, between=5.0, whole=20.0, attempts=2)
"""How long a server is waited for that answers; the pauses between two attempts are not made."""

HASTY = Timeouts(connect=2.0, first=0.2, between=0.2, whole=2.0, attempts=2)
"""The same for one that does not answer."""

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._seconds = 0.0

    def now(self) -> datetime:
        """The time of day."""
        return self._now

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        return self._seconds

    def move(self, seconds: float) -> None:
        """Let so much time pass."""
        self._now += timedelta(seconds=seconds)
        self._seconds += seconds


def as_third_party(plugin: Any, seconds: float) -> Hooks:
    """The hooks of a policy alone, which has so long for an answer. AssertionError, with the reason, where it is refused."""
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
    patience: Timeouts = PATIENT,
    **more: Any,
) -> AsyncIterator[PluginContext]:
    """The house while the block runs, below `folder`. `settings` None is those of a plugin that has none; `more` are further
    fields of `PluginContext`."""

    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    async with Transport(sleep=no_pause, chance=lambda: 1.0, patience=patience) as transport:
        yield PluginContext(
            settings=NoSettings() if settings is None else settings,
            folder=folder / "plugin",
            workspace=workspace,
            clock=ManualClock(),
            transport=transport,
            environment=environment or {},
            **more,
        )
