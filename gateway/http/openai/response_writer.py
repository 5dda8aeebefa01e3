"""Saying an answer to a client: all at once when it is whole, or as a stream of events while it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from aiohttp import web

from gateway.http.openai.api_errors import ApiError
from gateway.http.openai.replies import Chunks, CompletionHeader, completion, event
from gateway.http.responses import HEADERS, answer
from plugins.api.chat import CallDraft, Reply
from sessions.events.events import StopReason
from sessions.events.messages import Usage

PATIENCE = 10.0
"""Seconds without a word after which a stream begins with a comment, and after which one more is sent each time: whoever
stands between may close what is silent. Until then a failure still has a status of its own."""

UNREAD = 60.0
"""Seconds that a client may leave a piece unread."""

ALIVE = b": one moment\n\n"
"""A comment in a stream, which every client passes over."""


class ClientGone(Exception):
    """The client went away, or leaves unread what it is told."""


class ResponseWriter(Protocol):
    """Where an answer goes. `heard` says whether the client has been shown something, so that it cannot be taken back."""

    @property
    def heard(self) -> bool: ...

    async def accepted(self, headers: Mapping[str, str]) -> None:
        """The question is kept, and is going to be answered whatever happens here; the answer has these headers."""
        ...

    def name(self, model: str) -> None:
        """It is a `provider:model` that answers."""
        ...

    def begin(self, model: str) -> None:
        """A `provider:model` begins to answer; what was not heard of one before is forgotten."""
        ...

    async def text(self, text: str) -> None:
        """A piece of the answer."""
        ...

    async def end(self, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None) -> None:
        """The answer is whole."""
        ...


class JsonResponseWriter:
    """An answer in one piece; `response` is it once it has ended."""

    heard = False

    def __init__(self, head: CompletionHeader) -> None:
        self.response: web.StreamResponse | None = None
        self._head = head
        self._headers: Mapping[str, str] = {}
        self._text: list[str] = []

    async def accepted(self, headers: Mapping[str, str]) -> None:
        """See `ResponseWriter`."""
        self._headers = headers

    def name(self, model: str) -> None:
        """See `ResponseWriter`."""
        self._head.model = model

    def begin(self, model: str) -> None:
        """See `ResponseWriter`."""
        self.name(model)
        self._text.clear()

    async def text(self, text: str) -> None:
        """See `ResponseWriter`."""
        self._text.append(text)

    async def end(self, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None) -> None:
        """See `ResponseWriter`."""
        text = "".join(self._text)
        reply = Reply(text=text, model=self._head.model, stop=stop, calls=tuple(calls), usage=usage)
        self.response = answer(200, completion(self._head, reply))
        self.response.headers.update(self._headers)


class EventStreamWriter:
    """An answer as server-sent events. `admitted` says whether whoever asked may still speak."""

    def __init__(
        self, request: web.Request, head: CompletionHeader, *, with_usage: bool, admitted: Callable[[], bool]
    ) -> None:
        self.heard = False
        self.response: web.StreamResponse | None = None
        self._request = request
        self._head = head
        self._headers: Mapping[str, str] = {}
        self._chunks = Chunks(head, with_usage=with_usage)
        self._admitted = admitted
        self._writing = asyncio.Lock()
        self._spoke = asyncio.Event()
        self._ended = False

    async def accepted(self, headers: Mapping[str, str]) -> None:
        """See `ResponseWriter`. From here on a failure is told inside of the stream."""
        self._headers = headers
        async with self._reaching():
            pass

    def name(self, model: str) -> None:
        """See `ResponseWriter`."""
        self._head.model = model

    def begin(self, model: str) -> None:
        """See `ResponseWriter`."""
        self.name(model)

    async def text(self, text: str) -> None:
        """See `ResponseWriter`. Raises ClientGone, and Refused if the client may not speak any more."""
        if not self._admitted():
            raise ApiError("The token of this request is not valid any more.", status=401, code="invalid_api_key")
        self.heard = True
        await self._write(self._chunks.text(text))

    async def end(self, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None) -> None:
        """See `ResponseWriter`."""
        self.heard = True
        await self._write(self._chunks.end(calls, stop, usage), last=True)

    async def fail(self, refused: ApiError) -> None:
        """End a stream that began, with what went wrong; OpenAI's clients raise it as an error."""
        with suppress(ClientGone):
            await self._write(event(refused.body), last=True)

    async def keep_alive(self) -> None:
        """Say that something is being done whenever nothing is said for a while, until cancelled or nobody is there."""
        with suppress(ClientGone):
            while not self._ended:
                self._spoke.clear()
                try:
                    async with asyncio.timeout(PATIENCE):
                        await self._spoke.wait()
                except TimeoutError:
                    await self._write(ALIVE)

    async def _write(self, data: bytes, *, last: bool = False) -> None:
        async with self._reaching() as response:
            if not self._ended:
                self._ended = last
                await response.write(data)
                if last:
                    await response.write_eof()
        self._spoke.set()

    @asynccontextmanager
    async def _reaching(self) -> AsyncIterator[web.StreamResponse]:
        """The stream, begun; one at a time writes to it. Raises ClientGone."""
        async with self._writing:
            try:
                async with asyncio.timeout(UNREAD):
                    if self.response is None:
                        headers = {**HEADERS, "Content-Type": "text/event-stream; charset=utf-8", **self._headers}
                        response = web.StreamResponse(headers=headers)
                        await response.prepare(self._request)
                        self.response = response
                    yield self.response
            except (ConnectionError, TimeoutError) as error:
                raise ClientGone from error
