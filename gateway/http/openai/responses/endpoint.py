"""Creates responses and returns them later.

In a session, named by the header or by `conversation`, the input is a new message of its person, and the id of the response
is that of the session with the message's `seq`: nothing else is stored. A `previous_response_id` of a session continues it,
or forks it if the conversation has gone on since. Without a session the named model answers alone, and a response is kept in
a log of its own unless the request says `store: false`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec
from aiohttp import web

from gateway.auth.people import Admission
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http.event_stream import EventStream
from gateway.http.openai.answer_reducer import AnswerReducer
from gateway.http.openai.api_errors import ApiError, bad_request
from gateway.http.openai.exchanges import in_thread_if_large, read_json, write_json, write_stream
from gateway.http.openai.model_names import DEFAULT
from gateway.http.openai.request_parser import ImageUrls
from gateway.http.openai.response_writer import EventStreamWriter, JsonResponseWriter, ResponseWriter
from gateway.http.openai.responses import response_schema as forms
from gateway.http.openai.responses.request_conversion import ConvertedRequest, convert_request, messages_of
from gateway.http.openai.responses.response_object import Json, ResponseBuilder, ResponseHeader
from gateway.http.openai.responses.response_schema import ResponseBody
from gateway.http.openai.responses.stored_responses import (
    ResponseStored,
    StoredConversation,
    StoredResponses,
    digest_of,
)
from gateway.http.openai.session_mode import SESSION, NewMessage, SessionMode, checked_message
from gateway.http.openai.stateless_mode import StatelessMode
from gateway.http.request_bodies import BodyShare
from gateway.http.responses import answer
from gateway.http.subscribers import Cursor
from gateway.http.uploads import Uploads
from gateway.http.websocket_connection import ConnectionServices
from gateway.protocol.frames import SentAttachment
from plugins.api.chat import CallDraft
from plugins.api.context import Clock
from sessions.events.events import StopReason
from sessions.events.messages import Message, Usage, UserMessage
from sessions.store.log_writer import LineTooLong
from sessions.store.protocols import Blobs

_OF_SESSION = re.compile(r"resp_(\d{8}-\d{6}-[a-z0-9]+)_(\d{1,15})")
"""The id of a response in a session."""


class _Exchange(msgspec.Struct, kw_only=True):
    """A message of a session and its answer so far."""

    key: str
    session: str
    text: str = ""
    model: str = DEFAULT
    stop: StopReason | None = None
    usage: Usage | None = None
    end: int = 0
    """The seq of the last event of the answer."""
    is_last: bool = True
    """False if the conversation has gone on since."""


class Responses:
    """The Responses API.

    Args:
        services: What connections use.
        in_session: Answers in sessions.
        stateless: Answers without a session.
        stored: The log of responses without a session.
        attachments: The contents of pictures in that log.
        clock: The clock.
    """

    def __init__(
        self,
        services: ConnectionServices,
        *,
        in_session: SessionMode,
        stateless: StatelessMode,
        stored: StoredResponses,
        attachments: Blobs,
        clock: Clock,
    ) -> None:
        self._switchboard: Switchboard = services.switchboard
        self._uploads: Uploads = services.uploads
        self._access = services.access
        self._in_session = in_session
        self._stateless = stateless
        self._stored = stored
        self._attachments = attachments
        self._clock = clock

    async def create(self, request: web.Request, admission: Admission, share: BodyShare) -> web.StreamResponse:
        """Answer `POST /v1/responses`."""
        body, size = await read_json(request, ResponseBody, share)
        person, headers = admission.person.id, request.headers
        if (key := await self._key(body, size, headers, person)) is not None:
            message = await in_thread_if_large(size, lambda: _new_message(body))
            head = self._header(stored=True, conversation=key)
            builder = ResponseBuilder(head, body, {})

            async def write(writer: ResponseWriter) -> None:
                await self._in_session.answer(
                    message,
                    key=key,
                    model=body.model,
                    person=person,
                    headers=headers,
                    writer=writer,
                    repeatable=body.previous_response_id is None,  # else it would be forked
                )

            return await self._write(request, admission, builder, write, None)
        earlier = await self._earlier(person, body.previous_response_id)
        pictures = ImageUrls()
        await self._load_pictures(earlier.messages if earlier is not None else (), pictures)
        before = earlier.messages if earlier is not None else ()
        converted = await in_thread_if_large(size, lambda: convert_request(body, before, pictures))
        builder = ResponseBuilder(self._header(stored=body.store is not False), body, converted.tools)

        async def write_alone(writer: ResponseWriter) -> None:
            await self._stateless.answer(converted.parsed, person, writer)

        keep = partial(self._keep, person, earlier, converted, pictures, builder) if builder.head.stored else None
        return await self._write(request, admission, builder, write_alone, keep)

    async def get(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Answer `GET /v1/responses/ID`."""
        id_, person = request.match_info["path"].partition("/")[2], admission.person.id
        if (exchange := await self._exchange(person, id_)) is None:
            stored = await self._stored.find(person, id_)
            if stored is None:
                raise _unknown(id_)
            return answer(200, stored.response)
        head = ResponseHeader(id=id_, created=self._now(), model=exchange.model, stored=True, conversation=exchange.key)
        builder = ResponseBuilder(head, ResponseBody(model=exchange.model, input=""), {})
        if exchange.text:
            builder.text(exchange.text)
        builder.end((), exchange.stop or "end", exchange.usage)
        return answer(200, builder.response if exchange.stop is not None else builder.response | {"status": "in_progress"})

    async def _write(
        self,
        request: web.Request,
        admission: Admission,
        builder: ResponseBuilder,
        write: Callable[[ResponseWriter], Coroutine[Any, Any, None]],
        keep: Callable[[], Awaitable[None]] | None,
    ) -> web.StreamResponse:
        """Write an answer; `keep` stores it before it is complete for the client."""
        if builder.stream:
            admitted = partial(self._access.still_admits, admission)
            streamed = EventStreamWriter(EventStream(request), builder.head, builder, admitted=admitted, before_end=keep)
            return await write_stream(request, streamed, write)

        async def complete(
            text: str, reasoning: str, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None
        ) -> Json:
            if reasoning:
                builder.reasoning(reasoning)
            if text:
                builder.text(text)
            builder.end(calls, stop, usage)
            if keep is not None:
                await keep()
            return builder.response

        return await write_json(request, JsonResponseWriter(builder.head, complete), write)

    def _header(self, *, stored: bool, conversation: str = "") -> ResponseHeader:
        id_ = f"resp_{secrets.token_hex(16)}"
        return ResponseHeader(id=id_, created=self._now(), model=DEFAULT, stored=stored, conversation=conversation)

    def _now(self) -> int:
        return int(self._clock.now().timestamp())

    # --- in a session -------------------------------------------------------------------------------------------------

    async def _key(self, body: ResponseBody, size: int, headers: Mapping[str, str], person: str) -> str | None:
        """Return the key of the session that a request continues, None for a request without a session."""
        named = body.conversation.id if isinstance(body.conversation, forms.NamedConversation) else body.conversation
        key = headers.get(SESSION, named)
        if body.previous_response_id is None:
            return key
        exchange = await self._exchange(person, body.previous_response_id)
        if exchange is None:
            if key is not None:
                raise bad_request("previous_response_id is not of this session.", "previous_response_id")
            return None
        if key not in (None, exchange.key):
            raise bad_request(f"previous_response_id is of the session {exchange.key}.", "previous_response_id")
        if exchange.stop is None:
            raise bad_request("The previous response is still being answered.", "previous_response_id")
        if exchange.is_last:
            return exchange.key
        message = await in_thread_if_large(size, lambda: _new_message(body))
        if await self._in_session.has(person, exchange.key, message, headers):  # what came after is this request itself
            return exchange.key
        return (await self._switchboard.fork(person, exchange.session, None, exchange.end)).key

    async def _exchange(self, person: str, id_: str) -> _Exchange | None:
        """Return the message and answer that a response's id names; None if the id is not that of a session.

        Raises:
            ApiError: There is no such message, or its turn failed.
        """
        if (named := _OF_SESSION.fullmatch(id_)) is None:
            return None
        session, seq = named[1], int(named[2])
        row = await self._switchboard.sessions.row(session)
        if row is None or row.person != person:
            raise _unknown(id_)
        chat = await self._switchboard.chat(person, row.key, create=False)
        if chat is None or not 0 < seq <= (chat.head(session) or 0):
            raise _unknown(id_)
        exchange = _Exchange(key=row.key, session=session)
        reducer, cursor = AnswerReducer(seq), Cursor(chat, session, seq - 1)
        head = chat.head(session) or 0
        while cursor.after < head:
            for outgoing in await cursor.take():
                if exchange.stop is None:
                    exchange.text += reducer.feed(outgoing.data)
                    exchange.stop, exchange.end = reducer.stop, cursor.after if outgoing.event is None else outgoing.event[1]
                if outgoing.event is not None and b'"kind":"message_received"' in outgoing.data[:400]:
                    if outgoing.event[1] > seq:
                        exchange.is_last = False
                elif outgoing.event is not None and outgoing.event[1] == seq:
                    raise _unknown(id_)
        exchange.model, exchange.usage = reducer.model or DEFAULT, reducer.usage
        if chat.current is None or chat.current.session != session:
            exchange.is_last = False
        return exchange

    # --- without a session --------------------------------------------------------------------------------------------

    async def _earlier(self, person: str, id_: str | None) -> StoredConversation | None:
        """Return the conversation that a request without a session continues.

        Raises:
            ApiError: There is no such response.
        """
        if id_ is None:
            return None
        earlier = await self._stored.conversation(person, id_)
        if earlier is None:
            raise _unknown(id_, "previous_response_id")
        return earlier

    async def _load_pictures(self, messages: Sequence[Message], pictures: ImageUrls) -> None:
        """Add the pictures of stored messages."""
        for message in messages:
            for each in message.attachments if isinstance(message, UserMessage) else ():
                try:
                    pictures.content[each.sha256] = await self._attachments.read(each.sha256)
                except OSError:
                    raise bad_request(
                        "A picture of the previous response is missing; send the whole conversation instead.",
                        "previous_response_id",
                    ) from None

    async def _keep(
        self,
        person: str,
        earlier: StoredConversation | None,
        converted: ConvertedRequest,
        pictures: ImageUrls,
        builder: ResponseBuilder,
    ) -> None:
        """Store a complete response durably.

        Raises:
            ApiError: It is too long to be stored.
        """
        messages = tuple(converted.parsed.context.messages)
        if earlier is not None:
            base, digest, known = earlier.id, earlier.digest, len(earlier.messages)
        else:
            base, digest, known = await self._stored.recognised(person, messages)
        new = messages[known:]
        added = {each.sha256 for m in new if isinstance(m, UserMessage) for each in m.attachments}
        sent = [SentAttachment(data=pictures.content[sha256]) for sha256 in added]
        attachments = await self._uploads.store(person, sent)
        output = [msgspec.convert(item, type=forms.Item) for item in builder.response["output"]]
        reply = tuple(messages_of(output, messages, ImageUrls()))
        response = ResponseStored(
            id=builder.head.id,
            person=person,
            base=base,
            messages=new,
            answer=reply,
            response=builder.response,
            digest=digest_of(digest, (*new, *reply)),
        )
        try:
            await self._stored.add(response)
        except LineTooLong:
            raise bad_request("This conversation is too long to be stored; send `store: false`.", "store") from None
        if attachments:
            await self._uploads.settle(person, attachments)


def _new_message(body: ResponseBody) -> NewMessage:
    """Return the message that a body sends to a session. It decodes pictures, so run it in a thread if the body is large.

    Raises:
        ApiError: The request is invalid or unsupported.
    """
    forms.refuse_unsupported(body)
    is_formed = body.text is not None and not isinstance(body.text.format, forms.PlainFormat | None)
    options = {"tools": bool(body.tools), "instructions": bool(body.instructions), "text.format": is_formed}
    for param, is_set in options.items():
        if is_set:
            raise bad_request(f"{param} cannot be set in a session, which has its own.", param)
    pictures, items = ImageUrls(), forms.items_of(body)
    messages = messages_of(items, (), pictures)
    if len(items) != 1 or not isinstance(messages[0], UserMessage):
        raise bad_request("input: in a session the input is one new user message.", "input")
    mark = blake2b(msgspec.json.encode(body.input), digest_size=16).digest()
    return checked_message(messages[0], pictures, "input", mark)


def _unknown(id_: str, param: str | None = None) -> ApiError:
    sentence = f"There is no stored response {id_[:100]}."
    return ApiError(
        sentence, status=400 if param else 404, param=param, code="previous_response_not_found" if param else None
    )
