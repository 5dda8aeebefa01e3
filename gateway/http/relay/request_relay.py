"""Requests about conversations that other gateways have: the owner answers them, and its response is passed on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web

from gateway.auth.people import Admission
from gateway.auth.relay_tokens import RELAYED
from gateway.http.relay.links import Links
from gateway.http.request_bodies import body_of
from gateway.http.responses import refusal
from gateway.support.errors import OwnedElsewhere

MESSAGE_IDS = ("Idempotency-Key", "X-Client-Request-Id")
"""Headers that may set a message's id; the first one present is used."""

MOVED = "X-Exuvia-Moved"
"""The header of a response to another gateway: this one does not have the conversation. Its value is `LOST` or "1"."""

LOST = "lost"
"""The value of that header if this gateway had the conversation when the request came."""

RETRY_SECONDS = 0.1
"""Seconds before an owner is looked for again."""

LONGEST_SECONDS = 15.0
"""Seconds after which a request without an owner is refused."""

WENT_AWAY = (
    "The gateway that has this conversation went away while it answered; look what has become of it, or send the same"
    " Idempotency-Key next time, with which it is sent again to the next one."
)
"""The error of a request that may have taken effect."""

_OF_CONNECTION = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})
_OF_ANSWER = _OF_CONNECTION | {"date", "server"}
_FOR_US = frozenset({"authorization", "cookie", "expect", "host", "origin", "te", "trailer", "upgrade", RELAYED.lower()})


class RequestRelay:
    """Handles requests, on this gateway or on the owner of the conversation that they are about.

    Args:
        links: Connections to the other gateways.
        is_relayed: Returns True for a request that another gateway sends.
        draining: Returns True while this gateway stops.
    """

    def __init__(self, links: Links, is_relayed: Callable[[web.Request], bool], draining: Callable[[], bool]) -> None:
        self._links = links
        self._is_relayed = is_relayed
        self._draining = draining

    async def handle(
        self,
        request: web.Request,
        admission: Admission,
        handle: Callable[[web.Request, Admission], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Return the response of this gateway's handler, or of the owner's."""
        relayed, until = self._is_relayed(request), time.monotonic() + LONGEST_SECONDS
        if relayed and self._draining():
            return _moved()
        while True:
            try:
                return await handle(request, admission)
            except OwnedElsewhere as owner:
                if relayed:
                    return _moved(LOST if owner.lost else "1")
                person = admission.person.id
                response, lost = await self._relayed(request, person, owner) if owner.url else (None, owner.lost)
                if response is not None:
                    return response
                if lost:  # by an owner that had it until now: the next one takes a few seconds
                    until = time.monotonic() + LONGEST_SECONDS
                if time.monotonic() > until:
                    return refusal(503, "busy", str(owner))
            await asyncio.sleep(RETRY_SECONDS)

    async def _relayed(
        self, request: web.Request, person: str, owner: OwnedElsewhere
    ) -> tuple[web.StreamResponse | None, bool]:
        """Return the owner's response, or None if the next one is to be asked.

        The second value is True if the owner went away, or lost the conversation, before it answered a request that can be
        repeated; else it cannot be reached, or did not have the conversation any more.
        """
        headers = {name: value for name, value in request.headers.items() if not _is_ours(name.lower())}
        response: web.StreamResponse | None = None
        try:
            asked = self._links.request(
                person, owner, request.method, request.raw_path, headers=headers, body=await body_of(request)
            )
            async with self._links.while_there(owner.gateway), asked as answer:
                if MOVED in answer.headers:
                    return None, answer.headers[MOVED] == LOST
                kept = {
                    name: value
                    for name, value in answer.headers.items()
                    if name.lower() not in _OF_CONNECTION | {"date", "server"}
                }
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response, False
        except aiohttp.ClientConnectorError:
            return None, False
        except (aiohttp.ClientError, TimeoutError):
            if response is None:
                return (None, True) if _is_repeatable(request) else (_went_away(), False)
            if request.transport is not None:
                request.transport.abort()
            return response, False


def _is_repeatable(request: web.Request) -> bool:
    """Return True if a request that was sent twice takes effect once: it only reads, or its message has an id."""
    return request.method in ("GET", "HEAD") or any(name in request.headers for name in MESSAGE_IDS)


def _is_ours(name: str) -> bool:
    """Return True for a request's header, in lower case, that is not for the owner."""
    return name in _OF_CONNECTION | _FOR_US or name.startswith(("proxy-", "sec-"))


def _moved(value: str = "1") -> web.Response:
    response = refusal(503, "busy", "This gateway does not have the conversation.")
    response.headers[MOVED] = value
    return response


def _went_away() -> web.Response:
    """Return the response to a request that may have taken effect, and must not be repeated by itself."""
    response = refusal(503, "busy", WENT_AWAY)
    del response.headers["Retry-After"]
    response.headers["X-Should-Retry"] = "false"  # honoured by OpenAI's own clients
    return response
