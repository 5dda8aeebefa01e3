"""Routing of requests below `/v1`, limits and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec
import structlog
from aiohttp import web

from gateway.auth.people import Admission
from gateway.http.concurrency import InFlight, Quota
from gateway.http.openai.api_errors import ApiError, refusal_of, refused_response
from gateway.http.openai.embeddings import EmbeddingBody, Embeddings
from gateway.http.openai.model_names import DEFAULT, ModelNames
from gateway.http.openai.request_parser import parse_request
from gateway.http.openai.response_writer import (
    ClientGone,
    CompletionHeader,
    EventStreamWriter,
    JsonResponseWriter,
    ResponseWriter,
)
from gateway.http.openai.schema import ChatBody, decode_body
from gateway.http.openai.session_mode import SESSION, SessionMode, new_message
from gateway.http.openai.stateless_mode import StatelessMode
from gateway.http.request_bodies import BodyRefused, BodyShare, read_body
from gateway.http.responses import answer
from gateway.http.websocket_connection import ConnectionServices
from gateway.metrics.counters import Counters
from gateway.models.call import ModelCaller
from gateway.models.registry import ModelRegistry
from gateway.support.errors import GatewayError, sentence_of
from plugins.api.context import Clock
from plugins.support.errors import ProviderError
from sessions.events.errors import SessionsError

BODY_BYTES = 24 * 1024 * 1024
"""The maximum size of a body in bytes: more than the pictures of the largest request in base64."""

BODY_SECONDS = 300.0
"""Seconds for a whole body."""

OF_ONE_PERSON, AT_ONCE = 32, 128
"""The limits of concurrent requests, for one person and in total."""

OF_ONE, OF_ALL = 2 * BODY_BYTES, 4 * BODY_BYTES
"""The limits of bodies in memory in bytes, for one person and in total. Decoded, they take about three times as much."""

LARGE = 256 * 1024
"""A body of at least this many bytes is decoded in a thread, because decoding pictures would block the event loop."""

GONE_SECONDS = 0.1
"""Interval of the checks whether a waiting client is still connected; aiohttp has no notification for one request."""

GONE = 499
"""The status that is counted for a client that disconnected; nobody receives it."""

CLIENT_ERRORS = (ApiError, BodyRefused, GatewayError, ProviderError, SessionsError)
"""Errors whose sentences are sent to the client."""

T = TypeVar("T")
B = TypeVar("B", bound=msgspec.Struct)

Serve: TypeAlias = Callable[[web.Request, Admission, BodyShare], Awaitable[web.StreamResponse]]
Answer: TypeAlias = Callable[[ResponseWriter], Coroutine[Any, Any, None]]

log = structlog.get_logger("exuvia.openai_api")


class OpenAIApi:
    """The OpenAI-compatible API below `/v1`.

    `caller` calls the models of stateless requests, and `in_flight` counts those, since a stop waits for them.
    """

    def __init__(
        self,
        services: ConnectionServices,
        models: ModelRegistry,
        *,
        caller: ModelCaller,
        embeddings: Embeddings,
        in_flight: InFlight,
        counters: Counters,
        clock: Clock,
    ) -> None:
        self._services = services
        self._counters = counters
        self._clock = clock
        self._running = Quota(OF_ONE_PERSON, AT_ONCE)
        self._memory = Quota(OF_ONE, OF_ALL)
        self._embeddings = embeddings
        self._names = ModelNames(models, created=self._now())
        self._stateless = StatelessMode(self._names, caller, in_flight, counters)
        self._in_session = SessionMode(services.switchboard, services.uploads, self._names, services.zone)
        self._serving: dict[str, tuple[str, Serve]] = {
            "chat/completions": ("POST", self._chat),
            "embeddings": ("POST", self._embed),
            "models": ("GET", self._models),
        }

    async def serve(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Answer a request for `/v1/{path}`."""
        path = request.match_info["path"]
        known = path if path in self._serving else "models" if path.startswith("models/") else "other"
        try:
            response = await self._served(request, admission, known)
        except CLIENT_ERRORS as error:
            response = refused_response(refusal_of(error))
        except ClientGone:
            if request.transport is not None:
                request.transport.abort()  # do not wait for what it left unread
            response = web.Response(status=GONE)
        except Exception as error:
            log.exception("api_failed", path=known, reason=sentence_of(error))
            response = refused_response(refusal_of(error))
        self._counters.api_requests.add(known, str(response.status))
        return response

    async def _served(self, request: web.Request, admission: Admission, known: str) -> web.StreamResponse:
        if known == "other":
            raise ApiError(f"Unknown URL: {request.method} {request.path[:100]}.", status=404, code="unknown_url")
        method, serve = self._serving[known]
        if request.method != method:
            raise ApiError(f"/v1/{known} requires {method}.", status=405, code="method_not_allowed")
        if (reason := self._services.readiness.refuses) is not None:
            raise ApiError(sentence_of(reason), status=503, kind="server_error", code="unavailable", retry_after=1)
        person = admission.person.id
        if exceeded := self._running.exceeded(person):
            whose = " of yours" if exceeded == "one" else ""
            sentence = f"Too many requests{whose} are in flight; try again shortly."
            raise ApiError(sentence, status=429, kind="rate_limit_error", code="busy", retry_after=1)
        with self._running.unit(person), BodyShare.of(self._memory, person) as share:
            return await serve(request, admission, share)

    def _now(self) -> int:
        return int(self._clock.now().timestamp())

    # --- what is served -----------------------------------------------------------------------------------------------

    async def _models(self, request: web.Request, _: Admission, __: BodyShare) -> web.StreamResponse:
        name, embedding = request.match_info["path"].partition("/")[2], self._embeddings.name()
        more = [] if embedding is None else [embedding]
        return answer(200, await (self._names.entry(name, more) if name else self._names.listing(more)))

    async def _embed(self, request: web.Request, _: Admission, share: BodyShare) -> web.StreamResponse:
        body, _size = await _read(request, EmbeddingBody, share)
        return await _while_connected(request, self._embeddings.answer(body))

    async def _chat(self, request: web.Request, admission: Admission, share: BodyShare) -> web.StreamResponse:
        body, size = await _read(request, ChatBody, share)
        answer = await self._answer_to(body, size, request.headers, admission.person.id)
        head = CompletionHeader.new(self._now(), DEFAULT)
        if not body.stream:
            writer = JsonResponseWriter(head)
            await _while_connected(request, answer(writer))
            assert writer.response is not None
            return writer.response
        with_usage = bool(body.stream_options and body.stream_options.include_usage)
        streamed = EventStreamWriter(
            request, head, with_usage=with_usage, admitted=lambda: self._services.access.still_admits(admission)
        )
        return await _stream(request, streamed, answer(streamed))

    async def _answer_to(self, body: ChatBody, size: int, headers: Mapping[str, str], person: str) -> Answer:
        """Parse a body of `size` bytes and return what answers it: the session that the headers name, if any."""
        if SESSION in headers:
            message = await _in_thread_if_large(size, lambda: new_message(body))
            return lambda writer: self._in_session.answer(body, message, person, headers, writer)
        question = await _in_thread_if_large(size, lambda: parse_request(body))
        return lambda writer: self._stateless.answer(question, person, writer)


