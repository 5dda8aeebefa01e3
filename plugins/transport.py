"""The one outbound HTTP client of the house, and the only module that knows httpx.

It bounds what strangers can do: deadlines for the connection, the first byte, each pause and the whole; limits on an event
and on a body; no redirects, which would carry a key elsewhere; no compression, so that a small answer cannot unfold into a
large one. It sends a request again only before its answer has begun.

httpx speaks over aiohttp's client, which costs a tenth of its own transport for each streamed request. That client takes
some cut streams for a clean end, so every provider demands its protocol's own terminator.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from email.utils import parsedate_to_datetime
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.request import getproxies_environment

import msgspec

from plugins.errors import BadAnswer, ProviderError, RateLimited, StreamCut, Unreachable
from plugins.event_stream import EventStream, EventTooLong, ServerSentEvent

if TYPE_CHECKING:
    import httpx

RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may do better."""

LONGEST_WAIT = 60.0
"""A provider that asks for a longer pause is not waited for; seconds."""

SENTENCE = 300
"""Characters of a provider's own words that are shown to a person."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long is waited, in seconds: for a connection, for the first byte, between two chunks, for the whole answer; and
    how often a request is sent."""

    connect: float = 10.0
    first: float = 120.0
    between: float = 60.0
    whole: float = 1800.0
    attempts: int = 4


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is read, in bytes: of one event, of a body, of an error's body."""

    event: int = 4 * 1024 * 1024
    body: int = 64 * 1024 * 1024
    error: int = 64 * 1024


class StatusRefused(ProviderError):
    """The server answered with an error status. Providers read `status` and `body` and raise what it means."""

    code = "bad_request"

    def __init__(self, status: int, body: bytes, *, retry_after: float | None = None) -> None:
        super().__init__(f"The server answered {status}: {plain_words(body)}", retry_after=retry_after)
        self.status = status
        self.body = body
        self.retryable = status in RETRIED


