"""HTTP answers in the gateway's form: never cached, never guessed at, and a refusal with a code and a sentence."""

from __future__ import annotations

import msgspec
from aiohttp import web

from plugins.support.secrets import scrubbed

HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


def answer(status: int, value: object) -> web.Response:
    """A value as JSON."""
    body = msgspec.json.encode(value)
    return web.Response(status=status, body=body, content_type="application/json", headers=HEADERS)


def refusal(status: int, code: str, sentence: str) -> web.Response:
    """Why something was not done: `{"code", "message"}` as in the websocket's `error`. 503 says to come back."""
    response = answer(status, {"code": code, "message": scrubbed(sentence)})
    if status == web.HTTPServiceUnavailable.status_code:
        response.headers["Retry-After"] = "1"
    return response
