"""The conversations of one client that other gateways have.

Frames about such a conversation go to its owner over the owner's websocket, and its frames to the client, unchanged. When
the owner is gone, the next one is found by claiming the conversation: either this gateway has it then, or it learns who
does. There the subscription continues after the last event that the client was sent, and frames without an answer are sent
again; messages have ids, so none is received twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import aiohttp
import msgspec
import structlog

from gateway.http.relay.links import Links
from gateway.protocol import frames
from gateway.protocol.frames import Cancel, ClientFrame, Hello, Ping, Sessions, Unsubscribe
from gateway.support.errors import OwnedElsewhere, sentence_of
from gateway.support.resource_limits import is_exhaustion
from sessions.events.errors import SessionsError

RETRY_SECONDS = 0.1
"""Seconds before an owner is looked for again."""

ANSWER_SECONDS = 20.0
"""Seconds after which a frame that no owner has answered is refused."""

MOST_UNSENT = 256
"""Number of frames that may wait for the owner of one conversation."""

KEPT_SESSIONS = 8
"""Number of sessions of a key whose last sent events are remembered."""

log = structlog.get_logger("exuvia.relay")


class RelayingClient(Protocol):
    """The connection of a client, as far as its relay uses it."""

    client: str

    def answer(self, data: bytes) -> None:
        """Queue a frame for the client."""
        ...

    async def until_room(self) -> None:
        """Return once another frame may be queued."""
        ...

    async def handle_here(self, frame: ClientFrame, text: str) -> None:
        """Handle a frame of the client. Raises OwnedElsewhere, SessionsError."""
        ...

    async def follow_here(self, key: str, sent: Mapping[str, int]) -> bool:
        """Subscribe to a conversation after the events that were sent, by session, the oldest first; return False if there
        is no such conversation. Without events, only open it. Raises OwnedElsewhere, SessionsError."""
        ...

    def relay_failed(self, key: str, error: BaseException) -> None:
        """Report that a conversation is not relayed any more, because of an unexpected error; the client has to connect
        again."""
        ...


class _Seq(msgspec.Struct, frozen=True):
    seq: int


class _OwnersFrame(msgspec.Struct, frozen=True):
    """What of an owner's frame the relay reads."""

    type: str
    id: str | None = None
    session: str = ""
    session_id: str = ""
    event: _Seq | None = None
    after: int = 0


_decode = msgspec.json.Decoder(_OwnersFrame).decode


class _Waiting(msgspec.Struct):
    """A frame of the client that was not answered yet."""

    frame: ClientFrame
    text: str
    since: float


