"""Reading request bodies within limits of size, time and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from gateway.http.concurrency import Quota
from gateway.http.responses import refusal

PIECE_BYTES = 256 * 1024
"""Bytes of a body that are read at a time."""

PIECE_SECONDS = 30.0
"""Seconds without a byte after which a body is refused."""

SIGN_IN_SECONDS = 10.0
"""Seconds for the whole body of an unauthenticated request."""

_READ = web.RequestKey("_READ", bytes)
"""Where a request has the body that was read, for whoever reads it again."""


class BodyRefused(Exception):
    """A body that is refused. The text is a sentence for a person; `status` and `code` are those of the response."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code

    @property
    def response(self) -> web.Response:
        """The response; it closes the connection, since the rest of the body is not read."""
        response = refusal(self.status, self.code, str(self))
        response.force_close()
        return response


class BodyShare:
    """The memory that the body of one person's request occupies, of a quota in bytes."""

    def __init__(self, quota: Quota, person: str) -> None:
        self._quota = quota
        self._person = person
        self._size = 0

    @classmethod
    @contextmanager
    def of(cls, quota: Quota, person: str) -> Iterator[BodyShare]:
        """Provide the share of one request, which is released when the block ends."""
        share = cls(quota, person)
        try:
            yield share
        finally:
            quota.add(person, -share._size)

    def grow(self, size: int) -> None:
        """Reserve `size` bytes in total.

        Raises:
            BodyRefused: A limit is exceeded.
        """
        more = size - self._size
        if more <= 0:
            return
        if exceeded := self._quota.exceeded(self._person, more):
            whose = "Your requests" if exceeded == "one" else "All requests together"
            raise BodyRefused(429, "busy", f"{whose} use too much of the gateway's memory; try again shortly.")
        self._quota.add(self._person, more)
        self._size = size


async def read_body(request: web.Request, most: int, seconds: float, share: BodyShare | None = None) -> bytes:
    """Return the body of a request, of at most `most` bytes, within this number of seconds.

    `share` reserves the bytes as soon as the request announces or sends them.

    Raises:
        BodyRefused: The body is too large, too slow, compressed or interrupted, or the memory for it is not available.
    """
    read: bytes | None = request.get(_READ)
    if read is not None:  # another gateway had the conversation when it was read
        return read
    if is_encoded(request):
        raise BodyRefused(415, "bad_request", "Content-Encoding is not supported; send the request unencoded.")
    announced = request.content_length or 0
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                if max(announced, len(body)) > most:
                    raise BodyRefused(413, "too_large", f"The limit for a request is {most:,} bytes.")
                if share is not None:
                    share.grow(max(announced, len(body)))
                if not (piece := await _next_piece(request)):
                    request[_READ] = whole = bytes(body)
                    return whole
                body += piece
    except TimeoutError:
        raise BodyRefused(408, "bad_request", "The body of the request stalled or took too long.") from None
    except (web.RequestPayloadError, ConnectionError):
        raise BodyRefused(400, "bad_request", "The body of the request was interrupted.") from None


async def body_of(request: web.Request) -> bytes:
    """Return the body of a request that may have been read before."""
    read: bytes | None = request.get(_READ)
    return await request.read() if read is None else read


def is_encoded(request: web.Request) -> bool:
    """Return True if the body of a request is compressed, so that it may be larger than what is received."""
    return request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity")


async def _next_piece(request: web.Request) -> bytes:
    async with asyncio.timeout(PIECE_SECONDS):
        return await request.content.read(PIECE_BYTES)
