"""The outgoing frames of one client, sent by one coroutine as fast as the client reads them.

Answers to the client's frames precede the frames of subscriptions, and an `accepted` precedes the event that it refers to. A
slow client delays no other and needs little memory: subscriptions are cursors, and no frame is read from a client for which
too many answers wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from aiohttp import ClientConnectionError, WSMsgType, web

from gateway.conversations.routing.chat import Chat
from gateway.conversations.routing.conversation import Conversation
from gateway.http.subscribers import Outgoing, Subscription
from gateway.protocol import frames
from gateway.support.errors import sentence_of
from gateway.support.resource_limits import is_exhaustion
from sessions.events.errors import SessionsError

WAITING_ANSWERS = 256
"""The number of waiting answers above which no further frame of the client is read."""

WAITING_BYTES = 4 * 1024 * 1024
"""The bytes of waiting answers above which no further frame of the client is read."""

TRY_AGAIN_LATER = 1013
"""Close code for a client that reads too slowly."""


_SETTINGS = (b'setting_changed"', b'session_titled"', b'session_archived"')
"""The kinds of events that change what `settings` has."""


class Outbox:
    """The outgoing frames of one client. `close` closes the connection with a code and a reason; `moved` is called when a
    subscription has ended because another gateway has the conversation, with the events that were sent.
    `relayed` tells that the client is another gateway."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        close: Callable[[int, str], None],
        moved: Callable[[str, dict[str, int]], None] = lambda _, __: None,
        *,
        relayed: bool = False,
    ) -> None:
        self._relayed = relayed
        self._socket = socket
        self._close = close
        self._moved = moved
        self._answers: deque[bytes] = deque()
        self._waiting = 0
        self._promised: dict[tuple[str, int], list[bytes]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._watchers: dict[str, Callable[[], None]] = {}
        self._ready: dict[str, None] = {}
        """The keys of subscriptions that may have something to send, in the order in which they became ready."""
        self._wake = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def until_room(self) -> None:
        """Return once another answer may be added."""
        await self._has_room.wait()

    @property
    def has_room(self) -> bool:
        """True if another answer may be added."""
        return self._has_room.is_set()

    def answer(self, data: bytes) -> None:
        """Queue a frame, to be sent before the frames of subscriptions."""
        self._answers.append(data)
        self._waiting += len(data)
        if self._is_full:
            self._has_room.clear()
        self._wake.set()

    def promise(self, session: str, seq: int, accepted: bytes) -> None:
        """Announce an `accepted`: it is sent by `fulfil`, or before the event with this seq if that is sent first."""
        self._promised.setdefault((session, seq), []).append(accepted)

    def fulfil(self, session: str, seq: int, accepted: bytes) -> None:
        """Send the promised `accepted` now, unless it was sent with its event already."""
        if accepted in self._promised.get((session, seq), ()):
            self._forget(session, seq, accepted)
            self.answer(accepted)

    def withdraw(self, session: str, seq: int, accepted: bytes, failure: bytes) -> None:
        """Send `failure` instead of the promised `accepted`, because the message was not stored."""
        self._forget(session, seq, accepted)
        self.answer(failure)

    def send_settings(self, chat: Chat, frame_id: str | None = None, changed: Conversation | None = None) -> None:
        """Send the settings of a chat's current session; `frame_id` is that of the request, if any. See `Chat.settings`."""
        self.answer(frames.frame("settings", id=frame_id, session=chat.key, **chat.settings(changed)))

    def follows(self, key: str) -> bool:
        """Return True if there is a subscription for a key."""
        return key in self._subscriptions

    def follow(self, chat: Chat, session: str, after: int, sent: Mapping[str, int] | None = None) -> None:
        """Subscribe to a chat after this seq of this session, and after those in `sent` of later ones; replaces the key's
        subscription."""
        self.unfollow(chat.key)
        self._subscriptions[chat.key] = Subscription(chat, session, after, sent)
        self._watchers[chat.key] = watcher = partial(self._notice, chat.key)
        chat.watch(watcher, relayed=self._relayed)
        self._ready[chat.key] = None
        self._wake.set()

    def unfollow(self, key: str) -> None:
        """End the key's subscription, if any."""
        subscription = self._subscriptions.pop(key, None)
        if subscription is not None:
            subscription.chat.unwatch(self._watchers.pop(key))
            self._ready.pop(key, None)

    def unfollow_all(self) -> None:
        """End all subscriptions."""
        for key in tuple(self._subscriptions):
            self.unfollow(key)

    async def until_sent(self) -> None:
        """Return once everything that waited for the client has been sent."""
        # There is no single event to wait for: this depends on all subscriptions.
        while self._answers or any(subscription.has_news for subscription in self._subscriptions.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def write(self) -> None:
        """Send frames until the connection ends."""
        try:
            while True:
                self._wake.clear()
                if not await self._send_round():
                    await self._wake.wait()
        except (ClientConnectionError, ConnectionError):
            # The client is gone. The reader notices it too, and ends the connection.
            return

    async def _send_round(self) -> bool:
        """Send all waiting answers, then one portion of each ready subscription. Return False if nothing is left."""
        await self._send_answers()
        ready, self._ready = self._ready, {}
        for key in ready:
            subscription = self._subscriptions.get(key)
            if subscription is not None and await self._send_portion(key, subscription):
                self._ready[key] = None  # there may be more
        return bool(self._ready or self._answers)

    async def _send_portion(self, key: str, subscription: Subscription) -> bool:
        """Send the next frames of a subscription; return False if there were none."""
        try:
            portion = await subscription.take()
        except (SessionsError, OSError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not is_exhaustion(error):
                raise
            if self._subscriptions.get(key) is not subscription:
                return True
            # The other subscriptions continue; this one would fail at the same place again.
            self.unfollow(key)
            sentence = f"The subscription to {key} ends: {sentence_of(error)}"
            self.answer(frames.error("storage_failed", sentence, session=key))
            return True
        for outgoing in portion:
            if self._subscriptions.get(key) is not subscription:  # the client ended or replaced it meanwhile
                break
            await self._send_outgoing(outgoing)
            changes = outgoing.event is not None and frames.is_of_kind(outgoing.data, _SETTINGS)
            if changes and subscription.chat.is_open:
                self.send_settings(subscription.chat)
            await self._send_answers()
        if not portion and subscription.chat.dropped and self._subscriptions.get(key) is subscription:
            self.unfollow(key)
            self._moved(key, subscription.positions)
        return bool(portion)

    async def _send_outgoing(self, outgoing: Outgoing) -> None:
        if outgoing.event is not None:
            for accepted in self._promised.pop(outgoing.event, ()):
                await self._send(accepted)
        await self._send(outgoing.data)

    @property
    def _is_full(self) -> bool:
        return len(self._answers) >= WAITING_ANSWERS or self._waiting >= WAITING_BYTES

    async def _send_answers(self) -> None:
        while self._answers:
            data = self._answers.popleft()
            await self._send(data)
            self._waiting -= len(data)
            if not self._is_full:
                self._has_room.set()

    async def _send(self, data: bytes) -> None:
        await self._socket.send_frame(data, WSMsgType.TEXT)

    def _forget(self, session: str, seq: int, accepted: bytes) -> None:
        promised = self._promised.get((session, seq), [])
        if accepted in promised:
            promised.remove(accepted)
        if not promised:
            self._promised.pop((session, seq), None)

    def _notice(self, key: str) -> None:
        """Wake the writer, because a subscription may have something to send."""
        self._ready[key] = None
        if not self._wake.is_set():
            self._wake.set()
        elif (subscription := self._subscriptions.get(key)) is not None and subscription.is_flooded:
            # The writer was woken before and has not run since: the client does not read.
            self._close(TRY_AGAIN_LATER, "too much is unread; reconnect with `after`")
