"""Subscriptions of clients to sessions: cursors over a chat's journals, not queues, so a slow reader costs no memory.

A subscription follows one key. It has a cursor in each session that it still follows, oldest first: after `/new` the old
session may still be finishing a turn. Every event of a session is sent once and in order; pieces of an answer are sent at
the reader's pace, joined where it is slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gateway.conversations.routing.chat import Chat
from gateway.conversations.turn.live_output import LiveOutput
from gateway.conversations.turn.streaming_reply import Pause, StreamedText, StreamingReply
from gateway.protocol import frames
from sessions.events.codec import seq_of
from sessions.events.errors import StorageFailed

PASS_BYTES = 256 * 1024
"""Bytes of events that are sent of one session before it is the others' turn."""

UNREAD_LIMIT = 4 * 1024 * 1024
"""Bytes that a client may leave unread once it has caught up."""

HISTORY_BYTES = 1024 * 1024
"""Bytes of events in one page of history."""


async def page_before(chat: Chat, session: str, before: int, limit: int) -> list[bytes]:
    """Return up to `limit` lines before a seq, oldest first: at least one, and otherwise at most HISTORY_BYTES."""
    wanted = min(limit, before - 1)
    while wanted > 0:
        first = before - wanted
        lines = (await chat.lines(session, first, limit=HISTORY_BYTES))[:wanted]
        if len(lines) == wanted or wanted == 1:
            return lines
        wanted = max(1, min(wanted // 2, len(lines)))
    return []


class Outgoing(msgspec.Struct, frozen=True):
    """A frame for the client; `event` is the session and seq of the event that it carries, if any."""

    data: bytes
    event: tuple[str, int] | None = None


class Cursor:
    """The position of a subscription in one session: `after` is the last seq that was sent."""

    def __init__(self, chat: Chat, session: str, after: int) -> None:
        self.session = session
        self.after = after
        self._read_to: int | None = None
        """The offset in the journal up to which events were sent, once the client has caught up."""
        self._chat = chat
        self._prefix = frames.event_prefix(chat.key, session)
        self._reply: StreamingReply | None = None
        self._piece = self._thought = 0
        """The numbers of pieces of its text and of its reasoning that were sent."""
        self._output: LiveOutput | None = None
        self._output_end = 0
        """The offset up to which that output was sent."""
        self._pause: Pause | None = None

    @property
    def has_news(self) -> bool:
        """True if there is something to send."""
        return (
            (self._chat.head(self.session) or 0) > self.after
            or self._has_pieces()
            or self._has_output()
            or self._new_pause() is not None
        )

    @property
    def is_done(self) -> bool:
        """True if the session has ended and all of it was sent."""
        return not self.has_news and self._chat.has_ended(self.session)

    def unread(self) -> int:
        """Return the bytes of unsent events; 0 until the client has caught up for the first time."""
        end = self._chat.durable_bytes(self.session)
        return end - self._read_to if end is not None and self._read_to is not None else 0

    async def take(self) -> list[Outgoing]:
        """Return the next frames: pieces of an answer or of a tool's output first, which precede the event that confirms
        them, then events.

        Raises:
            SessionsError: The log cannot be read.
        """
        taken = self._pauses() + self._pieces() + self._outputs()
        lines = self._chat.recent(self.session, self.after)
        if lines is None:
            lines = await self._chat.lines(self.session, self.after + 1, limit=PASS_BYTES)
        if not lines and not taken:
            raise StorageFailed(f"Event {self.after + 1} of {self.session} was written, but is no longer in the log.")
        taken += self._events(lines)
        if self.after >= (self._chat.head(self.session) or 0):
            self._read_to = self._chat.durable_bytes(self.session)
        elif self._read_to is not None:
            self._read_to += sum(map(len, lines))
        return taken

    def _events(self, lines: Sequence[bytes]) -> list[Outgoing]:
        taken = []
        for line in lines:
            seq = seq_of(line)
            if seq > self.after:
                taken.append(Outgoing(frames.event(self._prefix, line), (self.session, seq)))
                self.after = seq
        return taken

    def _live(self) -> StreamingReply | None:
        conversation = self._chat.conversation(self.session)
        reply = conversation.streaming.current if conversation else None
        if reply is None or self.after < reply.after:
            return None
        return None if reply.confirmed is not None and self.after >= reply.confirmed else reply

    def _new_pause(self) -> Pause | None:
        conversation = self._chat.conversation(self.session)
        pause = conversation.streaming.pause if conversation else None
        return None if pause is None or pause is self._pause or self.after < pause.after else pause

    def _pauses(self) -> list[Outgoing]:
        if (pause := self._new_pause()) is None:
            return []
        self._pause = pause
        place = {"session": self._chat.key, "session_id": self.session, "turn": pause.turn}
        return [Outgoing(frames.frame("paused", **place, seconds=pause.seconds_left(), reason=pause.reason))]

    def _has_pieces(self) -> bool:
        reply = self._live()
        if reply is None:
            return False
        sent, reasoned = (self._piece, self._thought) if reply is self._reply else (0, 0)
        return sent < len(reply.pieces) or reasoned < len(reply.reasoning.pieces)

    def _pieces(self) -> list[Outgoing]:
        reply = self._live()
        if reply is None:
            return []
        taken = []
        if reply is not self._reply:
            if self._reply is not None and self._piece < len(self._reply.pieces):
                taken.append(self._gap())
            self._reply, self._piece, self._thought = reply, 0, 0
        if self._thought < len(reply.reasoning.pieces):
            taken.append(self._preview("reasoning", reply, reply.reasoning, self._thought))
            self._thought = len(reply.reasoning.pieces)
        if self._piece < len(reply.pieces):
            taken.append(self._preview("delta", reply, reply, self._piece))
            self._piece = len(reply.pieces)
        return taken

    def _preview(self, kind: str, reply: StreamingReply, streamed: StreamedText, first: int) -> Outgoing:
        """Return a frame with the pieces of a text from `first` on."""
        data = frames.frame(
            kind,
            session=self._chat.key,
            session_id=self.session,
            turn=reply.turn,
            reply=reply.reply,
            offset=streamed.offsets[first],
            text="".join(streamed.pieces[first:]),
        )
        return Outgoing(data)

    def _running(self) -> LiveOutput | None:
        conversation = self._chat.conversation(self.session)
        output = conversation.streaming.output if conversation else None
        return None if output is None or self.after < output.after else output

    def _has_output(self) -> bool:
        output = self._running()
        return output is not None and output.end > (self._output_end if output is self._output else 0)

    def _outputs(self) -> list[Outgoing]:
        if not self._has_output() or (output := self._running()) is None:
            return []
        if output is not self._output:
            self._output, self._output_end = output, 0
        offset, text = output.since(self._output_end)
        taken = [self._gap()] if offset > self._output_end > 0 else []
        place = {"session": self._chat.key, "session_id": self.session, "turn": output.turn}
        taken.append(Outgoing(frames.frame("output", **place, call=output.call, offset=offset, text=text)))
        self._output_end = output.end
        return taken

    def _gap(self) -> Outgoing:
        return Outgoing(frames.frame("gap", session=self._chat.key, session_id=self.session, after=self.after))


class Subscription:
    """The subscription of one client to one chat. `sent` are the last events that were sent of later sessions before, by
    another gateway."""

    def __init__(self, chat: Chat, session: str, after: int, sent: Mapping[str, int] | None = None) -> None:
        self.chat = chat
        self.cursors = [Cursor(chat, session, after)]
        self._begun = {session}
        self._sent = sent or {}

    @property
    def positions(self) -> dict[str, int]:
        """The last seq that was sent of each session that is still followed, the oldest first."""
        return {cursor.session: cursor.after for cursor in self.cursors}

    @property
    def has_news(self) -> bool:
        """True if there is something to send."""
        return self._next() is not None

    @property
    def is_flooded(self) -> bool:
        """True if the client had caught up and now leaves too much unread."""
        return sum(cursor.unread() for cursor in self.cursors) > UNREAD_LIMIT

    async def take(self) -> list[Outgoing]:
        """Return the next frames of the oldest session that has some; empty if none has."""
        cursor = self._next()
        return await cursor.take() if cursor is not None else []

    def _next(self) -> Cursor | None:
        """Return the oldest cursor with something to send.

        Cursors of ended sessions are dropped. Once the newest session has nothing to send, its successor is followed too.
        """
        newest = self.cursors[-1]
        if len(self.cursors) > 1:
            self.cursors = [cursor for cursor in self.cursors if cursor is newest or not cursor.is_done]
        for cursor in self.cursors:
            if cursor.has_news:
                return cursor
        while (session := self.chat.successor(newest.session)) and session not in self._begun:
            self._begun.add(session)
            newest = Cursor(self.chat, session, self._sent.get(session, 0))
            self.cursors.append(newest)
            if newest.has_news:
                return newest
        return None