class _Route:
    """One conversation: what the client has sent about it, and what it was sent of it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.unsent = deque[_Waiting]()
        self.unanswered: dict[str, _Waiting] = {}
        self.unconfirmed: list[_Waiting] = []
        """Frames that have no answer, such as a `subscribe` without an id, of which it is not known whether the owner has
        handled them; the newest MOST_UNSENT of them."""
        self.sent: dict[str, int] | None = None
        """The seqs of the last events that the client was sent, by session, the oldest first; None without a
        subscription."""
        self.news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def note_event(self, session: str, seq: int) -> bool:
        """Note an event for the client; return False if it was sent before."""
        sent = self.sent if self.sent is not None else {}
        if seq <= sent.get(session, 0):
            return False
        sent[session] = seq
        while len(sent) > KEPT_SESSIONS:
            del sent[next(iter(sent))]
        return True

    def note_sent(self, waiting: _Waiting) -> None:
        """Note a frame that the owner was sent, which may have to be sent again to the next one."""
        id_ = getattr(waiting.frame, "id", None)
        if id_ is not None and not isinstance(waiting.frame, Cancel | Unsubscribe):  # which are not answered
            self.unanswered[id_] = waiting
        else:
            self.unconfirmed = [*self.unconfirmed[1 - MOST_UNSENT :], waiting]

    def requeue(self) -> None:
        """Send again what was not answered. Of the frames without an answer, the old ones have been handled."""
        due = time.monotonic() - ANSWER_SECONDS
        unconfirmed = (each for each in self.unconfirmed if each.since >= due)
        self.unsent.extendleft(reversed([*self.unanswered.values(), *unconfirmed]))
        self.unanswered.clear()
        self.unconfirmed.clear()

    def overdue(self) -> list[_Waiting]:
        """Remove and return the frames that have waited too long."""
        due = time.monotonic() - ANSWER_SECONDS
        late = [each for each in (*self.unanswered.values(), *self.unsent) if each.since < due]
        self.unsent = deque(each for each in self.unsent if each.since >= due)
        self.unanswered = {id_: each for id_, each in self.unanswered.items() if each.since >= due}
        return late


class KeyRelay:
    """The conversations of one client, `client`, that other gateways have. `person` is who it is."""

    def __init__(self, links: Links, person: str, client: RelayingClient) -> None:
        self._links = links
        self._person = person
        self._client = client
        self._routes: dict[str, _Route] = {}

    def has(self, frame: ClientFrame) -> bool:
        """Return True if a frame is about a conversation that another gateway has, as far as is known."""
        return _key_of(frame) in self._routes

    def forward(self, frame: ClientFrame, text: str) -> None:
        """Send a frame to the owner of its conversation."""
        key = _key_of(frame)
        assert key is not None
        route = self._routes.get(key) or self._begin(_Route(key))
        if isinstance(frame, Unsubscribe):
            route.sent = None
        if len(route.unsent) >= MOST_UNSENT:
            self._refuse(frame, "Too many frames wait for the gateway that has this conversation; try again shortly.")
            return
        route.unsent.append(_Waiting(frame, text, time.monotonic()))
        route.news.set()

    def follow(self, key: str, sent: Mapping[str, int]) -> None:
        """Continue a subscription of this gateway at the next owner, after the events that were sent, by session."""
        if key not in self._routes:
            route = _Route(key)
            route.sent = dict(sent)
            self._begin(route)

    def _refuse(self, frame: ClientFrame, sentence: str) -> None:
        self._client.answer(frames.error("busy", sentence, getattr(frame, "id", None), retry_after=1))

    async def close(self) -> None:
        """End all connections."""
        tasks = [route.task for route in self._routes.values() if route.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _begin(self, route: _Route) -> _Route:
        self._routes[route.key] = route
        route.task = asyncio.create_task(self._keep(route))
        route.task.add_done_callback(partial(self._ended, route))
        return route

    def _ended(self, route: _Route, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._client.relay_failed(route.key, error)

    async def _keep(self, route: _Route) -> None:
        """Relay one conversation until this gateway has it."""
        while True:
            try:
                await self._handle_here(route)
                return
            except OwnedElsewhere as owner:
                if owner.url:
                    await self._try_owner(route, owner)
                pause = RETRY_SECONDS
            except SessionsError as error:
                log.warning("conversation_not_relayed", key=route.key, reason=str(error))
                pause = 5 * RETRY_SECONDS
            except (MemoryError, OSError, RuntimeError) as error:
                if not is_exhaustion(error):
                    raise
                log.error("resources_exhausted", client=self._client.client, reason=sentence_of(error))
                pause = 5 * RETRY_SECONDS
            route.requeue()
            for late in route.overdue():
                self._refuse(late.frame, "No gateway has answered for this conversation; try again.")
            if route.sent is None and not route.unsent:
                del self._routes[route.key]
                return
            await asyncio.sleep(pause)

    async def _handle_here(self, route: _Route) -> None:
        """Claim the conversation, and go on with it on this gateway."""
        if route.sent is not None and not await self._client.follow_here(route.key, route.sent):
            route.sent = None
        while route.unsent:
            waiting = route.unsent[0]
            await self._client.handle_here(waiting.frame, waiting.text)
            route.unsent.popleft()
        del self._routes[route.key]

    async def _try_owner(self, route: _Route, owner: OwnedElsewhere) -> None:
        """Relay to an owner until it is gone or has the conversation no more."""
        try:
            async with (
                self._links.while_there(owner.gateway),
                self._links.websocket(self._person, owner) as socket,  # one that stands still accepts it, and never answers
            ):
                await self._relay(route, socket)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.debug("owner_unreachable", gateway=owner.gateway, reason=str(error))

    async def _relay(self, route: _Route, socket: aiohttp.ClientWebSocketResponse[Any]) -> None:
        await socket.send_str(frames.frame("hello", protocol=frames.PROTOCOL, client=self._client.client).decode())
        if route.sent:
            session, after = next(iter(route.sent.items()))
            again = frames.frame("subscribe", session=route.key, session_id=session, after=after)
            await socket.send_str(again.decode())
        tasks = {
            asyncio.create_task(self._send(route, socket)),
            asyncio.create_task(self._read(route, socket)),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _read(self, route: _Route, socket: aiohttp.ClientWebSocketResponse[Any]) -> None:
        while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
            if not await self._receive(route, message.data):
                return

    async def _send(self, route: _Route, socket: aiohttp.ClientWebSocketResponse[Any]) -> None:
        while True:
            while route.unsent:
                waiting = route.unsent.popleft()
                route.note_sent(waiting)
                await socket.send_str(waiting.text)
            route.news.clear()
            await route.news.wait()

    async def _receive(self, route: _Route, text: str) -> bool:
        """Pass a frame of the owner on to the client; return False if the owner has the conversation no more."""
        data = text.encode()
        frame = _decode(data)
        if frame.type == "moved":
            return False
        if frame.type in {"following", "error"} or frame.event is not None:
            route.unconfirmed.clear()
        if frame.type == "following":
            if (route.sent or {}).get(frame.session_id) != frame.after:
                route.sent = {frame.session_id: frame.after}
            return True
        if frame.id is None and frame.session not in ("", route.key):
            return True  # about another conversation of the person, such as `deleted`
        if frame.type == "welcome" or (frame.event is not None and not route.note_event(frame.session_id, frame.event.seq)):
            return True
        if frame.id is not None:
            route.unanswered.pop(frame.id, None)
        await self._client.until_room()
        self._client.answer(data)
        return True


def _key_of(frame: ClientFrame) -> str | None:
    """Return the key of the conversation that a frame is about."""
    return None if isinstance(frame, Hello | Sessions | Ping) else frame.session
