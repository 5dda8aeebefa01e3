"""The tool calls of a session as the terminal shows them: the end of the running one's output, and finished ones in full."""

from __future__ import annotations

from collections import deque

import msgspec

from gateway.protocol.client_frames import Output
from gateway.support.printable import without_escapes
from sessions.events.events import (
    CallRef,
    Event,
    ModelReplied,
    RequestedCall,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UnknownEvent,
)

KEPT = 50
"""Finished calls that can be shown in full."""

OUTPUT_CHARACTERS = 16_000
"""Characters of a running tool's output that are kept."""

TAIL_LINES = 6
"""Lines of a running tool's output that are shown."""


class FinishedCall(msgspec.Struct, frozen=True):
    """A call and its result; `call` is None if its request was not seen."""

    call: RequestedCall | None
    result: ToolReturned


class ShownCalls:
    """The calls of one session, computed from its events and from the output of running tools."""

    def __init__(self) -> None:
        self._requested: dict[CallRef, RequestedCall] = {}
        self._running: CallRef | None = None
        self._output = ""
        self._end = 0
        """The offset of the end of `_output`, in code points."""
        self._finished: deque[FinishedCall] = deque(maxlen=KEPT)
        self._unfolded = 0
        """The number of calls that were shown in full since the last one finished."""

    @property
    def running(self) -> bool:
        """True while a tool runs."""
        return self._running is not None

    def event(self, seq: int, event: Event | UnknownEvent) -> FinishedCall | None:
        """Handle an event; return the call that it finishes."""
        match event:
            case ModelReplied(calls=calls):
                self._requested = {CallRef(of=seq, index=index): call for index, call in enumerate(calls)}
            case ToolCalled(call=ref):
                self._running, self._output, self._end = ref, "", 0
            case ToolReturned(call=ref):
                self._running, self._unfolded = None, 0
                self._finished.appendleft(FinishedCall(self._requested.get(ref), event))
                return self._finished[0]
            case TurnEnded():
                self._running = None
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

    def tail(self) -> str:
        """Return the last lines of the running tool's output, as printable text."""
        lines = without_escapes(self._output).rstrip("\n").split("\n")
        return "\n".join(lines[-TAIL_LINES:]) if self.running else ""

    def next_unfolded(self) -> FinishedCall | None:
        """Return the last finished call; when called again, the one before it. None if there is none left."""
        if self._unfolded >= len(self._finished):
            return None
        self._unfolded += 1
        return self._finished[self._unfolded - 1]
