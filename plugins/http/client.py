"""The HTTP client for all outbound requests. Only it and `connection_pools` use httpx.

It limits what a server can do: timeouts for the connection, the first byte, pauses and the whole response; size limits for
events and bodies; no redirects, which could leak a key; no cookies; no compression, so that a small response cannot expand.
It retries a request only before its response begins, and not if the server received all of it and did not answer in time:
it may have done what was requested, and it costs what it costs.

httpx requests and responses are sent with aiohttp's client, at a tenth of httpx's own cost for a streamed request. Like
HTTP itself, it does not notice a truncated response without a length, so every provider requires its protocol's terminator.

Retries use no library: tenacity would replace only the loop and the exponent, not the decision what to retry, and when.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
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
    import aiohttp
    import httpx
    from aiohttp import ClientWebSocketResponse

    from plugins.http.multipart import FileForm

LONGEST_WAIT = 60.0
"""The longest delay in seconds that a provider may ask for."""

ON_PAUSE: ContextVar[Callable[[float, str], None] | None] = ContextVar("on_pause", default=None)
"""Called before a retry with the delay in seconds and the reason, without the server's message."""

LINGER = 0.1
"""Seconds to wait for the end of a body after the last event, so that the connection can be reused."""

AT_ONCE = 256 * 1024
"""Requests with larger bodies are sent in pieces."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts in seconds, and the number of attempts.

    Attributes:
        connect: For the connection.
        first: For the response's headers, and then for the first progress.
        between: Between two progress reports.
        whole: For the whole response.
        attempts: The maximum number of attempts.
        trying: For all attempts.
        section: The configuration section of `first_seconds`, `between_seconds` and `reply_seconds`, for error messages.
    """

    connect: float = 10.0
    first: float = 120.0
    between: float = 60.0
    whole: float = 1800.0
    attempts: int = 4
    trying: float = 120.0
    section: str = ""

    def bound(self, key: str) -> str:
        """Return the setting of a timeout, as the end of a sentence; "" if there is none."""
        return f"; the limit is {self.section}.{key}" if self.section else ""


_ERROR_BODY = Timeouts(first=5.0, between=5.0, whole=10.0)
"""The timeouts of the body of an error response: the status matters more than its message."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Size limits in bytes: of an event, of a body, and of an error body."""

    event: int = 4 * 1024 * 1024
    body: int = 64 * 1024 * 1024
    error: int = 64 * 1024


class _Request(msgspec.Struct, frozen=True):
    """A request."""

    url: str
    headers: Mapping[str, str]
    body: bytes | FileForm
    timeouts: Timeouts
    may_retry: Callable[[StatusRefused], bool]
    method: str = "POST"