async def _stream(request: web.Request, streamed: EventStreamWriter, work: Coroutine[Any, Any, None]) -> web.StreamResponse:
    """Stream an answer. Errors before its beginning are raised; later ones are sent in the stream."""
    alive = asyncio.create_task(streamed.keep_alive())
    try:
        await _while_connected(request, work)
    except ClientGone:
        raise
    except Exception as error:
        if streamed.response is None:
            raise
        if not isinstance(error, CLIENT_ERRORS):
            log.exception("api_failed", path="chat/completions", reason=sentence_of(error))
        await streamed.fail(refusal_of(error))
    finally:
        alive.cancel()
        await asyncio.wait([alive])
    assert streamed.response is not None
    return streamed.response


async def _read(request: web.Request, form: type[B], share: BodyShare) -> tuple[B, int]:
    """Read and decode the body of a request; return it and its size in bytes.

    Raises:
        BodyRefused: The body exceeds a limit.
        ApiError: The body does not match the schema.
    """
    data = await read_body(request, BODY_BYTES, BODY_SECONDS, share)
    return await _in_thread_if_large(len(data), lambda: decode_body(data, form)), len(data)


async def _in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Process a body of `size` bytes, in a thread if that may take long."""
    return work() if size < LARGE else await asyncio.to_thread(work)


async def _while_connected(request: web.Request, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` until it ends or the client disconnects, which cancels it.

    Raises:
        ClientGone: The client disconnected.
    """
    working = asyncio.create_task(work)
    try:
        while not working.done():
            if request.transport is None or request.transport.is_closing():
                raise ClientGone
            await asyncio.wait([working], timeout=GONE_SECONDS)
    finally:
        working.cancel()
        await asyncio.wait([working])
    return working.result()
