"""A session as the gateway keeps it, without a gateway: events in, pruned requests out, each measured."""

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
from sessions.store.protocols import START
from sessions.store.recorder import Recorder

BEGAN = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)

COLD = timedelta(minutes=5)
"""After so long without a request a provider's cache has forgotten the conversation."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A request: its estimated tokens, its bytes, how many of these repeat the beginning of the request before and are
    still in the provider's cache, and the milliseconds that it took to be pruned, assembled and measured."""

    tokens: int
    bytes: int
    repeated: int
    millis: float

    @property
    def fresh(self) -> float:
        """The tokens that the provider has to read anew."""
        return self.tokens * (1 - self.repeated / self.bytes)


class _Nowhere:
    """A log that keeps nothing and fails never."""

    def __init__(self) -> None:
        self.end = self.durable = 0
        self._settled: Callable[[int], None] = lambda _: None

    def append(self, line: bytes, *, urgent: bool) -> None:
        self._settle()  # all before this line: the recorder does not know of it yet
        self.end += len(line)
        if urgent:
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        self.durable = self.end
        self._settled(self.durable)

    def on_commit(self, durable: Callable[[int], None], failed: object) -> None:
        self._settled = durable

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        return []

    async def close(self) -> None:
        return


class PrunedSession:
    """Takes what people, models and tools said, and sends requests. `clock` may be moved forward; `window` is in tokens."""

    def __init__(self, rules: PruningRules, window: int) -> None:
        self.sent: list[Sent] = []
        self.edits: list[tuple[int, Edit]] = []
        """Each edit with the request, counted from 0, before which it was made."""
        self.clock = ManualClock(BEGAN)
        self.window = window
        self.settings = Settings(msgspec.structs.replace(load_config(None, environment={}, overrides={}), pruning=rules))
        self.config = ConversationConfig(self.settings, self.clock)
        self.recorder = Recorder(_Nowhere(), START, Transcript(), self.clock.now)
        self.recorder.on_event(self._remember)
        self.hooks = load_plugins(())
        self._pruning = Pruner(self.recorder, self.hooks, self.config)
        self._gauge = Gauge()
        self._before: Context | None = None
        self._asked = BEGAN
        self._note(SessionOpened(format=1, session="20261121-030000-pruned", key="main", person="owner"))
        self._note(InstructionsSet(text="You are brief.", tools=(), notes=(), parameters={}))

    def hear(self, text: str) -> int:
        """A person writes, and a turn takes it; returns the seq from which on a compaction keeps it."""
        if self.recorder.transcript.open_turn is not None:
            self._note(TurnEnded(outcome="replied", millis=1))
        seq = self._note(
            MessageReceived(
                id="m", client="benchmark", sender="owner", channel="websocket", chat="private", text=text, attachments=()
            )
        )
        return self._note(TurnStarted(takes=(seq,), provider="benchmark", model="model", window=self.window, reserve=0))

    def reply(self, text: str, *calls: RequestedCall) -> list[CallRef]:
        """The model answers; returns the calls that it asks for."""
        seq = self._note(
            ModelReplied(reply=1, model="model", text=text, calls=calls, stop="calls" if calls else "end", usage=None)
        )
        return [CallRef(of=seq, index=index) for index in range(len(calls))]

    def give(self, call: CallRef, output: str) -> None:
        """A tool returns."""
        self._note(ToolReturned(call=call, outcome="returned", output=output))

    def compact(self, keep_from: int, summary: str) -> None:
        """Replace everything before a seq by a summary."""
        number = self.recorder.transcript.cut + 1
        self._note(
            ContextCompacted(
                compaction=number, keep_from=keep_from, summary=summary, by="benchmark", tokens_before=0, tokens_after=0
            )
        )

    async def send(self) -> Sent:
        """Prune, assemble and measure a request, as a turn does."""
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
        """Prune as at a reserve of so many tokens."""
        await self._pruning.prune(self.window, reserve)

    def _note(self, event: Event) -> int:
        self.clock.move(0.001)
        return self.recorder.append(event, turn=1)

    def _remember(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, ContextPruned):
            self.edits += [(len(self.sent), edit) for edit in recorded.event.edits]


def repeats(context: Context, before: Context | None) -> tuple[int, int]:
    """Bytes of a request's messages, and how many of them stood at the same place in the request before, up to the first
    message that differs."""
    size = repeated = 0
    same = before is not None
    for index, message in enumerate(context.messages):
        length = len(canonical(message))
        same = same and before is not None and index < len(before.messages) and before.messages[index] == message
        size += length
        repeated += length * same
    return size, repeated
