"""Messages that programs send: delivered by the gateway that has the conversation, and answered by it.

If another gateway has it, the message goes there with its id, and is sent again to the next owner if that one goes away: a
message with an id is received once, and its answer is the same for whoever asks.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus

import aiohttp
import msgspec
from aiohttp import web

from gateway.auth.access import Access
from gateway.auth.people import Admission
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http.openai.answer_reducer import AnswerReducer
from gateway.http.openai.api_errors import ApiError
from gateway.http.relay.links import Links
from gateway.http.request_bodies import BodyRefused, read_body
from gateway.http.responses import answer, refusal
from gateway.http.subscribers import Cursor
from gateway.protocol.frames import FRAME_LIMIT
from gateway.support.errors import GatewayError, OwnedElsewhere, sentence_of
from plugins.support.errors import ToolFailed
from sessions.events.errors import SessionsError
from sessions.events.events import MessageReceived

CHANNEL = "mcp"

TEXT_LIMIT = 64 * 1024
"""Characters of the longest result."""

PATH = "/cluster/message"
"""Where a gateway takes a message from another one."""

BODY_BYTES, BODY_SECONDS = 8 * FRAME_LIMIT, 30.0

RETRY_SECONDS = 0.1
"""Seconds before an owner is looked for again."""

LONGEST_SECONDS = 15.0
"""Seconds without an owner after which a message is refused."""


class ProgramMessage(msgspec.Struct, frozen=True):
    """A message of a program for a person's key, and the seconds to wait for the answer."""

    key: str
    message: MessageReceived
    wait: float


class _Answer(msgspec.Struct, frozen=True):
    """The result of a message, or why there is none."""

    text: str = ""
    failure: str = ""


class ProgramMessages:
    """Delivers messages of programs.

    Args:
        switchboard: The conversations.
        links: Connections to the other gateways; None if there are none.
    """

    def __init__(self, switchboard: Switchboard, links: Links | None = None) -> None:
        self._switchboard = switchboard
        self._links = links

    async def send(self, person: str, wanted: ProgramMessage) -> str:
        """Deliver a message, here or where its conversation is, and return the answer.

        Raises:
            ToolFailed: It has no answer.
            GatewayError, SessionsError, ApiError: It was not accepted.
        """
        deadline, until = time.monotonic() + wanted.wait, time.monotonic() + LONGEST_SECONDS
        while True:
            left = msgspec.structs.replace(wanted, wait=max(0.0, deadline - time.monotonic()) if wanted.wait else 0.0)
            try:
                return await self.deliver(person, left)
            except OwnedElsewhere as owner:
                if self._links is None:
                    raise
                asked = time.monotonic()
                if owner.url and (text := await self._forward(self._links, person, owner, left)) is not None:
                    return text
                if time.monotonic() > asked + 1:  # the owner had it until now: the next one takes a few seconds
                    until = time.monotonic() + LONGEST_SECONDS
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def deliver(self, person: str, wanted: ProgramMessage) -> str:
        """Deliver a message to a conversation of this gateway; see `send`. Raises OwnedElsewhere."""
        chat = await self._switchboard.chat(person, wanted.key, create=True, channel=CHANNEL)
        assert chat is not None
        received = await chat.receive(wanted.message, None)
        await chat.until_durable(received)
        if not wanted.wait:
            return f"The message was accepted as event {received.seq}."
        news, reducer, pieces = asyncio.Event(), AnswerReducer(received.seq), list[str]()
        cursor = Cursor(chat, received.session, received.seq - 1)
        chat.watch(news.set)
        try:
            async with asyncio.timeout(wanted.wait):
                while reducer.stop is None:
                    news.clear()
                    if cursor.has_news:
                        pieces += [reducer.feed(outgoing.data) for outgoing in await cursor.take()]
                    elif cursor.is_done:
                        raise ToolFailed("The conversation ended before this message was answered.")
                    else:
                        await news.wait()
        except TimeoutError:
            return f"The answer is not ready yet; read_session has it later. The message is event {received.seq}."
        finally:
            chat.unwatch(news.set)
        return "".join(pieces)[:TEXT_LIMIT]

    async def _forward(self, links: Links, person: str, owner: OwnedElsewhere, wanted: ProgramMessage) -> str | None:
        """Return the owner's answer; None if the next one is to be asked. Raises ToolFailed with its failure."""
        body = msgspec.json.encode(wanted)
        try:
            asked = links.request(person, owner, "POST", PATH, headers={}, body=body)
            async with links.while_there(owner.gateway), asked as response:
                if response.status != HTTPStatus.OK:
                    return None
                found = msgspec.json.decode(await response.read(), type=_Answer)
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError):
            return None
        if found.failure:
            raise ToolFailed(found.failure)
        return found.text


class MessageEndpoint:
    """`POST /cluster/message`: takes messages of programs from the other gateways."""

    def __init__(self, messages: ProgramMessages, access: Access) -> None:
        self._messages = messages
        self._access = access

    async def take(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Deliver a message that a program has sent to another gateway."""
        if not self._access.is_relayed(request):
            return refusal(403, "forbidden", "Only the gateways of the same database may ask for this.")
        try:
            wanted = msgspec.json.decode(await read_body(request, BODY_BYTES, BODY_SECONDS), type=ProgramMessage)
            text = await self._messages.deliver(admission.person.id, wanted)
        except BodyRefused as refused:
            return refused.response
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return refusal(400, "bad_request", "A message names a key and has the fields of message_received.")
        except OwnedElsewhere as error:
            return refusal(HTTPStatus.MISDIRECTED_REQUEST, "busy", str(error))
        except (ToolFailed, GatewayError, SessionsError, ApiError) as error:
            return answer(200, _Answer(failure=sentence_of(error)))
        return answer(200, _Answer(text=text))
