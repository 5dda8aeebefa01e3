"""A server that lists models, as model servers do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from aiohttp import web


class Listing:
    """A server with fixed answers to GET requests, which it records. `close` stops it."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.url = ""
        self.busy = False
        self.close: Callable[[], Awaitable[None]]

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        self.headers.append(request.headers)
        if self.busy:
            return web.json_response({"error": {"code": 503, "message": "Loading model"}}, status=503)
        answer = self.answers.get(request.path)
        return web.json_response(answer) if answer is not None else web.Response(status=404)


Serve: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Listing]]
"""Starts a server with these answers."""
