"""Past requests sent again: to another model, or with other parameters or pruning.

GET  /api/context/{key}/turns/{turn}/what-if    the past request, its answer, and the rules of pruning in force
POST /api/context/{key}/turns/{turn}/what-if    send it again; the answer is a stream of server-sent events

Both take `?session=` and `?call=` as the other endpoints of the context. Nothing is kept of the answer.
"""

from __future__ import annotations

import asyncio

import msgspec
import structlog
from aiohttp import web

from gateway.auth.access import Access
from gateway.auth.people import Admission
from gateway.conversations.routing.live_sessions import LiveSessions
from gateway.conversations.what_if import RequestChange, Shown, WhatIf
from gateway.http.concurrency import InFlight, Quota
from gateway.http.console.context_endpoints import ContextEndpoints, path_number, query_number
from gateway.http.console.context_turn import NotFound, request_of
from gateway.http.event_stream import ClientGone, EventStream, client_gone
from gateway.http.request_bodies import SIGN_IN_SECONDS, BodyRefused, read_body
from gateway.http.responses import answer, refusal
from gateway.status.problems import Readiness
from gateway.support.errors import Conflict, GatewayError, ModelUnknown, SettingRefused, sentence_of
from gateway.support.stored_sessions import PastRequest
from plugins.support.errors import ProviderError
from sessions.events.errors import JournalDamaged, SessionsError, UnknownSession
from sessions.store.catalog import SessionRow

LARGEST = 16 * 1024
"""Bytes of a request."""

OF_ONE_PERSON, AT_ONCE = 4, 32
"""The limits of concurrent requests, for one person and in total."""

log = structlog.get_logger("exuvia.what_if")


class WhatIfEndpoints:
    """The endpoints for an authenticated person's own sessions."""

    def __init__(
        self,
        what_if: WhatIf,
        contexts: ContextEndpoints,
        *,
        sessions: LiveSessions,
        access: Access,
        readiness: Readiness,
        in_flight: InFlight,
    ) -> None:
        self._what_if = what_if
        self._contexts = contexts
        self._sessions = sessions
        self._access = access
        self._readiness = readiness
        self._in_flight = in_flight
        self._running = Quota(OF_ONE_PERSON, AT_ONCE)

    async def past(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the request that can be sent again."""
        try:
            row, call, past = await self._past(request, admission)
            stored = self._sessions.log(row.session)
            answered = await asyncio.to_thread(self._what_if.past_answer, stored, past)
        except (GatewayError, SessionsError) as error:
            return _refused(error)
        asked, parameters = self._what_if.asked(past)
        rules = self._what_if.rules({})
        return answer(200, {"call": call, "model": asked, "parameters": parameters, "pruning": rules, "answer": answered})

    async def ask(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Send a past request again and stream its answer."""
        if (reason := self._readiness.refuses) is not None:
            return refusal(503, "unavailable", sentence_of(reason))
        person = admission.person.id
        if self._running.exceeded(person):
            return refusal(429, "busy", "Too many answers are being compared; try again shortly.")
        with self._running.unit(person), self._in_flight.one():
            try:
                body = await read_body(request, LARGEST, SIGN_IN_SECONDS)
                change = msgspec.json.decode(body, type=RequestChange)
                return await self._answer(request, admission, change)
            except ClientGone:
                return client_gone(request)
            except BodyRefused as refused:
                return refused.response
            except msgspec.MsgspecError as error:
                return refusal(400, "bad_request", f"The request is not valid: {error}.")

    async def _answer(self, request: web.Request, admission: Admission, change: RequestChange) -> web.StreamResponse:
        """Stream the answer. A failure before its beginning has a status of its own. Raises ClientGone."""
        stream = EventStream(request)
        try:
            await stream.while_connected(self._stream(request, admission, change, stream))
        except (GatewayError, ProviderError, SessionsError) as error:
            if stream.response is None:
                return _refused(error)
            failed = {"type": "failed", "code": _code(error)[1], "message": sentence_of(error)}
            await stream.write(_event(failed), last=True)
        assert stream.response is not None
        return stream.response

    async def _stream(self, request: web.Request, admission: Admission, change: RequestChange, stream: EventStream) -> None:
        row, _, past = await self._past(request, admission)

        async def show(shown: Shown) -> None:
            if not self._access.still_admits(admission):
                raise ClientGone
            await stream.write(_event(shown))

        key, person = row.key, admission.person.id
        await self._what_if.ask(self._sessions.log(row.session), past, change, key=key, person=person, show=show)
        await stream.write(_event({"type": "end"}), last=True)

    async def _past(self, request: web.Request, admission: Admission) -> tuple[SessionRow, int, PastRequest]:
        """Return the request that the URL names, with its session and its number in the turn.

        Raises:
            NotFound, UnknownSession: There is none.
            JournalDamaged, StorageFailed: The journal cannot be read.
        """
        row = await self._contexts.row(request, admission)
        requests = await self._contexts.past_requests(row, path_number(request, "turn"))
        call, _ = request_of(requests, query_number(request, "call"))
        return row, call, requests[call - 1]


def _event(value: object) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(value)


def _code(error: Exception) -> tuple[int, str]:  # noqa: PLR0911 - one arm for each kind
    """Return the status and the code of a failure."""
    match error:
        case NotFound() | UnknownSession():
            return 404, "not_found"
        case JournalDamaged():
            return 409, "damaged_session"
        case ModelUnknown():
            return 400, "no_such_model"
        case SettingRefused():
            return 400, "bad_request"
        case Conflict():
            return 409, "conflict"
        case ProviderError():
            return 502, error.code
        case _:
            return 503, "storage_failed"


def _refused(error: Exception) -> web.Response:
    return refusal(*_code(error), sentence_of(error))
