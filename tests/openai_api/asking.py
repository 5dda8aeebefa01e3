"""A gateway whose model is a strict fake of OpenAI's service, and OpenAI's own client in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai

from plugins.testing.servers.openai_server import KEY, OpenAIServer
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.waiting import DEADLINE

MODEL = "openai:gpt-test"

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}}]

SAID: list[Any] = [{"role": "user", "content": "Hello?"}]


@asynccontextmanager
async def client_of(g: Gateway, token: str = TOKEN, **options: Any) -> AsyncIterator[Any]:
    """OpenAI's client for the gateway, without retries and, unless `options` say otherwise, without its own short timeout
    for connecting. Its overloads are not typed here."""
    options = {"timeout": DEADLINE, **options}
    async with openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key=token, max_retries=0, **options) as client:
        yield client


@asynccontextmanager
async def vendor_behind(
    home: Path, *answers: Any, settings: Mapping[str, Any] | None = None, file: str | None = None
) -> AsyncIterator[tuple[Gateway, OpenAIServer, Any]]:
    """The gateway, the service that it asks and that gives these answers, and the client."""
    async with OpenAIServer(*answers).serving() as server:
        own = {"base_url": server.url, "api_key": KEY, "pictures": True}
        wanted = {"agent.model": MODEL} | {f"providers.openai.{key}": value for key, value in own.items()}
        async with gateway(home, settings=wanted | dict(settings or {}), file=file) as g, client_of(g) as client:
            yield g, server, client
