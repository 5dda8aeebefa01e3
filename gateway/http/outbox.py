"""The outbox: everything that goes to one client, sent by one coroutine at that client's own pace.

Answers go first, then what the subscriptions hold. An `accepted` always precedes the event that it speaks of. Waiting costs
nobody but this client: subscriptions are cursors, and the reader bounds the answers that may wait, in number and bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aiohttp import ClientConnectionError, WSMsgType, web

from gateway.conversations.routing.chat import Chat
from gateway.http.subscribers import Outgoing, Subscription
from gateway.protocol import frames
from gateway.support.errors import sentence_of
from sessions.events.errors import SessionsError

WAITING_ANSWERS = 256
"""Answers that may wait for a client before its next frame is read."""

WAITING_BYTES = 4 * 1024 * 1024
"""Bytes of answers that may wait so."""

TRY_AGAIN_LATER = 1013
"""Close code for a client that leaves too much unread."""


class Outbox:
    """One client's outgoing side. `close` is what ends the connection with a code and a reason."""

    def __init__(self, socket: web.WebSocketResponse, close: Callable[[int, str], None]) -> None:
        self._socket = socket
        self._close = close
        self._answers: deque[bytes] = deque()
        self._waiting = 0
        self._owed: dict[tuple[str, int], list[bytes]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def room(self) -> None:
        """Return once another answer may be added."""
        await self._room.wait()

    def answer(self, data: bytes) -> None:
        """Send a frame as soon as the client reads."""
        self._answers.append(data)
        self._waiting += len(data)
        if self._is_full:
            self._room.clear()
        self._wake.set()

    def owe(self, session: str, seq: int, accepted: bytes) -> None:
        """Promise an `accepted`, which then precedes the event with this seq."""
        self._owed.setdefault((session, seq), []).append(accepted)

    def settle(self, session: str, seq: int, accepted: bytes) -> None:
        """The promised `accepted` may go now, if it did not go with its event already."""
        if accepted in self._owed.get((session, seq), ()):
            self._forget(session, seq, accepted)
            self.answer(accepted)

    def withdraw(self, session: str, seq: int, accepted: bytes, failure: bytes) -> None:
        """What was promised failed: the client is told so instead."""
        self._forget(session, seq, accepted)
        self.answer(failure)

    def tell_settings(self, chat: Chat, frame_id: str | None = None) -> None:
        """Say how a chat's current session is set, as an answer to the frame with this id if one asked."""
        if (current := chat.current) is not None:
            settings = {"queue": current.inbox.mode, "verbose": current.verbose, "title": current.title}
            ids = {"id": frame_id} if frame_id is not None else {}
            self.answer(frames.frame("settings", **ids, session=chat.key, session_id=current.session, **settings))

    def follows(self, key: str) -> bool:
        """Whether there is a subscription for a key."""
        return key in self._subscriptions

    def follow(self, chat: Chat, session: str, after: int) -> None:
        """Subscribe to a chat, from the event after this seq of this session; replaces the key's subscription."""
        self.unfollow(chat.key)
        self._subscriptions[chat.key] = Subscription(chat, session, after)
        chat.watch(self._notice)
        self._wake.set()

    def unfollow(self, key: str) -> None:
        """End the key's subscription, if there is one."""
        subscription = self._subscriptions.pop(key, None)
        if subscription is not None:
            subscription.chat.unwatch(self._notice)

    def unfollow_all(self) -> None:
        """End all subscriptions."""
        for key in tuple(self._subscriptions):
            self.unfollow(key)

    async def until_sent(self) -> None:
        """Return once nothing waits for the client any more."""
        # What waits is a fact of all subscriptions, which no single event announces.
        while self._answers or any(subscription.has_news for subscription in self._subscriptions.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def write(self) -> None:
        """Send until the connection ends."""
        try:
            while True:
                self._wake.clear()
                if not await self._pass():
                    await self._wake.wait()
        except (ClientConnectionError, ConnectionError, RuntimeError):
            # The peer is gone, which the reader is told as well; it ends the connection.
            return

    async def _pass(self) -> bool:
        """Send what is there: all answers, then one portion of each subscription. False if there was nothing."""
        await self._send_answers()
        sent = False
        for key, subscription in tuple(self._subscriptions.items()):
            sent |= await self._send_portion(key, subscription)
        return sent or bool(self._answers)

    async def _send_portion(self, key: str, subscription: Subscription) -> bool:
        """Send what is next of a subscription; False if nothing was."""
        try:
            portion = await subscription.take()
        except (SessionsError, OSError) as error:
            if self._subscriptions.get(key) is not subscription:
                return True
            # The others go on; this one would meet the same place again.
            self.unfollow(key)
            sentence = f"The subscription to {key} ends: {sentence_of(error)}"
            self.answer(frames.error("storage_failed", sentence, session=key))
            return True
        for outgoing in portion:
            if self._subscriptions.get(key) is not subscription:  # ended or replaced meanwhile, and the client was told so
                break
            await self._send_outgoing(outgoing)
            if outgoing.event is not None and frames.is_of_kind(outgoing.data, "setting_changed"):
                self.tell_settings(subscription.chat)
            await self._send_answers()
        return bool(portion)

    async def _send_outgoing(self, outgoing: Outgoing) -> None:
        if outgoing.event is not None:
            for accepted in self._owed.pop(outgoing.event, ()):
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
                self._room.set()

    async def _send(self, data: bytes) -> None:
        await self._socket.send_frame(data, WSMsgType.TEXT)

    def _forget(self, session: str, seq: int, accepted: bytes) -> None:
        owed = self._owed.get((session, seq), [])
        if accepted in owed:
            owed.remove(accepted)
        if not owed:
            self._owed.pop((session, seq), None)

    def _notice(self) -> None:
        """A chat has news."""
        if not self._wake.is_set():
            self._wake.set()
        elif any(subscription.is_flooded for subscription in self._subscriptions.values()):
            # The writer was woken before and has not come round since: the client does not read.
            self._close(TRY_AGAIN_LATER, "too much is unread; come back with `after`")
