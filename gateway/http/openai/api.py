"""Routing of requests below `/v1`, limits and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import structlog
from aiohttp import web

from gateway.auth.people import Admission
from gateway.config.keys import RoleKeys
from gateway.http.concurrency import InFlight, Quota
from gateway.http.event_stream import ClientGone, EventStream, client_gone, while_connected
from gateway.http.openai.api_errors import ApiError, refusal_of, refused_response
from gateway.http.openai.embeddings import EmbeddingBody, Embeddings
from gateway.http.openai.exchanges import (
    BODY_BYTES,
    CLIENT_ERRORS,
    Answer,
    in_thread_if_large,
    read_json,
    write_json,
    write_stream,
)
from gateway.http.openai.model_names import DEFAULT, ModelNames
from gateway.http.openai.request_parser import parse_request
from gateway.http.openai.response_writer import (
    Chunks,
    CompletionHeader,
    EventStreamWriter,
    JsonResponseWriter,
    completion,
)
from gateway.http.openai.responses.endpoint import Responses
from gateway.http.openai.responses.stored_responses import StoredResponses
from gateway.http.openai.schema import ChatBody
from gateway.http.openai.session_mode import SESSION, SessionMode, new_message
from gateway.http.openai.stateless_mode import StatelessMode
from gateway.http.openai.transcriptions import Transcriptions
from gateway.http.request_bodies import BodyShare
from gateway.http.responses import answer
from gateway.http.websocket_connection import ConnectionServices
from gateway.metrics.counters import Counters
from gateway.models.call import ModelCaller
from gateway.models.registry import ModelRegistry
from gateway.models.transcription import Transcriber
from gateway.support.errors import OwnedElsewhere, sentence_of
from plugins.api.chat import CallDraft
from plugins.api.context import Clock
from sessions.events.events import StopReason
from sessions.events.messages import Usage
from sessions.store.protocols import Blobs

OF_ONE_PERSON, AT_ONCE = 32, 128
"""The limits of concurrent requests, for one person and in total."""

OF_ONE, OF_ALL = 2 * BODY_BYTES, 4 * BODY_BYTES
"""The limits of bodies in memory in bytes, for one person and in total. Decoded, they take about three times as much."""


Serve: TypeAlias = Callable[[web.Request, Admission, BodyShare], Awaitable[web.StreamResponse]]

log = structlog.get_logger("exuvia.openai_api")


class OpenAIApi:
    """The OpenAI-compatible API below `/v1`.

    `rights` returns what a person may do. `caller` calls the models of stateless requests, and `in_flight` counts those,
    since a stop waits for them. `stored` holds the responses without a session, and `attachments` their pictures.
    """

    def __init__(
        self,
        services: ConnectionServices,
        models: ModelRegistry,
        *,
        rights: Callable[[str], RoleKeys],
        caller: ModelCaller,
        embeddings: Embeddings,
        transcriber: Transcriber,
        in_flight: InFlight,
        counters: Counters,
        clock: Clock,
        stored: StoredResponses,
        attachments: Blobs,
    ) -> None:
        self._services = services
        self._counters = counters
        self._clock = clock
        self._running = Quota(OF_ONE_PERSON, AT_ONCE)
        self._memory = Quota(OF_ONE, OF_ALL)
        self._embeddings = embeddings
        self._transcriber = transcriber
        self._transcriptions = Transcriptions(transcriber, attachments, in_flight, services.access)
        self._names = ModelNames(models, rights, created=self._now())
        self._stateless = StatelessMode(self._names, caller, in_flight, counters)
        self._in_session = SessionMode(services.switchboard, services.uploads, self._names, services.zone)
        self._responses = Responses(
            services,
            in_session=self._in_session,
            stateless=self._stateless,
            stored=stored,
            attachments=attachments,
            clock=clock,
        )
        self._serving: dict[str, tuple[str, Serve]] = {
            "audio/transcriptions": ("POST", self._transcriptions.transcribe),
            "audio/translations": ("POST", self._transcriptions.translate),
            "chat/completions": ("POST", self._chat),
            "embeddings": ("POST", self._embed),
            "models": ("GET", self._models),
            "responses": ("POST", self._responses.create),
            "responses/": ("GET", self._response),
        }

    async def serve(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Answer a request for `/v1/{path}`."""
        path = request.match_info["path"]
        known = next((each for each in ("models", "responses/") if path.startswith(f"{each.rstrip('/')}/")), path)
        known = known if known in self._serving else "other"
        try:
            response = await self._served(request, admission, known)
        except OwnedElsewhere:
            raise
        except CLIENT_ERRORS as error:
            response = refused_response(refusal_of(error))
        except ClientGone:
            response = client_gone(request)
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

    async def _models(self, request: web.Request, admission: Admission, _: BodyShare) -> web.StreamResponse:
        name = request.match_info["path"].partition("/")[2]
        more = [each for each in (self._embeddings.name(), self._transcriber.model()) if each is not None]
        person = admission.person.id
        return answer(200, await (self._names.entry(name, more, person) if name else self._names.listing(more, person)))

    async def _response(self, request: web.Request, admission: Admission, _: BodyShare) -> web.StreamResponse:
        return await self._responses.get(request, admission)

    async def _embed(self, request: web.Request, admission: Admission, share: BodyShare) -> web.StreamResponse:
        body, _size = await read_json(request, EmbeddingBody, share)
        return await while_connected(request, self._embeddings.answer(body, admission.person.id))

    async def _chat(self, request: web.Request, admission: Admission, share: BodyShare) -> web.StreamResponse:
        body, size = await read_json(request, ChatBody, share)
        answer = await self._answer_to(body, size, request.headers, admission.person.id)
        head = CompletionHeader.new(self._now(), DEFAULT)
        if not body.stream:

            async def complete(
                text: str, reasoning: str, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None
            ) -> dict[str, Any]:
                return completion(head, text, calls, stop, usage, reasoning=reasoning)

            return await write_json(request, JsonResponseWriter(head, complete), answer)
        with_usage = bool(body.stream_options and body.stream_options.include_usage)
        admitted = partial(self._services.access.still_admits, admission)
        events = Chunks(head, with_usage=with_usage)
        return await write_stream(request, EventStreamWriter(EventStream(request), head, events, admitted=admitted), answer)

    async def _answer_to(self, body: ChatBody, size: int, headers: Mapping[str, str], person: str) -> Answer:
        """Parse a body of `size` bytes and return what answers it: the session that the headers name, if any."""
        if SESSION in headers:
            message = await in_thread_if_large(size, lambda: new_message(body))
            key, model = headers[SESSION], body.model
            return lambda writer: self._in_session.answer(
                message, key=key, model=model, person=person, headers=headers, writer=writer
            )
        question = await in_thread_if_large(size, lambda: parse_request(body))
        return lambda writer: self._stateless.answer(question, person, writer)
