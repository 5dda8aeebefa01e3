"""What the fakes of the providers share: how they listen, what they count, and the ways in which an answer goes wrong.

A fake derives from `FaultyServer` and says which path it answers, what it refuses, and how an ordinary answer looks on its
wire. Everything else, an answer that hangs, breaks off or is none at all, is the same for all of them.
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
"""Seconds that a hanging answer stays away, unless the client gives it up before."""


class Fault:
    """Something other than an answer. `status` and `headers` with `body`; or, after `pieces` of the answer, `end` is one of
    cut (the connection closes inside a chunk), reset, close (a clean end without the terminator), hang. With `silence` not
    even a head is sent. `events` are sent instead of the answer's pieces."""

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
    """A stream with exactly these bytes, as often as `times` says, in chunks of `chunk` bytes with a pause behind each."""

    def __init__(self, content: bytes, *, chunk: int = 0, delay: float = 0, times: int = 1) -> None:
        self.content = content
        self.chunk = chunk
        self.delay = delay
        self.times = times


class ServerResponse:
    """An ordinary answer; each fake has its own kind. `delay` is the pause behind each piece, in seconds."""

    delay: float = 0.0


S = TypeVar("S", bound=ServerResponse)


class FaultyServer(ABC, Generic[S]):
    """Answers each request that it does not refuse with what `answers` gives, in order, the last for ever; or with what
    `respond` makes of it; or repeats the person's last words. What it was asked stands in `requests` (the bodies), `headers`
    and `paths`, in order."""

    PATH: ClassVar[str]
    BASE: ClassVar[str] = ""
    """What stands behind the host in the URL that clients are given."""
    MEDIA: ClassVar[str] = "text/event-stream; charset=utf-8"

    LIST: ClassVar[str] = "/v1/models"
    """Where it lists its models."""

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
        """The answer to a request with a wrong key."""

    @abstractmethod
    def refused(self, request: web.Request, body: Json) -> web.Response | None:
        """The answer to a body that the real service does not accept."""

    @abstractmethod
    def says(self, text: str) -> S:
        """An ordinary answer of these words."""

    @abstractmethod
    def echo(self, body: Json) -> S:
        """An answer that repeats the person's last words."""

    @abstractmethod
    def pieces(self, request: web.Request, body: Json, answer: S) -> list[bytes]:
        """An ordinary answer on the wire, piece by piece."""

    @abstractmethod
    def listing(self, request: web.Request) -> Json | web.Response:
        """Its list of models, or why it does not give one."""

    @property
    def open_connections(self) -> int:
        """Connections that clients keep open, idle ones included."""
        return sum(not transport.is_closing() for transport in self._transports)

    def now_says(self, *answers: Fault | RawResponse | S) -> None:
        """Answer the next requests with these."""
        self.answers, self._given = list(answers), 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Listen on a free port; `url` is then the base URL."""
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
        """Add what else it answers."""

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
    """Whether these are a kind of picture that every vendor takes, and Base64 of something."""
    if media not in ("image/png", "image/jpeg", "image/webp") or not isinstance(base64, str):
        return False
    try:
        return bool(b64decode(base64, validate=True))
    except ValueError:
        return False


def json_response(status: int, body: bytes) -> web.Response:
    """A refusal with a body of JSON."""
    return web.Response(status=status, body=body, content_type="application/json", charset="utf-8")
