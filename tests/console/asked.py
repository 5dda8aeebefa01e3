"""Asking a gateway over HTTP, as a page of the console does."""

from __future__ import annotations

import json
from typing import Any

from yarl import URL

from tests.gateway.gateways import TOKEN, Gateway
from tests.waiting import deadline


class Answered:
    """An answer: its status, its headers, its bytes."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(running: Gateway, path: str, method: str = "GET", *, token: str = TOKEN, **given: Any) -> Answered:
    """One request for exactly this path, with the owner's token unless another is given."""
    headers = {"Authorization": f"Bearer {token}", **given.pop("headers", {})}
    async with (
        deadline(),
        running.http.request(method, URL(f"{running.url}{path}", encoded=True), headers=headers, **given) as response,
    ):
        return Answered(response.status, response.headers, await response.read())
