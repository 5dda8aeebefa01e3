"""The answer and the tool output that are being streamed: transient state, not events. Subscribers read them at their own
pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from gateway.conversations.turn.live_output import LiveOutput
from sessions.events.events import CallRef

SHORTEST_PAUSE = 1.0
"""Seconds of the shortest pause that is shown."""


@dataclass(slots=True, eq=False)
class StreamingReply:
    """The pieces of one model call's text. `after` is the last durable seq when it began: only clients that have seen
    that event read it."""

    turn: int
    reply: int
    after: int
    pieces: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=lambda: [0])
    """The offset in code points at which each piece begins, and that of the end."""
    ended: bool = False
    confirmed: int | None = None
    """The seq of the event that holds the whole text."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Pause(msgspec.Struct, frozen=True, eq=False):
    """A pause before a refused request is sent again.

    `until` is a time of the event loop, `after` the seq of the request's event: the pause is shown to clients that have seen
    it.
    """

    turn: int
    after: int
    until: float
    reason: str

    def seconds_left(self) -> float:
        return round(max(0.0, self.until - asyncio.get_running_loop().time()), 1)


class StreamingReplies:
    """The streaming answer and tool output of one session.

    `answered` is called after each piece of an answer, `changed` after everything else that subscribers can read.
    """

    def __init__(self, answered: Callable[[], None], changed: Callable[[], None]) -> None:
        self.current: StreamingReply | None = None
        self.pause: Pause | None = None
        self.output: LiveOutput | None = None
        self._answered = answered
        self._changed = changed

    def begin(self, turn: int, reply: int, after: int) -> None:
        """Start a model call; the pieces of the previous call are no longer offered.

        A client reads the pieces only after the event with the previous call's text; otherwise it would take that text for
        discarded.
        """
        if self.current is not None:
            after = max(after, self.current.after, self.current.confirmed or 0)
        self.current = StreamingReply(turn, reply, after)
        self.pause = None

    def wait(self, after: int, seconds: float, reason: str) -> None:
        """Show that the request of this call was refused and will be sent again after a pause."""
        if self.current is not None and seconds >= SHORTEST_PAUSE:
            until = asyncio.get_running_loop().time() + seconds
            self.pause = Pause(self.current.turn, after, until, reason)
            self._changed()

    def add(self, text: str) -> None:
        reply = self.current
        if reply is None or reply.ended:
            return
        self.pause = None
        reply.pieces.append(text)
        reply.offsets.append(reply.offsets[-1] + len(text))
        self._answered()

    def end(self, confirmed: int | None = None) -> str:
        """End the call and return its text; `confirmed` is the seq of the event with the text, if it was recorded. The
        pieces stay readable until the next call."""
        self.pause = None
        if self.current is None or self.current.ended:
            return ""
        self.current.ended = True
        self.current.confirmed = confirmed
        return self.current.text

    def forget(self) -> None:
        """End the turn: pieces that no event confirmed are no longer offered."""
        if self.current is not None and self.current.confirmed is None:
            self.current = None

    def begin_output(self, turn: int, call: CallRef, after: int) -> LiveOutput:
        """Return the output of a tool call that begins; that of the previous call is no longer offered."""
        self.output = LiveOutput(turn, call, after, self._changed)
        return self.output

    def end_output(self) -> None:
        """End the output of the running call, which has a result now."""
        if self.output is not None:
            self.output.close()
            self.output = None