class Transport:
    """An HTTP client, used as an async context manager. Nothing is imported or opened before the first request.

    `sleep` and `chance` (random numbers from 0 to 1) can be replaced in tests.
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
        """The timeouts of requests without their own."""
        self._limits = limits or Limits()
        self._sleep = sleep
        self._chance = chance
        self._pools = ConnectionPools()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pools.close()

    async def stream_events(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | FileForm,
        until: Callable[[], bool] = lambda: False,
        progress: Callable[[], int] | None = None,
        timeouts: Timeouts | None = None,
        may_retry: Callable[[StatusRefused], bool] = lambda _: True,
    ) -> AsyncGenerator[ServerSentEvent, None]:
        """Post a JSON body, or a form with a file, and yield the events of the response. Closing the generator closes the
        connection.

        A JSON response is returned as one event with the name `body`.

        Args:
            url: The URL.
            headers: The headers.
            body: The body.
            until: Called after each event; if it returns True, the stream ends.
            progress: Returns a measure of progress; the timeouts `first` and `between` apply while it does not change.
                By default every event counts as progress, comments do not.
            timeouts: The timeouts; those of the client by default.
            may_retry: Called for a retryable error status; if it returns False, there is no retry.

        Raises:
            ProviderError: `StatusRefused`, `Unreachable`, `StreamCut`, `BadAnswer` or `BadRequest`.
        """
        request, count = _Request(url, headers, body, timeouts or self.timeouts, may_retry), 0
        measure = progress or (lambda: count)
        async with (
            aclosing(await self._response(request)) as response,
            aclosing(self._chunks(response, request.timeouts, measure)) as chunks,
        ):
            media = _media_type(response)
            if media == "text/event-stream":
                events = EventStream(self._limits.event)
                try:
                    async for chunk in chunks:
                        for event in events.feed(chunk):
                            count += 1
                            yield event
                            if until():
                                await _finish(response, chunks)
                                return
                except EventTooLong as error:
                    raise BadAnswer(f"The response is not valid: {error}.") from error
            elif media in ("application/json", "text/json"):
                yield ServerSentEvent(b"".join([chunk async for chunk in chunks]), "body")
            else:
                raise BadAnswer(f"The server answered with {media or 'no content type'} instead of events.")

    async def stream_lines(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        until: Callable[[], bool],
        progress: Callable[[], int] | None = None,
        timeouts: Timeouts | None = None,
        may_retry: Callable[[StatusRefused], bool] = lambda _: True,
    ) -> AsyncGenerator[bytes, None]:
        """Post a JSON body and yield the non-blank lines of the response, which is newline-delimited JSON.

        Otherwise like `stream_events`. A last line without its end is an error, unless the content type is plain JSON.
        """
        request, count = _Request(url, headers, body, timeouts or self.timeouts, may_retry), 0
        measure = progress or (lambda: count)
        async with (
            aclosing(await self._response(request)) as response,
            aclosing(self._chunks(response, request.timeouts, measure)) as chunks,
        ):
            media = _media_type(response)
            if "json" not in media:
                raise BadAnswer(f"The server answered with {media or 'no content type'} instead of lines of JSON.")
            lines = LineStream(self._limits.event)
            try:
                async for chunk in chunks:
                    for line in lines.feed(chunk):
                        count += 1
                        yield line
                        if until():
                            await _finish(response, chunks)
                            return
            except LineTooLong as error:
                raise BadAnswer(f"The response is not valid: {error}.") from error
            if lines.rest and media != "application/json":
                raise StreamCut("The reply was interrupted inside a line.")
            if lines.rest:
                yield lines.rest

    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | FileForm,
        timeouts: Timeouts | None = None,
        may_retry: Callable[[StatusRefused], bool] = lambda _: True,
    ) -> bytes:
        """Post a JSON body, or a form with a file, and return the body of the response. The arguments and errors are
        those of `stream_events`."""
        return await self._body(_Request(url, headers, body, timeouts or self.timeouts, may_retry))

    async def get(self, url: str, *, headers: Mapping[str, str], timeouts: Timeouts | None = None) -> bytes:
        """Get a body. The errors are those of `post`."""
        return await self._body(_Request(url, headers, b"", timeouts or self.timeouts, lambda _: True, "GET"))

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b"", timeouts: Timeouts | None = None
    ) -> bytes:
        """Send a request with any method and any body. The errors are those of `post`."""
        return await self._body(_Request(url, headers, body, timeouts or self.timeouts, lambda _: True, method))

    async def websocket(self, url: str, *, heartbeat: float, timeouts: Timeouts | None = None) -> ClientWebSocketResponse:
        """Open a websocket connection. Close it after use.

        Args:
            url: The URL, `ws://` or `wss://`.
            heartbeat: The seconds without data after which the server is pinged; half of them later the connection ends.
            timeouts: `first` limits the handshake; those of the client by default.

        Raises:
            ProviderError: `Unreachable`, `BadAnswer` or `BadRequest`.
        """
        address, limits = _address(url.replace("ws", "http", 1) if url.startswith("ws") else url), timeouts or self.timeouts
        pool = await self._pools.to(address)
        import aiohttp  # noqa: PLC0415 - imported by the pools, away from the loop

        try:
            async with asyncio.timeout(limits.first):
                return await pool.websocket(url, heartbeat)
        except TimeoutError as error:
            raise Unreachable(f"{address.hostname} did not answer within {limits.first:.0f} seconds.") from error
        except aiohttp.WSServerHandshakeError as error:
            raise BadAnswer(
                f"{address.hostname} refused the websocket connection with the status {error.status}."
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            if why := certificate_problem(error):
                raise CertificateError(f"The certificate of {address.hostname} is not valid: {why}.") from error
            raise _unreachable(address, error) from error

    async def _body(self, request: _Request) -> bytes:
        async with aclosing(await self._response(request)) as response:
            return b"".join([chunk async for chunk in self._chunks(response, request.timeouts)])

    # --- one request --------------------------------------------------------------------------------------------------

    async def _response(self, request: _Request) -> httpx.Response:
        """Return the response of the first attempt that succeeds. Its body has not been read, and it must be closed."""
        loop = asyncio.get_running_loop()
        attempt, began = 1, loop.time()
        while True:
            try:
                return await self._attempt(request)
            except (StatusRefused, Unreachable) as error:
                may = request.may_retry(error) if isinstance(error, StatusRefused) else not error.unanswered
                if not (error.retryable and may) or attempt >= request.timeouts.attempts:
                    raise
                pause = self._pause(attempt, error)
                if loop.time() + pause - began > request.timeouts.trying:
                    raise
                if (on_pause := ON_PAUSE.get()) is not None:
                    on_pause(pause, f"status {error.status}" if isinstance(error, StatusRefused) else short_reason(error))
                await self._sleep(pause)
            attempt += 1

    def _pause(self, attempt: int, error: ProviderError) -> float:
        """Return the delay before the next attempt: what the server asks for, else exponential backoff with full jitter."""
        if error.retry_after is None:
            return float(self._chance() * min(0.5 * 2**attempt, 20.0))
        if error.retry_after > LONGEST_WAIT:
            raise RateLimited(
                f"The server asks for a pause of {error.retry_after:.0f} seconds.", retry_after=error.retry_after
            ) from error
        return error.retry_after

    async def _attempt(self, request: _Request) -> httpx.Response:
        response = await self._send(request)
        compressed = response.headers.get("content-encoding", "identity").lower() not in ("identity", "")
        if response.status_code == 200 and not compressed:
            return response
        async with aclosing(response):
            if response.status_code == 200:
                raise BadAnswer("The server compressed its response, although the request does not allow it.")
            body = b"" if compressed else await self._error_body(response)
        raise StatusRefused(response.status_code, body, retry_after=requested_delay(response.headers, body, time()))

    async def _send(self, request: _Request) -> httpx.Response:
        """Send a request and return the response with its headers."""
        address, timeouts, body = _address(request.url), request.timeouts, request.body
        pool = await self._pools.to(address)
        import aiohttp  # noqa: PLC0415 - the pools have imported all three, away from the loop
        import httpx  # noqa: PLC0415

        from plugins.http.aiohttp_transport import Pieces, Whole, parse_url  # noqa: PLC0415

        stream = Whole(body) if isinstance(body, bytes) and len(body) <= AT_ONCE else Pieces(body, AT_ONCE)
        try:
            sent = httpx.Request(
                request.method,
                parse_url(request.url),
                headers={
                    "Content-Type": "application/json" if isinstance(body, bytes) else body.content_type,
                    "Content-Length": str(len(body)),
                    "Accept-Encoding": "identity",
                    **request.headers,
                },
                stream=stream,
                extensions={"timeout": {"connect": timeouts.connect}},
            )
            async with asyncio.timeout(timeouts.first):
                return await pool.handle_async_request(sent)
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:  # subclasses of the errors below
            raise _unreachable(address, error) from error
        except TimeoutError as error:
            late = Unreachable(f"{address.hostname} did not answer within {timeouts.first:.0f} seconds.")
            late.unanswered = stream.sent and request.method != "GET"
            raise late from error
        except aiohttp.ClientResponseError as error:
            raise BadAnswer(f"{address.hostname} sent a response that is not HTTP.") from error
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
            if why := certificate_problem(error):
                raise CertificateError(f"The certificate of {address.hostname} is not valid: {why}.") from error
            raise _unreachable(address, error) from error
        except (httpx.InvalidURL, ValueError) as error:
            # The error itself is left out: it may repeat the address or a header, and thus a key.
            raise BadRequest(f"The request to {address.hostname} contains a character that HTTP does not allow.") from error

    async def _error_body(self, response: httpx.Response) -> bytes:
        """Return the body of an error response, as far as it arrives quickly and within the limit."""
        body = b""
        async with aclosing(self._chunks(response, _ERROR_BODY)) as chunks:
            with suppress(ProviderError):
                async for chunk in chunks:
                    body += chunk
                    if len(body) > self._limits.error:
                        break
        return body[: self._limits.error]

    async def _chunks(
        self, response: httpx.Response, timeouts: Timeouts, progress: Callable[[], int] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the body in chunks, with timeouts. `progress` measures it; by default every byte counts."""
        import aiohttp  # noqa: PLC0415 - already imported by the request

        loop = asyncio.get_running_loop()
        size, before, since = 0, progress() if progress else 0, loop.time()
        last, pause, end = before, timeouts.first, since + timeouts.whole
        content = _content(response)
        try:
            while (chunk := content.read_nowait()) or not content.at_eof():
                if not chunk:
                    # Only around the wait: a deadline around the `yield` would cancel the consumer of the chunks.
                    async with asyncio.timeout_at(min(since + pause, end)):
                        if not (chunk := await content.readany()):
                            return
                size += len(chunk)
                if size > self._limits.body:
                    raise BadAnswer(f"The server sent more than {self._limits.body} bytes.")
                yield chunk
                if (now := progress() if progress else size) != last:
                    last, pause, since = now, timeouts.between, loop.time()
        except TimeoutError as error:
            what = "no content" if progress else "no data"
            raise _timeout_error(timeouts, what, whole=loop.time() >= end, begun=last != before) from error
        except (aiohttp.ClientError, OSError) as error:
            raise StreamCut("The reply was interrupted: the connection was lost.") from error


