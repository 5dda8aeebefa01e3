"""Metrics of one session, derived from the events that its recorder appends. The turn itself knows nothing of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter

import structlog

from gateway.metrics.counters import Counters
from sessions.events.events import (
    CallRef,
    CommandAnswered,
    ContextCompacted,
    Failure,
    MemoryFlushed,
    MessageReceived,
    ModelReplied,
    PluginFailed,
    Recorded,
    ReplyDelivered,
    RequestRepeated,
    RequestSent,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnJoined,
    TurnResumed,
    TurnStarted,
)
from sessions.state.reducer import replied_as
from sessions.store.recorder import Recorder

log = structlog.get_logger("exuvia")


class SessionMeter:
    """The metrics of one open session.

    What must not be counted twice after a failure of the disk is counted once it is durable. `last_error` is that of the
    newest turn since the session was opened; None after a successful one.
    """

    def __init__(self, recorder: Recorder, counters: Counters, *, clock: Callable[[], float] = perf_counter) -> None:
        self.last_error: Failure | None = None
        self._recorder = recorder
        self._counters = counters
        self._clock = clock
        self._received: dict[int, float] = {}
        self._undurable: deque[tuple[int, MessageReceived | CommandAnswered | TurnEnded, float]] = deque()
        """Events that are counted once durable, each with its seq and the time from which its duration is measured."""
        self._calls: dict[CallRef, float] = {}
        self._asked = self._began = self._last = 0.0
        self._awaits_text = False
        """The model was asked and nothing of its answer has come yet."""
        recorder.on_event(self._appended)
        recorder.on_durable(self._progressed)

    def first_text_observer(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Wrap `notify`, which is called with each piece of an answer, to measure the time to the first one."""

        def observed() -> None:
            if self._awaits_text:
                self._awaits_text = False
                self._counters.steps["first_text"].observe(self._clock() - self._asked)
            notify()

        return observed

    def _appended(self, recorded: Recorded) -> None:  # noqa: PLR0912 - one branch per kind of event
        now = self._clock()
        counters = self._counters
        match recorded.event:
            case MessageReceived() as event:
                self._received[recorded.seq] = now
                self._undurable.append((recorded.seq, event, now))
            case TurnStarted() as event:
                self._begin(now)
                self._take(event.takes, now)
            case TurnJoined() as event:
                self._take(event.takes, now)
            case TurnResumed():
                self._begin(now)
            case RequestSent():
                self._asked, self._awaits_text = now, True
            case ModelReplied() as event:
                self._replied(event, now)
            case ToolCalled() as event:
                self._calls[event.call] = now
            case ToolReturned() as event:
                self._returned(event, now)
            case TurnEnded() as event:
                self._awaits_text = False
                self._calls.clear()
                self._undurable.append((recorded.seq, event, self._last))
            case CommandAnswered() as event:
                self._received.pop(event.answers, None)
                self._undurable.append((recorded.seq, event, now))
            case MemoryFlushed(model=model, usage=usage) if usage is not None:
                counters.count_spent("flush", model, usage)
            case ContextCompacted(model=model, usage=usage) if usage is not None:
                counters.count_spent("summary", model, usage)
            case RequestRepeated(model=model, usage=usage) if usage is not None:
                counters.count_spent("what_if", model, usage)
            case ReplyDelivered() as event:
                counters.count_reply_delivery(event.channel, recorded.at, event.failed)
            case PluginFailed() as event:
                counters.plugin_failures.add(event.plugin, event.hook)
            case _:
                pass

    def _begin(self, now: float) -> None:
        self._began = self._last = now

    def _take(self, takes: tuple[int, ...], now: float) -> None:
        for seq in takes:
            if (received := self._received.pop(seq, None)) is not None:  # else it came before a restart
                self._counters.steps["waiting"].observe(now - received)

    def _replied(self, event: ModelReplied, now: float) -> None:
        self._last, self._awaits_text = now, False
        counters = self._counters
        if event.stop != "cancelled":
            counters.steps["answer"].observe(now - self._asked)
        if (usage := event.usage) is not None:
            counters.count_reply("answer", replied_as(self._recorder.transcript, event), event.model, usage)

    def _returned(self, event: ToolReturned, now: float) -> None:
        self._last = now
        self._counters.tool_calls.add(event.outcome)
        if (called := self._calls.pop(event.call, None)) is not None:
            self._counters.steps["tool"].observe(now - called)

    def _progressed(self) -> None:
        if (failure := self._recorder.failure) is not None:
            self._counters.storage_failures.add()
            self._counters.storage_failed = self._clock(), str(failure)
            return
        if self._undurable:
            now, durable = self._clock(), self._recorder.durable
            while self._undurable and self._undurable[0][0] <= durable:
                _, event, since = self._undurable.popleft()
                match event:
                    case MessageReceived():
                        self._counters.messages.add()
                        self._counters.steps["durable"].observe(now - since)
                    case CommandAnswered():
                        self._counters.commands.add("failed" if event.failed else "answered")
                    case TurnEnded():
                        self._ended(event, now, since)

    def _ended(self, event: TurnEnded, now: float, last: float) -> None:
        self.last_error = event.error
        counters = self._counters
        counters.turns.add(event.outcome)
        if event.outcome in ("replied", "silent", "failed"):  # cancelled and abandoned turns say nothing about the gateway
            counters.ended.append((now, event.error.code if event.error is not None else ""))
        if event.error is not None:
            counters.turn_errors.add(event.error.code)
            session, error = self._recorder.transcript.session, event.error
            log.warning("turn_failed", session=session, code=error.code, reason=error.sentence)
        if event.outcome != "abandoned":  # an abandoned turn did not run
            counters.steps["end"].observe(now - last)
            counters.turn_seconds.observe(now - self._began)
