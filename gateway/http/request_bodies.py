"""The bodies of HTTP requests: read whole, within bounds of size, time and memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from gateway.http.responses import refusal

PIECE_BYTES = 256 * 1024
PIECE_SECONDS = 30.0
"""Seconds without a byte after which a body is refused."""

SIGN_IN_SECONDS = 10.0
"""Seconds for the whole body of somebody who is not known yet: nobody may hold a connection for nothing."""


class BodyRefused(Exception):
    """A body that is not taken. The text is one sentence for a person; `status` and `code` are those of the answer."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code

    @property
    def response(self) -> web.Response:
        """The answer; it ends the connection, since the rest of the body is not read."""
        response = refusal(self.status, self.code, str(self))
        response.force_close()
        return response


class BodyBudget:
    """The bytes of bodies that are held at the same time, by one person and by all.

    Args:
        of_one: The most bytes of one person.
        of_all: The most bytes of all persons together.
    """

    def __init__(self, of_one: int, of_all: int) -> None:
        self._of_one = of_one
        self._of_all = of_all
        self._held: Counter[str] = Counter()

    @contextmanager
    def share(self, person: str) -> Iterator[BodyShare]:
        """Provide the share of one request, which is returned when the block ends."""
        share = BodyShare(self, person)
        try:
            yield share
        finally:
            self._held[person] -= share.size
            self._held = +self._held

    def take(self, person: str, size: int) -> None:
        """Hold further bytes. Raises BodyRefused if there is no room for them."""
        of_one = self._held[person] + size > self._of_one
        if of_one or self._held.total() + size > self._of_all:
            whose = "your" if of_one else "everybody's"
            sentence = f"The requests under way hold too much of {whose} memory on this gateway; try again shortly."
            raise BodyRefused(429, "busy", sentence)
        self._held[person] += size


class BodyShare:
    """What one request holds of a `BodyBudget`."""

    def __init__(self, budget: BodyBudget, person: str) -> None:
        self._budget = budget
        self._person = person
        self.size = 0

    def grow(self, size: int) -> None:
        """Hold `size` bytes in all. Raises BodyRefused."""
        if size > self.size:
            self._budget.take(self._person, size - self.size)
            self.size = size


async def read_body(request: web.Request, most: int, seconds: float, share: BodyShare | None = None) -> bytes:
    """Return the body of a request.

    Args:
        request: The request; nothing of its body was read before.
        most: The most bytes that are taken.
        seconds: The time for the whole body.
        share: Holds the bytes from the moment at which the request announces or brings them.

    Raises:
        BodyRefused: The body is too large, too slow, compressed, broken off, or there is no room for it.
    """
    if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise BodyRefused(415, "bad_request", "Send the request without Content-Encoding.")
    announced = request.content_length or 0
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                if max(announced, len(body)) > most:
                    raise BodyRefused(413, "too_large", f"A request may have {most:,} bytes.")
                if share is not None:
                    share.grow(max(announced, len(body)))
                if not (piece := await _next_piece(request)):
                    return bytes(body)
                body += piece
    except TimeoutError:
        raise BodyRefused(408, "bad_request", "The body of the request stood still or took too long.") from None
    except (web.RequestPayloadError, ConnectionError):
        raise BodyRefused(400, "bad_request", "The body of the request broke off.") from None


async def _next_piece(request: web.Request) -> bytes:
    async with asyncio.timeout(PIECE_SECONDS):
        return await request.content.read(PIECE_BYTES)
