"""A gateway in this process with a channel of any kind, and the kind's service as its story runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.ports import free_port
from tests.channels.story import StoryService
from tests.gateway.gateways import Gateway, gateway

KINDS = ("telegram", "discord", "slack", "email", "irc", "matrix", "webhook")


@asynccontextmanager
async def serving(
    kind: str, folder: Path, *, script: Sequence[Mapping[str, Any]] | None = None, strangers: bool = False, **settings: Any
) -> AsyncIterator[tuple[StoryService, Gateway]]:
    """Run a kind's service in `folder`, and a gateway with a channel to it. Its model repeats what people say, or gives the
    script's replies. `strangers`: nobody is known on the channel. Settings have `_` for the first `.` of their names."""
    if kind == "matrix":
        import_module("tests.servers.synapse_server").required()
    (folder / "service").mkdir()
    service: StoryService = import_module(f"tests.channels.{kind}_story").Story(folder / "service")
    service.gateway_port = free_port()
    named = {name.replace("_", ".", 1): value for name, value in settings.items()}
    named |= {"gateway.port": service.gateway_port} | ({"agent.model": "scripted:echo"} if script is None else {})
    async with service:
        file = service.strangers() if strangers else service.configuration()
        async with gateway(folder / "home", file=file, script=script, settings=named) as g:
            yield service, g
