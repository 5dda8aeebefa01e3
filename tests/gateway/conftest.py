"""Fixtures for the tests of the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from gateway.conversations.routing import chat as chats
from gateway.conversations.turn import recalling
from gateway.protocol.slash_commands import TypedCommand
from sessions.events.events import MessageReceived
from tests.gateway.listing import Listing, Serve


@pytest.fixture
def serve(aiohttp_server: AiohttpServer) -> Serve:
    """Start a server with these answers."""

    async def start(answers: Mapping[str, Any]) -> Listing:
        listing, app = Listing(answers), web.Application()
        app.router.add_route("*", "/{path:.*}", listing.answer)
        server = await aiohttp_server(app, shutdown_timeout=0.1)
        listing.url, listing.close = f"http://127.0.0.1:{server.port}", server.close
        return listing

    return start


@pytest.fixture
def unhurried_recall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let recall take as long as a busy machine needs."""
    monkeypatch.setattr(recalling, "WITHIN", 30.0)
    monkeypatch.setattr(recalling, "PATIENCE", 30.0)


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the texts that conversations receive."""
    received: list[str] = []
    receive = chats.Chat.receive

    async def note(self: chats.Chat, message: MessageReceived, typed: TypedCommand | None) -> chats.AcceptedMessage:
        received.append(message.text)
        return await receive(self, message, typed)

    monkeypatch.setattr(chats.Chat, "receive", note)
    return received
