"""The tool calls and the reasoning of a session as the terminal shows them: the end of what a running tool writes or a model
thinks, and finished ones in full."""

from __future__ import annotations

import time
from collections import deque

import msgspec

from gateway.protocol.client_frames import Output, Reasoning
from gateway.support.printable import without_escapes
from sessions.events.events import (
    CallRef,
    Event,
    ModelReplied,
    ReplyImported,
    RequestedCall,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UnknownEvent,
)

KEPT = 50
"""Finished calls and thoughts that can be shown in full."""

OUTPUT_CHARACTERS = 16_000
"""Characters of a running tool's output that are kept."""

TAIL_LINES = 6
"""Lines of a running tool's output that are shown."""


class FinishedCall(msgspec.Struct, frozen=True):
    """A call and its result; `call` is None if its request was not seen."""

    call: RequestedCall | None
    result: ToolReturned


class FinishedThought(msgspec.Struct, frozen=True):
    """The reasoning of a reply, with the milliseconds that it took."""

    text: str
    millis: int


class ShownCalls:
    """The calls of one session, computed from its events and from the output of running tools."""

    def __init__(self) -> None:
        self._requested: dict[CallRef, RequestedCall] = {}
        self._running: CallRef | None = None
        self._output = ""
        self._end = 0
        """The offset of the end of `_output`, in code points."""
        self._thinking: tuple[int, int] | None = None
        """The turn and reply whose reasoning is `_output`."""
        self._since = 0.0
        """The time at which it began."""
        self._finished: deque[FinishedCall | FinishedThought] = deque(maxlen=KEPT)
        self._unfolded = 0
        """The number of calls and thoughts that were shown in full since the last one finished."""

    @property
    def running(self) -> bool:
        """True while a tool runs or a model reasons."""
        return self._running is not None or self._thinking is not None

    def event(self, seq: int, event: Event | UnknownEvent) -> FinishedCall | None:
        """Handle an event; return the call that it finishes."""
        match event:
            case ModelReplied(calls=calls):
                self._thinking = None
                if event.reasoning:
                    self._finished.appendleft(FinishedThought(event.reasoning, event.reasoning_millis))
                    self._unfolded = 0
                self._requested = {CallRef(of=seq, index=index): call for index, call in enumerate(calls)}
            case ReplyImported(calls=calls) if calls:
                self._requested = {CallRef(of=seq, index=index): call for index, call in enumerate(calls)}
            case ToolCalled(call=ref):
                self._running, self._output, self._end = ref, "", 0
            case ToolReturned(call=ref):
                self._running, self._unfolded = None, 0
                finished = FinishedCall(self._requested.get(ref), event)
                self._finished.appendleft(finished)
                return finished
            case TurnEnded():
                self._running = self._thinking = None
            case _:
                # No other kind of event concerns tools.
                pass
        return None

    def output(self, frame: Output) -> None:
        """Add a piece of output. Repeated ones are ignored; an ellipsis marks where some were dropped."""
        new = frame.text[max(0, self._end - frame.offset) :]
        if frame.call == self._running and new:
            missing = "\n[…]\n" if frame.offset > self._end else ""
            self._output = (self._output + missing + new)[-OUTPUT_CHARACTERS:]
            self._end = frame.offset + len(frame.text)

    def reasoning(self, frame: Reasoning) -> None:
        """Add a piece of reasoning; another reply begins anew."""
        if self._thinking != (frame.turn, frame.reply):
            self._thinking, self._output, self._end = (frame.turn, frame.reply), "", 0
            self._since = time.monotonic()
        if new := frame.text[max(0, self._end - frame.offset) :]:
            self._output = (self._output + new)[-OUTPUT_CHARACTERS:]
            self._end = frame.offset + len(frame.text)

    def answering(self) -> int | None:
        """End the reasoning, because the answer has begun; return the milliseconds that it took, None if there was none."""
        if self._thinking is None:
            return None
        self._thinking = None
        return round((time.monotonic() - self._since) * 1000)

    def tail(self) -> str:
        """Return the last lines of the running tool's output, or of the reasoning, as printable text."""
        lines = without_escapes(self._output).rstrip("\n").split("\n")
        return "\n".join(lines[-TAIL_LINES:]) if self.running else ""

    def next_unfolded(self) -> FinishedCall | FinishedThought | None:
        """Return the last finished call or thought; when called again, the one before it. None if there is none left."""
        if self._unfolded >= len(self._finished):
            return None
        self._unfolded += 1
        return self._finished[self._unfolded - 1]
