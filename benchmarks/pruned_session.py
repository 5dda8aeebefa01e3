"""A session without a gateway process, whose requests are pruned, assembled and measured as in the gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.context.conversation_config import ConversationConfig
from gateway.conversations.context.pruning import Pruner
from plugins.api.pruning import PruningRules
from plugins.host.loading import load_plugins
from plugins.testing.contexts import ManualClock
from sessions.events.events import (
    CallRef,
    ContextCompacted,
    ContextPruned,
    Event,
    InstructionsSet,
    MessageReceived,
    ModelReplied,
    Recorded,
    RequestedCall,
    RequestSent,
    SessionOpened,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from sessions.events.pruning import Edit
from sessions.state.context import Context, Gauge, assemble, canonical
from sessions.state.transcript import Transcript
from sessions.store.protocols import START, Position
from sessions.store.recorder import Recorder

BEGAN = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)

COLD = timedelta(minutes=5)
"""The lifetime of a provider's cache after the last request."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A request: its estimated tokens, its bytes, the bytes that the provider has cached from the previous request, and the
    milliseconds of pruning, assembly and measurement."""

    tokens: int
    bytes: int
    repeated: int
    millis: float

    @property
    def fresh(self) -> float:
        """The tokens that are not in the provider's cache."""
        return self.tokens * (1 - self.repeated / self.bytes)


class _NullLog:
    """A log that discards all lines and never fails."""

    def __init__(self) -> None:
        self.end = self.durable = 0
        self._settled: Callable[[int], None] = lambda _: None

    def append(self, line: bytes, *, urgent: bool) -> None:
        self._settle()  # only the previous lines: the recorder has not registered this one yet
        self.end += len(line)
        if urgent:
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        self.durable = self.end
        self._settled(self.durable)

    def stamp(self) -> None:
        return None

    def on_commit(self, durable: Callable[[int], None], failed: object) -> None:
        self._settled = durable

    async def until_written(self) -> None:
        self._settle()

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        return []

    async def catch_up(self, after: Position) -> list[bytes]:
        return []

    async def close(self) -> None:
        return


class PrunedSession:
    """A session driven by messages, replies and tool results. `window` is in tokens; the caller may advance `clock`."""

    def __init__(self, rules: PruningRules, window: int) -> None:
        self.sent: list[Sent] = []
        self.edits: list[tuple[int, Edit]] = []
        """Each edit with the index of the request that it precedes."""
        self.clock = ManualClock(BEGAN)
        self.window = window
        self.settings = Settings(msgspec.structs.replace(load_config(None, environment={}, overrides={}), pruning=rules))
        self.config = ConversationConfig(self.settings, self.clock)
        self.recorder = Recorder(_NullLog(), START, Transcript(), self.clock.now)
        self.recorder.on_event(self._remember)
        self.hooks = load_plugins(())
        self._pruning = Pruner(self.recorder, self.hooks, self.config)
        self._gauge = Gauge()
        self._before: Context | None = None
        self._asked = BEGAN
        self._note(SessionOpened(format=1, session="20261121-030000-pruned", key="main", person="owner"))
        self._note(InstructionsSet(text="You are brief.", tools=(), notes=(), parameters={}))

    def hear(self, text: str) -> int:
        """Record a message and the start of its turn; return the first seq that a compaction must keep to retain it."""
        if self.recorder.transcript.open_turn is not None:
            self._note(TurnEnded(outcome="replied", millis=1))
        seq = self._note(
            MessageReceived(
                id="m", client="benchmark", sender="owner", channel="websocket", chat="private", text=text, attachments=()
            )
        )
        return self._note(TurnStarted(takes=(seq,), provider="benchmark", model="model", window=self.window, reserve=0))

    def reply(self, text: str, *calls: RequestedCall) -> list[CallRef]:
        """Record a reply and return its calls."""
        seq = self._note(
            ModelReplied(reply=1, model="model", text=text, calls=calls, stop="calls" if calls else "end", usage=None)
        )
        return [CallRef(of=seq, index=index) for index in range(len(calls))]

    def give(self, call: CallRef, output: str) -> None:
        """Record the result of a tool call."""
        self._note(ToolReturned(call=call, outcome="returned", output=output))

    def compact(self, keep_from: int, summary: str) -> None:
        """Replace everything before `keep_from` with a summary."""
        number = self.recorder.transcript.cut + 1
        self._note(
            ContextCompacted(
                compaction=number, keep_from=keep_from, summary=summary, by="benchmark", tokens_before=0, tokens_after=0
            )
        )

    async def send(self) -> Sent:
        """Prune, assemble and measure a request."""
        began = time.perf_counter()
        await self.shrink()
        context = assemble(self.recorder.transcript, self._before)
        measured = self._gauge.measure(context)
        millis = (time.perf_counter() - began) * 1000
        tokens = measured.units.total
        self._note(RequestSent(purpose="answer", sha256=measured.sha256, messages=len(context.messages), tokens=tokens))
        size, repeated = repeats(context, self._before)
        is_warm = self.clock.now() - self._asked < COLD
        self._before, self._asked = context, self.clock.now()
        self.sent.append(Sent(tokens=tokens, bytes=size, repeated=repeated if is_warm else 0, millis=millis))
        return self.sent[-1]

    async def shrink(self) -> None:
        """Reduce the context before a request."""
        await self.prune(0)

    async def prune(self, reserve: int) -> None:
        """Prune with a reserve in tokens."""
        await self._pruning.prune(self.window, reserve)

    def _note(self, event: Event) -> int:
        self.clock.move(0.001)
        return self.recorder.append(event, turn=1)

    def _remember(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, ContextPruned):
            self.edits += [(len(self.sent), edit) for edit in recorded.event.edits]


def repeats(context: Context, before: Context | None) -> tuple[int, int]:
    """Return the bytes of a request's messages, and the bytes of their common prefix with the previous request."""
    size = repeated = 0
    same = before is not None
    for index, message in enumerate(context.messages):
        length = len(canonical(message))
        same = same and before is not None and index < len(before.messages) and before.messages[index] == message
        size += length
        repeated += length * same
    return size, repeated
