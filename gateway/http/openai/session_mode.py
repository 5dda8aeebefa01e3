"""A chat completion in a session: the last message is a new one of its person, and goes the way of every message.

It is on the disk before anything is answered, the turn has the house's tools and memory, and it goes on when the client goes
away. What the client sends before its last message is what the session knows better.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from gateway.conversations.routing.chat import AcceptedMessage, Chat, IncomingMessage
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http.openai import schema
from gateway.http.openai.answer_reducer import AnswerReducer
from gateway.http.openai.api_errors import ApiError, bad_request
from gateway.http.openai.image_urls import ImageUrls
from gateway.http.openai.model_names import DEFAULT, ModelNames
from gateway.http.openai.request_parser import user_message
from gateway.http.openai.response_writer import ResponseWriter
from gateway.http.openai.schema import ChatBody
from gateway.http.subscribers import Cursor
from gateway.http.uploads import Uploads
from gateway.protocol.frames import ATTACHMENTS, FRAME_LIMIT, KEY_RULE, SentAttachment
from gateway.protocol.slash_commands import parse_command
from sessions.events.codec import replace_surrogates
from sessions.events.messages import Attachment

SESSION = "X-Exuvia-Session"
"""The header that names a session's key."""

IDS = ("Idempotency-Key", "X-Client-Request-Id")
"""Headers that may give a message its id, the first one counts."""

ATTEMPT = "X-Stainless-Retry-Count"
"""In which OpenAI's own clients count their further attempts, which they make by themselves and under no id."""

CHANNEL = "api"
REMEMBERED = 256
"""Messages without an id of their own of which a further attempt is recognised."""

_KEY, _ID = re.compile(r"[A-Za-z0-9._:-]{1,64}"), re.compile(r"[\x21-\x7e]{1,128}")


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What is said to a session: the text, and the bytes of the pictures."""

    text: str
    pictures: tuple[bytes, ...]


class SessionMode:
    """Says messages to the sessions of one gateway, and tells their answers."""

    def __init__(self, switchboard: Switchboard, uploads: Uploads, names: ModelNames) -> None:
        self._switchboard = switchboard
        self._uploads = uploads
        self._names = names
        self._given: OrderedDict[bytes, str] = OrderedDict()

    async def answer(
        self,
        body: ChatBody,
        message: NewMessage,
        person: str,
        headers: Mapping[str, str],
        saying: ResponseWriter,
    ) -> None:
        """Have the message answered by the session of its person that the request's `headers` name. Raises Refused, or what
        `Chat.receive` raises."""
        key = headers[SESSION]
        if not _KEY.fullmatch(key):
            raise bad_request(f"{SESSION} names a session by {KEY_RULE}.")
        id_ = self._id(person, key, body, headers)
        chat = await self._switchboard.chat(person, key, create=True)
        assert chat is not None
        await self._check_model(body.model, chat)
        sent = [SentAttachment(data=content) for content in message.pictures]
        attachments = await self._uploads.store(person, sent)
        incoming = IncomingMessage(
            id=id_,
            client=replace_surrogates(headers.get("User-Agent", "unnamed"))[:128],
            sender=person,
            channel=CHANNEL,
            text=message.text,
            attachments=attachments,
        )
        received = await chat.receive(incoming)
        await self._follow(chat, received, attachments, saying)

    async def _follow(
        self, chat: Chat, received: AcceptedMessage, attachments: tuple[Attachment, ...], saying: ResponseWriter
    ) -> None:
        news = asyncio.Event()
        chat.watch(news.set)
        try:
            await chat.until_durable(received)
            if attachments:
                await self._uploads.settle(chat.person, attachments)
            await saying.accepted(
                {
                    "X-Exuvia-Session-Id": received.session,
                    "X-Exuvia-Seq": str(received.seq),
                    "X-Exuvia-Duplicate": str(received.duplicate).lower(),
                }
            )
            await _tell(Cursor(chat, received.session, received.seq - 1), AnswerReducer(received.seq), news, saying)
        finally:
            chat.unwatch(news.set)

    def _id(self, person: str, key: str, body: ChatBody, headers: Mapping[str, str]) -> str:
        """The message's id: the client's own, or that of the attempt which this one repeats, or a new one."""
        for name in IDS:
            if (given := headers.get(name)) is not None:
                if not _ID.fullmatch(given):
                    raise bad_request(f"{name} has 1 to 128 printable characters, and no spaces.")
                return given
        mark = blake2b(msgspec.json.encode((person, key, body.messages)), digest_size=16).digest()
        id_ = secrets.token_hex(16)
        if headers.get(ATTEMPT, "0") != "0":
            id_ = self._given.get(mark, id_)
        self._given.pop(mark, None)
        self._given[mark] = id_
        if len(self._given) > REMEMBERED:
            self._given.popitem(last=False)
        return id_

    async def _check_model(self, wanted: str, chat: Chat) -> None:
        """Refused where another model is named than the session's: it is chosen with `/model`, for all that follows."""
        if wanted == DEFAULT or chat.current is None:
            return
        named = (await self._names.chosen(wanted)).name
        own = (await self._names.chosen(chat.current.recorder.transcript.settings.get("model") or DEFAULT)).name
        if named != own:
            raise bad_request(
                f"In a session its own model answers, here {own}; name {DEFAULT}, and choose another with /model.", "model"
            )


async def _tell(cursor: Cursor, telling: AnswerReducer, news: asyncio.Event, saying: ResponseWriter) -> None:
    """Say what answers the message until its end, at the client's own pace."""
    while telling.stop is None:
        news.clear()
        if not cursor.has_news:
            if cursor.is_done:
                raise ApiError("The session ended before this message was answered.", status=503, kind="server_error")
            await news.wait()
            continue
        for outgoing in await cursor.take():
            text = telling.hear(outgoing.data)
            if telling.model:
                saying.name(telling.model)
            if text:
                await saying.text(text)
    await saying.end((), telling.stop, telling.usage)


def new_message(body: ChatBody) -> NewMessage:
    """What a body says to a session. Raises Refused. Decodes pictures, so a large body belongs on a thread."""
    schema.refuse_what_is_not_offered(body)
    formed = not isinstance(body.response_format, schema.TextForm | None)
    wished = {"tools": bool(body.tools), "stop": bool(body.stop), "response_format": formed}
    for param, is_wished in wished.items():
        if is_wished:
            raise bad_request(f"{param} is not taken in a session, which has its own; leave {SESSION} out.", param)
    last, place = body.messages[-1], f"messages[{len(body.messages) - 1}]"
    if not isinstance(last, schema.UserMessageBody):
        raise bad_request(f"{place}: in a session the last message is a user's, and the new one.", place)
    pictures = ImageUrls()
    said = user_message(last, pictures, place)
    if len(said.text.encode()) > FRAME_LIMIT:
        raise bad_request(f"{place}: a message in a session has up to {FRAME_LIMIT:,} bytes of text.", place)
    if not said.text.strip() and not said.attachments:
        raise bad_request(f"{place}: a message needs a text or a picture.", place)
    if said.attachments and parse_command(said.text) is not None:
        raise bad_request(f"{place}: a command takes no pictures.", place)
    if len(said.attachments) > ATTACHMENTS:
        raise bad_request(f"{place}: a message has up to {ATTACHMENTS} pictures.", place)
    return NewMessage(text=said.text, pictures=tuple(pictures.content[each.sha256] for each in said.attachments))