class _Question(msgspec.Struct, frozen=True):
    """One request, and how it may be sent."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    patience: Patience
    may_retry: Callable[[StatusRefused], bool]


class Transport:
    """Use as an async context manager; one serves the whole house. Nothing is imported or opened before the first request.

    `sleep` and `chance` are those of the machine unless a test gives others.
    """

    def __init__(
        self,
        *,
        patience: Patience | None = None,
        limits: Limits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._patience = patience or Patience()
        self._limits = limits or Limits()
        self._sleep = sleep
        self._chance = chance
        self._client: httpx.AsyncClient | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def stream_events(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        patience: Patience | None = None,
        may_retry: Callable[[StatusRefused], bool] = lambda _: True,
    ) -> AsyncGenerator[ServerSentEvent, None]:
        """Post a JSON body and yield the events of the answer. An answer that is JSON and no event stream is one event with
        the name `body`.

        `may_retry` is asked about error statuses that are worth another attempt. Raises StatusRefused, Unreachable,
        StreamCut, BadAnswer. Closing the generator closes the connection.
        """
        question = _Question(url, headers, body, patience or self._patience, may_retry)
        async with self._answer(question) as response:
            media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            chunks = self._chunks(response, question.patience)
            if media == "text/event-stream":
                events = EventStream(self._limits.event)
                try:
                    async for chunk in chunks:
                        for event in events.feed(chunk):
                            yield event
                except EventTooLong as error:
                    raise BadAnswer(f"The server sent what is no answer: {error}.") from error
            elif media in ("application/json", "text/json"):
                yield ServerSentEvent(b"".join([chunk async for chunk in chunks]), "body")
            else:
                raise BadAnswer(f"The server answered with {media or 'something'} and not with events.")

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes, patience: Patience | None = None) -> bytes:
        """Post a JSON body and return the answer's. Raises StatusRefused, Unreachable, StreamCut, BadAnswer."""
        question = _Question(url, headers, body, patience or self._patience, lambda _: True)
        async with self._answer(question) as response:
            return b"".join([chunk async for chunk in self._chunks(response, question.patience)])

    # --- one request --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _answer(self, question: _Question) -> AsyncIterator[httpx.Response]:
        """The response of the first attempt that was not refused; its body is not read yet."""
        async with AsyncExitStack() as stack:
            yield await self._persist(stack, question)

    async def _persist(self, stack: AsyncExitStack, question: _Question) -> httpx.Response:
        attempt = 1
        while True:
            try:
                return await self._attempt(stack, question)
            except (StatusRefused, Unreachable) as error:
                again = error.retryable and (not isinstance(error, StatusRefused) or question.may_retry(error))
                if not again or attempt >= question.patience.attempts:
                    raise
                await self._sleep(self._pause(attempt, error))
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
        import httpx  # noqa: PLC0415 - 90 ms that a start does not need

        client = await self._opened()
        url, patience = question.url, question.patience
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **question.headers}
        timeout = httpx.Timeout(patience.between, connect=patience.connect)
        try:
            request = client.build_request("POST", url, headers=headers, content=question.body, timeout=timeout)
            async with asyncio.timeout(patience.first):
                response = await client.send(request, stream=True, follow_redirects=False)
        except TimeoutError as error:
            raise Unreachable(f"{_host(url)} did not answer within {patience.first:.0f} seconds.") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise Unreachable(f"{_host(url)} cannot be reached: {plain_words(str(error).encode())}") from error
        stack.push_async_callback(response.aclose)
        if response.status_code == 200:
            if response.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
                raise BadAnswer("The server compressed its answer, which was not asked for.")
            return response
        refused = await self._refused(response, patience)
        await response.aclose()
        raise refused

    async def _refused(self, response: httpx.Response, patience: Patience) -> StatusRefused:
        wait = retry_after(response.headers.get("retry-after"), response.headers.get("retry-after-ms"), time())
        body = b""
        try:
            async for chunk in self._chunks(response, patience):
                body += chunk
                if len(body) > self._limits.error:
                    break
        except ProviderError as error:
            body = body or str(error).encode()  # the status says enough; its words are only for people
        return StatusRefused(response.status_code, body[: self._limits.error], retry_after=wait)

    async def _chunks(self, response: httpx.Response, patience: Patience) -> AsyncIterator[bytes]:
        """The body's bytes as they come."""
        import aiohttp  # noqa: PLC0415 - 90 ms that a start does not need
        import httpx  # noqa: PLC0415 - 90 ms that a start does not need

        loop = asyncio.get_running_loop()
        size, deadline = 0, loop.time() + patience.whole
        try:
            async for chunk in response.aiter_raw():
                size += len(chunk)
                # Looked at between chunks: a timer would have to cancel whoever consumes them.
                if loop.time() > deadline:
                    raise StreamCut(f"The answer was not complete within {patience.whole:.0f} seconds.")
                if size > self._limits.body:
                    raise BadAnswer(f"The server sent more than {self._limits.body} bytes.")
                yield chunk
        except httpx.TimeoutException as error:
            raise StreamCut(f"The answer broke off: nothing came for {patience.between:.0f} seconds.") from error
        except (httpx.HTTPError, aiohttp.ClientError, OSError) as error:
            raise StreamCut("The answer broke off: the connection was lost.") from error

    async def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            import aiohttp  # noqa: PLC0415 - 90 ms that a start does not need
            import httpx  # noqa: PLC0415 - 90 ms that a start does not need
            from httpx_aiohttp import AiohttpTransport  # noqa: PLC0415 - 90 ms that a start does not need

            def session() -> aiohttp.ClientSession:
                connector = aiohttp.TCPConnector(limit=256, keepalive_timeout=60)
                # Operators behind a proxy set HTTPS_PROXY, and mean it. Where none is set aiohttp is not told to look:
                # it would do so in a thread, for each request anew, which costs more than the request.
                behind_proxy = bool(getproxies_environment())
                return aiohttp.ClientSession(
                    connector=connector, trust_env=behind_proxy, cookie_jar=aiohttp.DummyCookieJar()
                )

            self._client = httpx.AsyncClient(transport=AiohttpTransport(client=session))
            self._stack.push_async_callback(self._client.aclose)
        return self._client


def retry_after(header: str | None, millis: str | None, now: float) -> float | None:
    """Seconds to wait from `Retry-After` (seconds or an HTTP date) or `retry-after-ms`; `now` is the Unix time."""
    for text, unit in ((millis, 1000.0), (header, 1.0)):
        try:
            seconds = float(text or "") / unit
        except ValueError:
            continue
        if 0 <= seconds < 1e9:
            return seconds
    try:
        return max(0.0, parsedate_to_datetime(header or "").timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def plain_words(body: bytes) -> str:
    """The beginning of a body as one line for a person: a JSON error's own message where there is one."""
    text = body[: 16 * SENTENCE].decode("utf-8", "replace")
    try:
        value = msgspec.json.decode(body)
        error = value.get("error", value) if isinstance(value, dict) else value
        message = error.get("message") if isinstance(error, dict) else error
        text = message if isinstance(message, str) and message else text
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        message = None  # not JSON: the bytes' own words are all there is
    words = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return words[:SENTENCE] or "nothing"


def _host(url: str) -> str:
    import httpx  # noqa: PLC0415 - 90 ms that a start does not need

    try:
        return httpx.URL(url).host or url[:100]
    except (httpx.InvalidURL, ValueError):
        return "The address"
