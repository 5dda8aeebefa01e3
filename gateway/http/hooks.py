"""`POST /hooks/NAME`: requests of services to channels, which verify them themselves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import structlog
from aiohttp import web

from gateway.auth.limits import UnauthenticatedLimit
from gateway.http.concurrency import Quota
from gateway.http.request_bodies import BodyRefused, BodyShare, read_body
from gateway.http.responses import HEADERS, refusal
from gateway.status.problems import Readiness
from gateway.support.errors import sentence_of
from plugins.api.channel import ChannelInbox, HandlesHooks, HookResponse
from plugins.support.untrusted import call_failure, reraise_cancellation

Hooked: TypeAlias = Callable[[str], tuple[HandlesHooks, ChannelInbox] | None]
"""Returns a channel and its inbox, see `ChannelRunner.hooked`."""

BODY_SECONDS = 30.0
"""Seconds for a whole body."""

HANDLE_SECONDS = 60.0
"""Seconds that a channel has for a request."""

OF_ONE_ADDRESS, AT_ONCE = 8, 32
"""The limits of concurrent requests, from one address and in total."""

OF_ONE, OF_ALL = 32 * 1024 * 1024, 64 * 1024 * 1024
"""The limits of the memory for bodies in bytes, of one address and in total."""

log = structlog.get_logger("exuvia.channels")


class _Request:
    """A `HookRequest`."""

    def __init__(self, request: web.Request, share: BodyShare) -> None:
        self.headers: Mapping[str, str] = {name.lower(): ", ".join(request.headers.getall(name)) for name in request.headers}
        self._request = request
        self._share = share

    async def read(self, most: int) -> bytes:
        """Return the body, see `HookRequest.read`. Raises BodyRefused."""
        return await read_body(self._request, most, BODY_SECONDS, self._share)


class Hooks:
    """The route. `hooked` returns a channel by its name."""

    def __init__(self, hooked: Hooked, readiness: Readiness, unauthenticated: UnauthenticatedLimit) -> None:
        self._hooked = hooked
        self._readiness = readiness
        self._unauthenticated = unauthenticated
        self._running = Quota(OF_ONE_ADDRESS, AT_ONCE)
        self._memory = Quota(OF_ONE, OF_ALL)

    @property
    def route(self) -> web.RouteDef:
        """The route, for everybody."""
        return web.post("/hooks/{name}", self._serve)

    async def _serve(self, request: web.Request) -> web.Response:
        address, name = request.remote or "", request.match_info["name"]
        try:
            found = self._hooked(name)
        except LookupError:
            raise web.HTTPNotFound from None
        if found is None or self._readiness.refuses is not None:
            return refusal(503, "busy", "The channel is not open; try again shortly.")
        if self._running.exceeded(address):
            return refusal(503, "busy", "Too many requests are being handled; try again shortly.")
        channel, inbox = found
        with self._running.unit(address), BodyShare.of(self._memory, address) as share:
            try:
                async with asyncio.timeout(HANDLE_SECONDS):
                    response = await channel.handle(_Request(request, share), inbox)
                answer = _answer(response)
            except BodyRefused as error:
                return error.response
            except TimeoutError:
                return refusal(503, "busy", "The channel took too long; try again shortly.")
            except BaseException as error:
                reraise_cancellation(error)
                log.error("hook_failed", channel=name, reason=sentence_of(call_failure(error)))
                return refusal(500, "internal", "The channel failed; its log says why.")
        if answer.status < web.HTTPBadRequest.status_code:
            self._unauthenticated.authenticated(address, request.protocol)
        elif not request.content.at_eof():
            answer.force_close()  # the rest of the body is not read
        return answer


def _answer(response: HookResponse) -> web.Response:
    answer = web.Response(status=response.status, body=response.body, content_type=response.media, headers=HEADERS)
    if response.retry_after > 0:
        answer.headers["Retry-After"] = str(math.ceil(response.retry_after))
    return answer
