"""A homeserver with one account on the event loop of the test, so that virtual time passes for it too.

What needs a real server runs against Synapse (`synapse_server`).
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from aiohttp import web

USER = "@bot:test"


class MatrixServer:
    """The server. Other accounts are busy on it: each response to a sync request has another position.

    Attributes:
        url: Where it listens, on loopback.
        requests: The methods and paths of the requests.
        events: The events of the room `!room:test` that the next response to a sync request has.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._keys: dict[str, Any] = {}
        self._signing: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/_matrix/client/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        self.requests.append(f"{request.method} {path}")
        body = await request.json() if request.can_read_body else {}
        match request.method, path:
            case "GET", "v3/sync":
                if not self.events:
                    await asyncio.sleep(int(request.query["timeout"]) / 1000)
                answer: dict[str, Any] = {
                    "next_batch": f"s{len(self.requests)}",
                    "device_one_time_keys_count": {"signed_curve25519": 50},
                    "device_unused_fallback_key_types": ["signed_curve25519"],
                }
                if self.events:
                    answer["rooms"] = {"join": {"!room:test": {"timeline": {"events": self.events}}}}
                    self.events = []
            case "GET", "versions":
                answer = {"versions": ["v1.11"]}
            case "POST", "v3/login":
                answer = {"user_id": USER, "device_id": "DEVICE", "access_token": "syt_token"}
            case "POST", "v3/keys/upload":
                self._keys |= body.get("device_keys", {})
                answer = {"one_time_key_counts": {"signed_curve25519": 50}}
            case "POST", "v3/keys/device_signing/upload":
                self._signing = body
                answer = {}
            case "POST", "v3/keys/query":
                answer = {"device_keys": {USER: {"DEVICE": self._keys} if self._keys else {}}}
                if self._signing:
                    answer["master_keys"] = {USER: self._signing["master_key"]}
            case _:
                answer = {}
        return web.json_response(answer)


def event(name: str, kind: str = "m.room.message", **content: Any) -> dict[str, Any]:
    """Return an event of `@ana:test`, for `MatrixServer.events`."""
    return {"type": kind, "sender": "@ana:test", "event_id": f"${name}", "content": content}
