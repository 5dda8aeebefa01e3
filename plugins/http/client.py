"""The one outbound HTTP client of the house; only it and `doors`, the connections that it keeps, know httpx.

It bounds what strangers can do: deadlines for the connection, the first byte, each pause and the whole; limits on an event
and on a body; no redirects, which would carry a key elsewhere; no cookies; no compression, so that a small answer cannot
unfold into a large one. It sends a request again only before its answer has begun.

httpx's requests and responses go over aiohttp's client, which costs a tenth of httpx's own for each streamed request. That
client takes an answer without a length that is cut for a whole one, as HTTP does, so every provider demands its protocol's
own terminator.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from contextvars import ContextVar
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import SplitResult, urlsplit

import msgspec

from plugins.http.connection_pools import CertificateError, ConnectionPools, certificate_problem
from plugins.http.sse import EventStream, EventTooLong, LineStream, LineTooLong, ServerSentEvent
from plugins.support.errors import BadAnswer, BadRequest, ProviderError, RateLimited, StreamCut, Unreachable
from plugins.support.http_errors import StatusRefused, error_message, requested_delay, short_reason

if TYPE_CHECKING:
    import httpx

LONGEST_WAIT = 60.0
"""A provider that asks for a longer pause is not waited for; seconds."""

ON_PAUSE: ContextVar[Callable[[float, str], None] | None] = ContextVar("on_pause", default=None)
"""Called before a refused request is sent again, with the seconds until then and the reason without the server's words."""

LINGER = 0.1
"""How long the end of the body is waited for after the last event, in seconds: without it the connection is lost."""

AT_ONCE = 256 * 1024
"""A request of more bytes is written in pieces, as fast as they are taken."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long is waited, in seconds: for a connection; for the answer's head, and then until something is said; between two
    things that are said; for the whole answer. A request is sent at most `attempts` times, all within the time of `trying`.
    `section` names where `first_seconds`, `between_seconds` and `reply_seconds` are configured, for errors."""

    connect: float = 10.0
    first: float = 120.0
    between: float = 60.0
    whole: float = 1800.0
    attempts: int = 4
    trying: float = 120.0
    section: str = ""

    def bound(self, key: str) -> str:
        """Name the setting behind a deadline, as the end of a sentence; empty where there is none."""
        return f"; {self.section}.{key} bounds that" if self.section else ""


_FOR_WORDS = Timeouts(first=5.0, between=5.0, whole=10.0)
"""For the body of a refusal: the status says enough, its words are only for people."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is read, in bytes: of one event, of a body, of an error's body."""

    event: int = 4 * 1024 * 1024
    body: int = 64 * 1024 * 1024
    error: int = 64 * 1024


