"""Chat completions in a session: the request's last message is a new message of its person.

It is durable before it is answered, its turn has the gateway's tools and memory, and continues if the client disconnects.
The request's earlier messages are ignored: the session has its own.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import tzinfo
from hashlib import blake2b

import msgspec

from gateway.conversations.routing.chat import AcceptedMessage, Chat
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http.openai import schema
from gateway.http.openai.answer_reducer import AnswerReducer
from gateway.http.openai.api_errors import ApiError, bad_request
from gateway.http.openai.model_names import DEFAULT, ModelNames
from gateway.http.openai.request_parser import ImageUrls, user_message
from gateway.http.openai.response_writer import ResponseWriter
from gateway.http.openai.schema import ChatBody
from gateway.http.relay.request_relay import MESSAGE_IDS, WENT_AWAY
from gateway.http.subscribers import Cursor
from gateway.http.uploads import Uploads
from gateway.protocol.frames import ATTACHMENTS, FRAME_LIMIT, KEY_RULE, SentAttachment
from gateway.protocol.slash_commands import TypedCommand, parse_command
from gateway.support.approval_text import question_text
from gateway.support.errors import OwnedElsewhere
from sessions.events.codec import replace_surrogates
from sessions.events.events import MessageReceived
from sessions.events.handed_messages import client_name
from sessions.events.messages import Attachment, UserMessage

SESSION = "X-Exuvia-Session"
"""The header with a session's key."""

ATTEMPT = "X-Stainless-Retry-Count"
"""The header in which OpenAI's own clients count their automatic retries, which have no id."""

STILL_OPEN = "This message was not accepted, because the conversation waits for the answer to a question. Answer it first."

ANSWERING = ("approve", "deny")
"""The commands that answer a question."""

CHANNEL = "api"
REMEMBERED = 256
"""The number of messages without an id whose retries are recognised."""

_KEY, _ID = re.compile(r"[A-Za-z0-9._:-]{1,64}"), re.compile(r"[\x21-\x7e]{1,128}")


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message for a session: its text, the command in it if it is one, and the bytes of its pictures.

    `mark` is a digest of the whole request, by which a client's automatic retry is recognised.
    """

    text: str
    typed: TypedCommand | None
    pictures: tuple[bytes, ...]
    mark: bytes


class SessionMode:
    """Chat completions in the sessions of one gateway. `zone` returns the configured time zone, None for the system's."""

    def __init__(
        self, switchboard: Switchboard, uploads: Uploads, names: ModelNames, zone: Callable[[], tzinfo | None]
    ) -> None:
        self._switchboard = switchboard
        self._zone = zone
        self._uploads = uploads
        self._names = names
        self._recent_ids: OrderedDict[bytes, str] = OrderedDict()

    async def answer(
        self,
        message: NewMessage,
        *,
        key: str,
        model: str,
        person: str,
        headers: Mapping[str, str],
        writer: ResponseWriter,
        repeatable: bool = True,
    ) -> None:
        """Send a message to the session with a key, and write its answer. A request that is not `repeatable` would begin
        another turn if it were handled again, even with the message's id.

        Raises:
            ApiError: The request is invalid, or the turn failed. Errors of `Chat.receive` are passed on.
            OwnedElsewhere: This gateway does not have the conversation, or lost it before the answer was complete. The
                request can be repeated.
        """
        if not _KEY.fullmatch(key):
            raise bad_request(f"{SESSION} must be {KEY_RULE}.")
        id_ = self._id(person, key, message, headers)
        chat = await self._switchboard.chat(person, key, create=True, channel=CHANNEL)
        assert chat is not None
        await self._check_model(model, chat)
        sent = [SentAttachment(data=content) for content in message.pictures]
        attachments = await self._uploads.store(person, sent)
        event = MessageReceived(
            id=id_,
            client=client_name(replace_surrogates(headers.get("User-Agent", "unnamed"))),
            sender=person,
            channel=CHANNEL,
            chat="private",
            text=message.text,
            attachments=attachments,
        )
        waits_for = chat.current.question_before(message.typed) if chat.current is not None else None
        if waits_for is not None and chat.receipts.find(id_) is None:
            await writer.accepted({})
            await writer.text(f"{STILL_OPEN}\n\n{question_text(waits_for, self._zone())}")
            await writer.end((), "end", None)
            return
        turn, waiting = None, None
        if message.typed is not None and message.typed.name in ANSWERING and chat.current is not None:
            waiting = chat.current.waiting_for
            turn = chat.current.recorder.transcript.turn if waiting is not None else None
        received = await chat.receive(event, message.typed)
        try:
            await self._follow(chat, received, attachments, AnswerReducer(received.seq, turn, waiting), writer)
        except OwnedElsewhere:
            if repeatable and any(name in headers for name in MESSAGE_IDS):
                raise
            # Repeated, it would be another message.
            raise ApiError(WENT_AWAY, status=503, kind="server_error", code="busy", again=False) from None

    async def has(self, person: str, key: str, message: NewMessage, headers: Mapping[str, str]) -> bool:
        """Return True if the session with a key has received this message before, by its id."""
        given = (headers[name] for name in MESSAGE_IDS if name in headers)
        id_ = next(given, None) or self._repeated_id(person, key, message, headers)
        chat = await self._switchboard.chat(person, key, create=False) if id_ is not None else None
        return id_ is not None and chat is not None and chat.receipts.find(id_) is not None

    async def _follow(
        self,
        chat: Chat,
        received: AcceptedMessage,
        attachments: tuple[Attachment, ...],
        reducer: AnswerReducer,
        writer: ResponseWriter,
    ) -> None:
        news = asyncio.Event()
        chat.watch(news.set)
        try:
            await chat.until_durable(received)
            if attachments:
                await self._uploads.settle(chat.person, attachments)
            await writer.accepted(
                {
                    "X-Exuvia-Session-Id": received.session,
                    "X-Exuvia-Seq": str(received.seq),
                    "X-Exuvia-Duplicate": str(received.duplicate).lower(),
                }
            )
            await self._write_answer(chat, Cursor(chat, received.session, received.seq - 1), reducer, news, writer)
        finally:
            chat.unwatch(news.set)

    async def _write_answer(
        self, chat: Chat, cursor: Cursor, reducer: AnswerReducer, news: asyncio.Event, writer: ResponseWriter
    ) -> None:
        """Write the answer to a message, at the client's own pace, until its end or a question about a tool call.

        Raises:
            ApiError: The turn failed, or the session ended before it.
            OwnedElsewhere: The chat was dropped: it has no further news.
        """
        while reducer.stop is None:
            news.clear()
            if not cursor.has_news:
                if reducer.question is not None:
                    await writer.text(reducer.separated(question_text(reducer.question, self._zone())))
                    break
                if chat.dropped:
                    raise OwnedElsewhere("", "", lost=True)
                if cursor.is_done:
                    raise ApiError("The session ended before this message was answered.", status=503, kind="server_error")
                await news.wait()
                continue
            for outgoing in await cursor.take():
                text = reducer.feed(outgoing.data)
                if reducer.model:
                    writer.name(reducer.model)
                if reducer.reasoning:
                    await writer.reasoning(reducer.reasoning)
                if text:
                    await writer.text(text)
        await writer.end((), reducer.stop or "end", reducer.usage)

    def _id(self, person: str, key: str, message: NewMessage, headers: Mapping[str, str]) -> str:
        """Return the message's id: the client's own, that of the attempt that it repeats, or a new one."""
        for name in MESSAGE_IDS:
            if (given := headers.get(name)) is not None:
                if not _ID.fullmatch(given):
                    raise bad_request(f"{name} must have 1 to 128 printable characters without spaces.")
                return given
        mark = _mark(person, key, message)
        id_ = self._repeated_id(person, key, message, headers) or secrets.token_hex(16)
        self._recent_ids.pop(mark, None)
        self._recent_ids[mark] = id_
        if len(self._recent_ids) > REMEMBERED:
            self._recent_ids.popitem(last=False)
        return id_

    def _repeated_id(self, person: str, key: str, message: NewMessage, headers: Mapping[str, str]) -> str | None:
        """Return the generated id of the attempt that OpenAI's client says it repeats; None if there is none."""
        return self._recent_ids.get(_mark(person, key, message)) if headers.get(ATTEMPT, "0") != "0" else None

    async def _check_model(self, wanted: str, chat: Chat) -> None:
        """Raise ApiError if another model is named than the session's, which `/model` chooses for all later turns."""
        if wanted == DEFAULT or chat.current is None:
            return
        named = (await self._names.chosen(wanted, chat.person)).name
        own = chat.current.models.choose().name
        if named != own:
            raise bad_request(
                f"The model of this session is {own}; send {DEFAULT}, and change the model with /model.", "model"
            )


