"""The kit's checks, with a service that knows the tides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web
from exuvia_tides import TidesSettings
from exuvia_tides.command import Tides
from exuvia_tides.tool import Tide

from exuvia import CommandConformance, Tool, ToolConformance, make_context


@asynccontextmanager
async def service() -> AsyncIterator[str]:
    """Who knows the tides; yields the address."""

    async def today(request: web.Request) -> web.Response:
        return web.json_response({"high": "14:07", "low": "20:19"})

    app = web.Application()
    app.router.add_post("/today", today)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class TestCommand(CommandConformance):
    command = Tides


class TestTool(ToolConformance):
    tool = Tide
    arguments: ClassVar[dict[str, Any]] = {"harbour": "Porto"}

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[Tool]:
        async with service() as address, make_context(folder, TidesSettings(address=address)) as context:
            yield Tide(context)