class _Question(msgspec.Struct, frozen=True):
    """One request, and how it may be sent."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeouts: Timeouts
    may_retry: Callable[[StatusRefused], bool]
    method: str = "POST"


class Transport:
    """Use as an async context manager; one serves the whole house. Nothing is imported or opened before the first request.

    `sleep` and `chance` are those of the machine unless a test gives others.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.timeouts = timeouts or Timeouts()
        """How long is waited where a request does not say it."""
        self._limits = limits or Limits()
        self._sleep = sleep
        self._chance = chance
        self._doors = ConnectionPools()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._doors.close()

    async def stream_events(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        until: Callable[[], bool] = lambda: False,
        said: Callable[[], int] | None = None,
        timeouts: Timeouts | None = None,
        may_retry: Callable[[StatusRefused], bool] = lambda _: True,
    ) -> AsyncGenerator[ServerSentEvent, None]:
        """Post a JSON body and yield the events of the answer. An answer that is JSON and no event stream is one event with
        the name `body`.

        `until` is asked after each event; once it is true, nothing more is yielded. `said` counts what the events have said
        so far: while it stays the same, the deadlines `first` and `between` go on running, whatever else the server sends.
        Without it every event counts, and a comment does not. `may_retry` is asked about error statuses that are worth
        another attempt. Raises StatusRefused, Unreachable, StreamCut, BadAnswer, BadRequest. Closing the generator closes
        the connection.
        """
        question, count = _Question(url, headers, body, timeouts or self.timeouts, may_retry), 0
        heard = said or (lambda: count)
        async with self._answer(question) as response, aclosing(self._chunks(response, question.timeouts, heard)) as chunks:
            media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if media == "text/event-stream":
                events = EventStream(self._limits.event)
                try:
                    async for chunk in chunks:
                        for event in events.feed(chunk):
                            count += 1
                            yield event
                            if until():
                                await _finish(chunks)
                                return
                except EventTooLong as error:
                    raise BadAnswer(f"The server sent what is no answer: {error}.") from error
            elif media in ("application/json", "text/json"):
                yield ServerSentEvent(b"".join([chunk async for chunk in chunks]), "body")
            else:
                raise BadAnswer(f"The server answered with {media or 'something'} and not with events.")

    async def stream_lines(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        until: Callable[[], bool],
        said: Callable[[], int] | None = None,
        timeouts: Timeouts | None = None,
        may_retry: Callable[[StatusRefused], bool] = lambda _: True,
    ) -> AsyncGenerator[bytes, None]:
        """Post a JSON body and yield the lines of the answer, which is newline-delimited JSON; blank ones are left out.

        All is as in `stream_events`, with lines for events. A line without an end was cut, unless the answer calls itself
        plain JSON.
        """
        question, count = _Question(url, headers, body, timeouts or self.timeouts, may_retry), 0
        heard = said or (lambda: count)
        async with self._answer(question) as response, aclosing(self._chunks(response, question.timeouts, heard)) as chunks:
            media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if "json" not in media:
                raise BadAnswer(f"The server answered with {media or 'something'} and not with lines of JSON.")
            lines = LineStream(self._limits.event)
            try:
                async for chunk in chunks:
                    for line in lines.feed(chunk):
                        count += 1
                        yield line
                        if until():
                            await _finish(chunks)
                            return
            except LineTooLong as error:
                raise BadAnswer(f"The server sent what is no answer: {error}.") from error
            if lines.rest and media != "application/json":
                raise StreamCut("The answer broke off inside a line.")
            if lines.rest:
                yield lines.rest

    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        timeouts: Timeouts | None = None,
        may_retry: Callable[[StatusRefused], bool] = lambda _: True,
    ) -> bytes:
        """Post a JSON body and return the answer's; `may_retry` is as in `stream_events`. Raises StatusRefused, Unreachable,
        StreamCut, BadAnswer, BadRequest."""
        return await self._whole(_Question(url, headers, body, timeouts or self.timeouts, may_retry))

    async def get(self, url: str, *, headers: Mapping[str, str], timeouts: Timeouts | None = None) -> bytes:
        """Get a body; raises as `post` does."""
        return await self._whole(_Question(url, headers, b"", timeouts or self.timeouts, lambda _: True, "GET"))

    async def _whole(self, question: _Question) -> bytes:
        async with self._answer(question) as response, aclosing(self._chunks(response, question.timeouts)) as chunks:
            return b"".join([chunk async for chunk in chunks])

    # --- one request --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _answer(self, question: _Question) -> AsyncIterator[httpx.Response]:
        """The response of the first attempt that was not refused; its body is not read yet."""
        async with AsyncExitStack() as stack:
            yield await self._persist(stack, question)

    async def _persist(self, stack: AsyncExitStack, question: _Question) -> httpx.Response:
        loop = asyncio.get_running_loop()
        attempt, began = 1, loop.time()
        while True:
            try:
                return await self._attempt(stack, question)
            except (StatusRefused, Unreachable) as error:
                again = error.retryable and (not isinstance(error, StatusRefused) or question.may_retry(error))
                if not again or attempt >= question.timeouts.attempts:
                    raise
                pause = self._pause(attempt, error)
                if loop.time() + pause - began > question.timeouts.trying:
                    raise
                if (on_pause := ON_PAUSE.get()) is not None:
                    on_pause(pause, f"status {error.status}" if isinstance(error, StatusRefused) else short_reason(error))
                await self._sleep(pause)
            attempt += 1

    def _pause(self, attempt: int, error: ProviderError) -> float:
        """Seconds until the next attempt: what the server asks for, else exponential backoff with full jitter."""
        if error.retry_after is None:
            return float(self._chance() * min(0.5 * 2**attempt, 20.0))
        if error.retry_after > LONGEST_WAIT:
            raise RateLimited(
                f"The server wants no request for {error.retry_after:.0f} seconds.", retry_after=error.retry_after
            ) from error
        return error.retry_after

    async def _attempt(self, stack: AsyncExitStack, question: _Question) -> httpx.Response:
        response = await self._sent(question)
        stack.push_async_callback(response.aclose)
        compressed = response.headers.get("content-encoding", "identity").lower() not in ("identity", "")
        if response.status_code == 200:
            if compressed:
                raise BadAnswer("The server compressed its answer, which was not asked for.")
            return response
        words = b"" if compressed else await self._words(response)
        await response.aclose()
        raise StatusRefused(response.status_code, words, retry_after=requested_delay(response.headers, words, time()))

    async def _sent(self, question: _Question) -> httpx.Response:
        """The head of one attempt's answer."""
        address, timeouts = _address(question.url), question.timeouts
        door = await self._doors.to(address)
        import aiohttp  # noqa: PLC0415 - the doors have imported both, away from the loop
        import httpx  # noqa: PLC0415

        try:
            request = httpx.Request(
                question.method,
                question.url,
                headers={
                    "Content-Type": "application/json",
                    "Content-Length": str(len(question.body)),
                    "Accept-Encoding": "identity",
                    **question.headers,
                },
                content=question.body if len(question.body) <= AT_ONCE else _pieces(question.body),
                extensions={"timeout": {"connect": timeouts.connect}},
            )
            async with asyncio.timeout(timeouts.first):
                return await door.handle_async_request(request)
        except TimeoutError as error:
            raise Unreachable(f"{address.hostname} did not answer within {timeouts.first:.0f} seconds.") from error
        except aiohttp.ClientResponseError as error:
            raise BadAnswer(f"{address.hostname} answered with what is not HTTP.") from error
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, ValueError) as error:
            # Nothing of the error itself: it may repeat the address or a header, and with them a key.
            raise BadRequest(f"The request to {address.hostname} holds what HTTP does not allow in a header.") from error
        except (httpx.HTTPError, aiohttp.ClientError, OSError) as error:
            if why := certificate_problem(error):
                raise CertificateError(f"The certificate of {address.hostname} does not hold: {why}.") from error
            raise Unreachable(f"{address.hostname} cannot be reached: {error_message(str(error).encode())}") from error

    async def _words(self, response: httpx.Response) -> bytes:
        """What a refusal says, as far as it is sent at once and within the limit."""
        words = b""
        async with aclosing(self._chunks(response, _FOR_WORDS)) as chunks:
            with suppress(ProviderError):
                async for chunk in chunks:
                    words += chunk
                    if len(words) > self._limits.error:
                        break
        return words[: self._limits.error]

    async def _chunks(
        self, response: httpx.Response, timeouts: Timeouts, said: Callable[[], int] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The body's bytes as they come. `said` counts what whoever reads them has made of them; without it every byte
        counts."""
        import aiohttp  # noqa: PLC0415 - imported long before
        import httpx  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        size, before, since = 0, said() if said else 0, loop.time()
        heard, pause, end = before, timeouts.first, since + timeouts.whole
        assert isinstance(response.stream, httpx.AsyncByteStream)
        pieces = aiter(response.stream)
        try:
            while True:
                # Around the waiting alone: a deadline around the `yield` would cancel whoever consumes the chunks.
                async with asyncio.timeout_at(min(since + pause, end)):
                    chunk = await anext(pieces, None)
                if chunk is None:
                    return
                size += len(chunk)
                if size > self._limits.body:
                    raise BadAnswer(f"The server sent more than {self._limits.body} bytes.")
                yield chunk
                if (now := said() if said else size) != heard:
                    heard, pause, since = now, timeouts.between, loop.time()
        except TimeoutError as error:
            what = "was said" if said else "came"
            raise _late(timeouts, what, whole=loop.time() >= end, begun=heard != before) from error
        except (httpx.HTTPError, aiohttp.ClientError, OSError) as error:
            raise StreamCut("The answer broke off: the connection was lost.") from error


def _late(timeouts: Timeouts, what: str, *, whole: bool, begun: bool) -> StreamCut:
    """Return the error for an answer that missed a deadline: that of its longest time (`whole`), of its beginning or, where
    it had `begun`, of a pause. Only after a pause is another attempt worth its time."""
    if whole:
        error = StreamCut(f"The answer was not complete within {timeouts.whole:g} seconds{timeouts.bound('reply_seconds')}.")
    elif begun:
        bound = timeouts.bound("between_seconds")
        error = StreamCut(f"The answer broke off: nothing {what} for {timeouts.between:g} seconds{bound}.")
    else:
        error = StreamCut(
            f"The answer did not begin: nothing {what} for {timeouts.first:g} seconds{timeouts.bound('first_seconds')}."
        )
    error.retryable = begun and not whole
    return error


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), AT_ONCE):
        yield body[start : start + AT_ONCE]


async def _finish(chunks: AsyncIterator[bytes]) -> None:
    """Read the body's own end, which often comes in a packet of its own, so that the connection can be used again."""
    with suppress(TimeoutError, ProviderError):
        async with asyncio.timeout(LINGER):
            async for _ in chunks:
                pass


def _address(url: str) -> SplitResult:
    """The parts of an address; BadRequest unless it is one of http or https."""
    try:
        parts = urlsplit(url)
        allowed = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        allowed = False
    if not allowed:
        raise BadRequest("The provider's address must be http:// or https:// with a host, and is something else.")
    return parts