def new_message(body: ChatBody) -> NewMessage:
    """Return the message that a body sends to a session. It decodes pictures, so run it in a thread if the body is large.

    Raises:
        ApiError: The request is invalid or unsupported.
    """
    schema.refuse_unsupported(body)
    formed = not isinstance(body.response_format, schema.TextForm | None)
    options = {"tools": bool(body.tools), "stop": bool(body.stop), "response_format": formed}
    for param, is_set in options.items():
        if is_set:
            raise bad_request(f"{param} cannot be set in a session; leave it out, or leave {SESSION} out.", param)
    last, place = body.messages[-1], f"messages[{len(body.messages) - 1}]"
    if not isinstance(last, schema.UserMessageBody):
        raise bad_request(f"{place}: in a session the last message must be a new user message.", place)
    pictures = ImageUrls()
    mark = blake2b(msgspec.json.encode(body.messages), digest_size=16).digest()
    return checked_message(user_message(last, pictures, place), pictures, place, mark)


def checked_message(message: UserMessage, pictures: ImageUrls, place: str, mark: bytes) -> NewMessage:
    """Return a user's message as one for a session; `place` names it in errors.

    Raises:
        ApiError: It is empty or too large, or a command with pictures.
    """
    if len(message.text.encode()) > FRAME_LIMIT:
        raise bad_request(f"{place}: the text of a message is limited to {FRAME_LIMIT:,} bytes.", place)
    if not message.text.strip() and not message.attachments:
        raise bad_request(f"{place}: a message needs a text or a picture.", place)
    typed = parse_command(message.text)
    if message.attachments and typed is not None:
        raise bad_request(f"{place}: a command takes no pictures.", place)
    if len(message.attachments) > ATTACHMENTS:
        raise bad_request(f"{place}: a message is limited to {ATTACHMENTS} pictures.", place)
    contents = tuple(pictures.content[each.sha256] for each in message.attachments)
    return NewMessage(text=message.text, typed=typed, pictures=contents, mark=mark)


def _mark(person: str, key: str, message: NewMessage) -> bytes:
    return blake2b(msgspec.json.encode((person, key, message.mark)), digest_size=16).digest()
