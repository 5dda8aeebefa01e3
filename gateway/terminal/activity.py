"""The current activity between a message and its answer, for the line above the prompt."""

from __future__ import annotations

import math
from typing import assert_never

from gateway.protocol.client_frames import Delta, Paused, Refusal, Settings
from gateway.support.printable import one_line
from gateway.terminal.client.signals import Connected, Disconnected, Happened, Postponed, Signal
from sessions.events.events import ModelReplied, RequestedCall, ToolCalled, ToolReturned, TurnEnded, TurnResumed, TurnStarted

TOOL_CHARACTERS = 60
REASON_CHARACTERS = 60


class Activity:
    """The state of the connection and of the running turn, folded from signals.

    `now` is in seconds of a monotonic clock.
    """

    def __init__(self) -> None:
        self._connected = True
        self._doing = ""
        self._pause: Paused | None = None
        self._again = 0.0
        """The time at which a refused request is sent again."""
        self._since = 0.0
        self._calls: dict[int, tuple[RequestedCall, ...]] = {}

    def fold(self, signal: Signal, now: float) -> None:
        """Update the state with a signal."""
        match signal:
            case Connected():
                self._connected, self._since = True, now
            case Disconnected():
                self._connected, self._since = False, now
            case Delta():
                self._pause = None
                self._now_doing("writing", now)
            case Paused():
                self._pause, self._again = signal, now + signal.seconds
            case Postponed() | Refusal() | Settings():
                pass
            case Happened():
                self._event(signal, now)
            case _:
                assert_never(signal)

    def sentence(self, now: float, *, running: int, waiting: int, unsent: int) -> str | None:
        """Return a description of the activity with its duration, or None if idle.

        Args:
            running: The number of running turns.
            waiting: The messages that the gateway has accepted and not yet started.
            unsent: The messages that the gateway has not acknowledged.
        """
        seconds = int(now - self._since)
        spent = f" · {seconds} s" if seconds else ""
        queue = (f" · {waiting} waiting" if waiting else "") + (f" · {unsent} to send" if unsent else "")
        if not self._connected:
            return f"not connected, reconnecting{spent}{queue}"
        if running and self._pause is not None and now < self._again:
            reason = one_line(self._pause.reason, REASON_CHARACTERS)
            return (
                f"the provider is not accepting requests ({reason}); trying again in {math.ceil(self._again - now)} s{queue}"
            )
        if running:
            return (self._doing or "thinking") + spent + queue
        return "waiting for the gateway" if waiting or unsent else None

    def _event(self, happened: Happened, now: float) -> None:
        seq, event = happened.recorded.seq, happened.recorded.event
        if self._pause is not None and happened.recorded.turn == self._pause.turn:
            self._pause = None
        match event:
            case TurnStarted() | TurnResumed():
                self._now_doing("thinking", now)
            case ModelReplied(calls=calls):
                self._calls = {seq: calls}
            case ToolCalled(call=ref):
                calls = self._calls.get(ref.of, ())
                tool = calls[ref.index].tool if ref.index < len(calls) else "a tool"
                self._doing, self._since = f"running {one_line(tool, TOOL_CHARACTERS)}", now
            case ToolReturned():
                self._now_doing("thinking", now)
            case TurnEnded():
                self._now_doing("", now)
            case _:
                # The other kinds, those of a newer gateway included, change nothing of this.
                pass

    def _now_doing(self, doing: str, now: float) -> None:
        if doing != self._doing:
            self._doing, self._since = doing, now
