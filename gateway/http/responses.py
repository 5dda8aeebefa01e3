"""JSON responses and errors in the gateway's format, never cached and never sniffed."""

from __future__ import annotations

import msgspec
from aiohttp import web

from plugins.support.secrets import scrubbed

HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


def answer(status: int, value: object) -> web.Response:
    """Return a value as a JSON response."""
    body = msgspec.json.encode(value)
    return web.Response(status=status, body=body, content_type="application/json", headers=HEADERS)


def refusal(status: int, code: str, sentence: str) -> web.Response:
    """Return an error response: `{"code", "message"}`, as in the websocket's `error`. A 503 has `Retry-After`."""
    response = answer(status, {"code": code, "message": scrubbed(sentence)})
    if status == web.HTTPServiceUnavailable.status_code:
        response.headers["Retry-After"] = "1"
    return response
