"""The answer, its reasoning and the tool output that are being streamed: transient state, not events. Subscribers read them
at their own pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from gateway.conversations.turn.live_output import LiveOutput
from sessions.events.events import CallRef

SHORTEST_PAUSE = 1.0
"""Seconds of the shortest pause that is shown."""


class StreamedText:
    """The pieces of a text. `offsets` are those in code points at which each piece begins, and that of the end."""

    __slots__ = ("offsets", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.offsets = [0]

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def add(self, text: str) -> None:
        """Add a piece."""
        self.pieces.append(text)
        self.offsets.append(self.offsets[-1] + len(text))


class StreamingReply(StreamedText):
    """The pieces of one model call's text. `after` is the last durable seq when it began: only clients that have seen
    that event read it."""

    __slots__ = ("_reasoned", "_reasons_since", "after", "confirmed", "ended", "reasoning", "reply", "turn")

    def __init__(self, turn: int, reply: int, after: int) -> None:
        super().__init__()
        self.turn = turn
        self.reply = reply
        self.after = after
        self.reasoning = StreamedText()
        self.ended = False
        self.confirmed: int | None = None
        """The seq of the event that holds the whole text."""
        self._reasons_since: float | None = None
        self._reasoned = 0.0

    @property
    def reasoning_millis(self) -> int:
        """The time between the first piece of reasoning and what followed it, in milliseconds."""
        return round(self._reasoned * 1000)

    def add_reasoning(self, text: str) -> None:
        """Add a piece of reasoning."""
        if self._reasons_since is None:
            self._reasons_since = asyncio.get_running_loop().time()
        self.reasoning.add(text)

    def end_reasoning(self) -> None:
        """Something other than reasoning follows."""
        if self._reasons_since is not None:
            self._reasoned += asyncio.get_running_loop().time() - self._reasons_since
            self._reasons_since = None


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

    `answered` is called after each piece of an answer's text, `changed` after everything else that subscribers can read.
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
        """Add a piece of the current call's text."""
        reply = self.current
        if reply is None or reply.ended:
            return
        self.pause = None
        reply.end_reasoning()
        reply.add(text)
        self._answered()

    def add_reasoning(self, text: str) -> None:
        """Add a piece of the current call's reasoning."""
        reply = self.current
        if reply is None or reply.ended:
            return
        self.pause = None
        reply.add_reasoning(text)
        self._changed()

    def end(self, confirmed: int | None = None) -> str:
        """End the call and return its text; `confirmed` is the seq of the event with the text, if it was recorded. The
        pieces stay readable until the next call."""
        self.pause = None
        if self.current is None or self.current.ended:
            return ""
        self.current.ended = True
        self.current.end_reasoning()
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
