"""The base of the fake servers: listening, recording requests, and simulating failures.

A fake derives from `FaultyServer` and defines its path, the requests that it rejects, and the format of a successful
answer. Failures, such as answers that hang or are cut off, are the same for all of them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar

from aiohttp import web

Json: TypeAlias = dict[str, Any]

HANG = 60.0
"""Seconds for which a hanging answer is delayed, unless the client disconnects."""


class Fault:
    """A failure instead of an answer.

    Attributes:
        status: The status of the response, with `body`, `media` (the content type) and `headers`.
        end: What happens after `pieces` of a successful answer: `cut` (the connection closes inside a chunk), `reset`,
            `close` (a clean end without the terminator) or `hang`. With `silence` not even headers are sent.
        pieces: The number of pieces of the successful answer that are sent.
        events: Sent instead of those pieces.
    """

    def __init__(
        self,
        *,
        status: int = 200,
        body: bytes = b"",
        media: str = "application/json",
        headers: dict[str, str] | None = None,
        end: str = "",
        pieces: int = 1,
        events: list[bytes] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.media = media
        self.headers = headers or {}
        self.end = end
        self.pieces = pieces
        self.events = events


class RawResponse:
    """A response with exactly these bytes, repeated `times` times, in chunks of `chunk` bytes with a delay after each."""

    def __init__(self, content: bytes, *, chunk: int = 0, delay: float = 0, times: int = 1) -> None:
        self.content = content
        self.chunk = chunk
        self.delay = delay
        self.times = times


class ServerResponse:
    """A successful answer; each fake has its own subclass. `delay` is the delay after each piece in seconds."""

    delay: float = 0.0


S = TypeVar("S", bound=ServerResponse)


class FaultyServer(ABC, Generic[S]):
    """A fake service.

    It answers each valid request with the next of `answers` (the last one repeatedly), else with the result of
    `respond`, else by repeating the person's last words.

    Attributes:
        requests: The bodies of the requests.
        headers: The headers of the requests.
        paths: The paths of the requests.
    """

    PATH: ClassVar[str]
    BASE: ClassVar[str] = ""
    """The path of the base URL that clients are given."""
    MEDIA: ClassVar[str] = "text/event-stream; charset=utf-8"

    LIST: ClassVar[str] = "/v1/models"
    """The path of the model list."""

    def __init__(
        self, *answers: Fault | RawResponse | S, respond: Callable[[Json], Fault | RawResponse | S] | None = None
    ) -> None:
        self.answers = list(answers)
        self.instead_of_list: Fault | None = None
        self.asked_lists: list[str] = []
        self.requests: list[Json] = []
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []
        self.connections: set[tuple[str, int]] = set()
        self.url = ""
        self.disconnects = 0
        self.answering = 0
        """Requests that are being answered now."""
        self.written = 0
        """Bytes of raw answers that clients took."""
        self._transports: set[asyncio.BaseTransport] = set()
        self._respond = respond or self.echo
        self._given = 0

    @abstractmethod
    def key_refused(self, request: web.Request) -> web.Response | None:
        """Return the answer to a request with an invalid key; None if the key is valid."""

    @abstractmethod
    def refused(self, request: web.Request, body: Json) -> web.Response | None:
        """Return the answer to a body that the real service rejects; None if it is valid."""

    @abstractmethod
    def says(self, text: str) -> S:
        """Return a successful answer with this text."""

    @abstractmethod
    def echo(self, body: Json) -> S:
        """Return an answer that repeats the person's last words."""

    @abstractmethod
    def pieces(self, request: web.Request, body: Json, answer: S) -> list[bytes]:
        """Return a successful answer as it is sent, in pieces."""

    @abstractmethod
    def listing(self, request: web.Request) -> Json | web.Response:
        """Return the model list, or an error."""

    @property
    def open_connections(self) -> int:
        """The number of open connections, including idle ones."""
        return sum(not transport.is_closing() for transport in self._transports)

    def now_says(self, *answers: Fault | RawResponse | S) -> None:
        """Answer the next requests with these."""
        self.answers, self._given = list(answers), 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Listen on a free port, and set `url` to the base URL."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post(self.PATH, self._answer)
        app.router.add_get(self.LIST, self._list)
        self.add_more(app)
        app.router.add_route("*", "/{elsewhere:.*}", self._elsewhere)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}{self.BASE}"
            yield self
        finally:
            await runner.cleanup()

    def add_more(self, app: web.Application) -> None:
        """Add further routes."""

    async def _elsewhere(self, request: web.Request) -> web.Response:
        return web.Response(
            status=404, text=f"{request.method} {request.path} was asked; this fake answers POST {self.PATH}."
        )

    async def _list(self, request: web.Request) -> web.StreamResponse:
        self.asked_lists.append(request.path_qs)
        if (refusal := self.key_refused(request)) is not None:
            return refusal
        if (fault := self.instead_of_list) is not None:
            return web.Response(status=fault.status, body=fault.body, headers={"Content-Type": fault.media})
        given = self.listing(request)
        return given if isinstance(given, web.Response) else web.json_response(given)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers)
        self.paths.append(request.path_qs)
        assert request.transport is not None
        self.connections.add(request.transport.get_extra_info("peername"))
        self._transports.add(request.transport)
        if (refusal := self.key_refused(request)) is not None:
            return refusal
        body: Json = await request.json()
        self.requests.append(body)
        if (refusal := self.refused(request, body)) is not None:
            return refusal
        self._given += 1
        answer = self.answers[min(self._given, len(self.answers)) - 1] if self.answers else self._respond(body)
        self.answering += 1
        try:
            return await self._give(request, body, answer)
        except (ConnectionError, asyncio.CancelledError):
            self.disconnects += 1
            raise
        finally:
            self.answering -= 1

    async def _give(self, request: web.Request, body: Json, answer: Fault | RawResponse | S) -> web.StreamResponse:
        if isinstance(answer, Fault) and not answer.end:
            headers = {"Content-Type": answer.media, **answer.headers}
            return web.Response(status=answer.status, body=answer.body, headers=headers)
        if isinstance(answer, Fault) and answer.end == "silence":
            await asyncio.sleep(HANG)
        response = web.StreamResponse(headers={"Content-Type": self.MEDIA})
        await response.prepare(request)
        if isinstance(answer, RawResponse):
            await self._pour(response, answer)
        elif isinstance(answer, Fault):
            await self._break(request, response, body, answer)
        else:
            for piece in self.pieces(request, body, answer):
                await response.write(piece)
                if answer.delay:
                    await asyncio.sleep(answer.delay)
        return response

    async def _pour(self, response: web.StreamResponse, raw: RawResponse) -> None:
        size = raw.chunk or len(raw.content) or 1
        for _ in range(raw.times):
            for start in range(0, len(raw.content), size):
                piece = raw.content[start : start + size]
                await response.write(piece)
                self.written += len(piece)
                await asyncio.sleep(raw.delay)

    async def _break(self, request: web.Request, response: web.StreamResponse, body: Json, fault: Fault) -> None:
        pieces = self.pieces(request, body, self.says("one two three four five"))[: fault.pieces]
        for piece in fault.events if fault.events is not None else pieces:
            await response.write(piece)
        transport = request.transport
        assert transport is not None
        if fault.end == "hang":
            await asyncio.sleep(HANG)
        elif fault.end == "cut":
            transport.write(b'1000\r\ndata: {"')  # the beginning of a chunk that does not come
            transport.close()
        elif fault.end == "reset":
            await asyncio.sleep(0.05)  # a reset drops what has not been read yet
            transport.abort()


def is_picture(media: object, base64: object) -> bool:
    """Return True if this is a media type that every vendor accepts, with valid Base64 data."""
    if media not in ("image/png", "image/jpeg", "image/webp") or not isinstance(base64, str):
        return False
    try:
        return bool(b64decode(base64, validate=True))
    except ValueError:
        return False


def json_response(status: int, body: bytes) -> web.Response:
    """Return an error with a JSON body."""
    return web.Response(status=status, body=body, content_type="application/json", charset="utf-8")
