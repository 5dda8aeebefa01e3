"""A `House` as a plugin is given it, for a test: in a folder of the test's, with a transport that does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from plugins.conformance.clock import SetClock
from plugins.contracts import House, NoSettings
from plugins.transport import Patience, Transport

PATIENT = Patience(connect=5.0, first=5.0, between=5.0, whole=20.0, attempts=2)
"""How long a server is waited for that answers; the pauses between two attempts are not made."""

HASTY = Patience(connect=2.0, first=0.2, between=0.2, whole=2.0, attempts=2)
"""The same for one that does not answer."""


@asynccontextmanager
async def furnished(
    folder: Path,
    settings: Any = None,
    *,
    environment: Mapping[str, str] | None = None,
    patience: Patience = PATIENT,
    **more: Any,
) -> AsyncIterator[House]:
    """The house while the block runs, below `folder`. `settings` None is those of a plugin that has none; `more` are further
    fields of `House`."""

    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    async with Transport(sleep=no_pause, chance=lambda: 1.0, patience=patience) as transport:
        yield House(
            settings=NoSettings() if settings is None else settings,
            folder=folder / "plugin",
            workspace=workspace,
            clock=SetClock(),
            transport=transport,
            environment=environment or {},
            **more,
        )
