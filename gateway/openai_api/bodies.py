"""Reading the body of a request: within bounds of size and time, so that nobody holds a place with a drip."""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway.openai_api.refusals import Refused, bad_request

BODY_BYTES = 24 * 1024 * 1024
"""Bytes of a body: more than the pictures of the largest request, in base64."""

PIECE_BYTES = 256 * 1024
PIECE_SECONDS = 30.0
"""A body that brings nothing for so long is not waited for."""

BODY_SECONDS = 300.0
"""Seconds for a body as a whole."""


async def read_in_bounds(request: web.Request) -> bytes:
    """The body. Raises Refused: too large, too slow, packed, or broken off."""
    if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise Refused("Send the request as it is: a Content-Encoding is not unpacked here.", status=415)
    if (request.content_length or 0) > BODY_BYTES:
        raise _too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while piece := await _next_piece(request):
                body += piece
                if len(body) > BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise Refused("The body of the request stood still or took too long.", status=408) from None
    except web.RequestPayloadError:
        raise bad_request("The body of the request broke off.") from None
    return bytes(body)


async def _next_piece(request: web.Request) -> bytes:
    async with asyncio.timeout(PIECE_SECONDS):
        return await request.content.read(PIECE_BYTES)


def _too_large() -> Refused:
    return Refused(f"A request may have {BODY_BYTES:,} bytes.", status=413, code="request_too_large")