def _unreachable(address: SplitResult, error: Exception) -> Unreachable:
    return Unreachable(f"{address.hostname} cannot be reached: {error_message(str(error).encode())}")


def _timeout_error(timeouts: Timeouts, what: str, *, whole: bool, begun: bool) -> StreamCut:
    """Return the error for a missed deadline: of the whole reply (`whole`), of its beginning or, if it had `begun`, of a
    pause. Only after a pause may another attempt succeed."""
    if whole:
        error = StreamCut(f"The reply was not complete within {timeouts.whole:g} seconds{timeouts.bound('reply_seconds')}.")
    elif begun:
        bound = timeouts.bound("between_seconds")
        error = StreamCut(f"The reply was interrupted: {what} for {timeouts.between:g} seconds{bound}.")
    else:
        error = StreamCut(
            f"The reply did not begin: {what} for {timeouts.first:g} seconds{timeouts.bound('first_seconds')}."
        )
    error.retryable = begun and not whole
    return error


async def _finish(response: httpx.Response, chunks: AsyncIterator[bytes]) -> None:
    """Read the end of the body, which often arrives in a separate packet, so that the connection can be reused."""
    if _content(response).is_eof():
        return
    with suppress(TimeoutError, ProviderError):
        async with asyncio.timeout(LINGER):
            async for _ in chunks:
                pass


def _media_type(response: httpx.Response) -> str:
    content_type: str = response.headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower()


def _content(response: httpx.Response) -> aiohttp.StreamReader:
    return response.stream.content  # type: ignore[no-any-return, union-attr]  # an AiohttpStream


def _address(url: str) -> SplitResult:
    """Return the parts of an address. Raises BadRequest unless it is one of http or https."""
    try:
        parts = urlsplit(url)
        allowed = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        allowed = False
    if not allowed:
        raise BadRequest("The provider's address must begin with http:// or https:// and name a host.")
    return parts
