"""Reduces a journal to the size of each turn's request, by part, and to the marks of what reduced it.

Reading is incremental and blocks: call it in a thread. The first read of a long session covers its whole journal, in slices
that the caller limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from time import perf_counter, sleep
from typing import Any, Literal, TypeAlias

import msgspec

from gateway.conversations.commands.context_report import shared
from gateway.support.stored_sessions import advance
from sessions.events.codec import decode
from sessions.events.events import (
    CompactionAbandoned,
    CompactionReverted,
    ContextCompacted,
    ContextPruned,
    Event,
    MemoryFlushed,
    ModelReplied,
    Recorded,
    RequestSent,
    TurnEnded,
    UnknownEvent,
)
from sessions.events.messages import Message, ToolMessage, Usage
from sessions.events.tokens import TokenFeatures, head_features, message_features
from sessions.state.context import assemble, canonical_head
from sessions.state.transcript import Transcript
from sessions.state.view import View
from sessions.store.reading import StoredLog

Part: TypeAlias = Literal["instructions", "summary", "recalled", "conversation", "results"]

PARTS: tuple[Part, ...] = ("instructions", "summary", "recalled", "conversation", "results")
"""The parts in the order in which the console stacks them. `instructions` includes the tools; `results` are those of tools;
`conversation` is all else."""

PIECE = 1024 * 1024
"""Bytes of a journal that are read at a time."""


STRETCH, PAUSE = 0.004, 0.001
"""Seconds of work and of pause of a reading thread, which would otherwise block the event loop: they share the interpreter
lock."""

MOST_CHECKPOINTS = 16
"""Transcripts of one session that are cached, so that a past turn is not rebuilt from the beginning. Each keeps its view
alive."""


class TurnSize(msgspec.Struct, frozen=True, kw_only=True):
    """A turn's last request: its estimated `tokens`, and their distribution over `PARTS`.

    `counted` are the tokens that the provider reported; `window` and `reserve` are tokens, None and 0 if unknown. `calls` is
    the number of the turn's requests, `seq` that of the last. `usage` is what providers counted in all of them, by model.
    """

    turn: int
    at: str
    seq: int
    calls: int
    model: str
    tokens: int
    parts: tuple[int, ...]
    messages: int
    window: int | None
    reserve: int
    counted: int | None = None
    outcome: str = ""
    usage: dict[str, Usage] = {}


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change to the view during or after a turn.

    `compaction` is its number, or the one that a revert returns to; `before` and `after` are tokens; `edits` and `saved` are
    the messages and characters of a pruning. `said` is the outcome of a flush and its note, or why a compaction failed.
    """

    turn: int
    seq: int
    kind: Literal["pruned", "flushed", "compacted", "abandoned", "reverted"]
    compaction: int = 0
    edits: int = 0
    saved: int = 0
    before: int = 0
    after: int = 0
    said: str = ""


class ContextSizes:
    """The sizes of one session's requests, as far as its log was read."""

    def __init__(self, log: StoredLog) -> None:
        self._log = log
        self._reading = Lock()
        self.transcript = Transcript()
        self.turns: list[TurnSize] = []
        self.marks: list[Mark] = []
        self._checkpoints: list[Transcript] = []
        self._spacing = 1
        self._head = TokenFeatures()
        self._features: dict[int, tuple[Part, TokenFeatures]] = {}
        """The part and the token features of each message in the view, by its source."""
        self._sums: dict[Part, TokenFeatures] = {}

    def read(self, upto: int, seconds: float) -> bool:
        """Read up to the event `upto`, or for about `seconds`; return True if it was reached.

        Raises:
            JournalDamaged, UnknownSession, StorageFailed: The journal cannot be read.
        """
        deadline = perf_counter() + seconds
        with self._reading:  # two pages of one session may read at the same time
            pause = perf_counter() + STRETCH
            for line in self._lines(upto):
                self._apply(decode(line))
                if (now := perf_counter()) > deadline:
                    break
                if now > pause:
                    sleep(PAUSE)
                    pause = perf_counter() + STRETCH
            return self.transcript.head >= upto

    def _lines(self, upto: int) -> Iterator[bytes]:
        """Yield the unread lines up to the event `upto`."""
        while lines := self._log.lines(self.transcript.head + 1, PIECE):
            for line in lines:
                if self.transcript.head >= upto:
                    return
                yield line

    def before(self, *, turn: int = 0, seq: int = 0) -> Transcript:
        """Return the latest cached transcript before a turn or an event."""
        kept = (each for each in reversed(self._checkpoints) if (each.turn < turn if turn else each.head < seq))
        return next(kept, Transcript())

    def _add_checkpoint(self) -> None:
        """Cache the transcript at the end of a turn; the longer the session, the wider they are spaced."""
        if self.transcript.turn % self._spacing == 0:
            self._checkpoints.append(self.transcript)
        if len(self._checkpoints) > MOST_CHECKPOINTS:
            del self._checkpoints[::2]
            self._spacing *= 2

    def _apply(self, recorded: Recorded) -> None:
        before, event = self.transcript, recorded.event
        if isinstance(event, RequestSent) and event.purpose == "answer":
            self._add_request(recorded, event)
        after = self.transcript = advance(self._log, before, recorded)
        if after.instructions is not before.instructions:
            self._head = head_features(canonical_head(assemble(after)).decode())
        if after.view is not before.view:
            self._update_sums(event, before.view, after.view)
        self._mark(recorded, event)

    # --- sizes --------------------------------------------------------------------------------------------------------

    def _update_sums(self, event: Event | UnknownEvent, before: View, view: View) -> None:
        """Update the sums, at the cost of what changed; a compaction and its revert change everything."""
        if isinstance(event, ContextPruned):
            for edit in event.edits:
                if (index := view.index_of(edit.of)) is not None:
                    self._add(edit.of, self._part(view, index), message_features(view.messages[index]))
        elif view.messages.extends(before.messages):
            for index in range(len(before), len(view)):
                self._add(view.sources[index], self._part(view, index), message_features(view.messages[index]))
        else:
            known, self._features, self._sums = self._features, {}, {}
            for index, source in enumerate(view.sources):
                features = known[source][1] if source in known and source else message_features(view.messages[index])
                self._add(source, self._part(view, index), features)

    def _add(self, source: int, part: Part, features: TokenFeatures) -> None:
        old = self._features.get(source, (part, TokenFeatures()))[1]
        self._features[source] = part, features
        self._sums[part] = self._sums.get(part, TokenFeatures()) - old + features

    @staticmethod
    def _part(view: View, index: int) -> Part:
        message: Message = view.messages[index]
        source = view.sources[index]
        if source == 0:
            return "summary"
        if source in view.recalled:
            return "recalled"
        return "results" if isinstance(message, ToolMessage) else "conversation"

    def _add_request(self, recorded: Recorded, event: RequestSent) -> None:
        transcript = self.transcript
        turn = transcript.open_turn
        if turn is None:
            return
        model = event.model or turn.name
        weigh = transcript.counts.calibration(model).tokens
        sums = {**self._sums, "instructions": self._head}
        pictures = TokenFeatures(pictures=event.units.pictures if event.units else 0)
        sums["conversation"] = sums.get("conversation", TokenFeatures()) + pictures
        weights = [max(0.0, weigh(sums.get(part, TokenFeatures()))) for part in PARTS]
        again = bool(self.turns) and self.turns[-1].turn == turn.ordinal
        size = TurnSize(
            turn=turn.ordinal,
            at=recorded.at,
            seq=recorded.seq,
            calls=self.turns[-1].calls + 1 if again else 1,
            model=model,
            tokens=event.tokens,
            parts=tuple(shared(weights, event.tokens)),
            messages=event.messages,
            window=turn.window,
            reserve=turn.reserve,
            usage=self.turns[-1].usage if again else {},
        )
        self.turns[len(self.turns) - again :] = [size]

    # --- marks --------------------------------------------------------------------------------------------------------

    def _mark(self, recorded: Recorded, event: Event | UnknownEvent) -> None:
        if isinstance(event, ModelReplied) and event.usage is not None:
            self._amend_last(counted=event.usage.input, usage=self._used(event.usage))
        elif isinstance(event, TurnEnded):
            self._amend_last(outcome=event.outcome)
            self._add_checkpoint()
        else:
            self.marks.extend(_marks(recorded.seq, self.transcript.turn, event))

    def _used(self, usage: Usage) -> dict[str, Usage]:
        """Return what the last turn has used with the usage of one more reply."""
        last = self.turns[-1] if self.turns else None
        if last is None:
            return {}
        so_far = last.usage.get(last.model, Usage())
        total = Usage(
            input=so_far.input + usage.input, output=so_far.output + usage.output, cached=so_far.cached + usage.cached
        )
        return {**last.usage, last.model: total}

    def _amend_last(self, **changes: Any) -> None:
        if self.turns and self.turns[-1].turn == self.transcript.turn:
            self.turns[-1] = msgspec.structs.replace(self.turns[-1], **changes)


def _marks(seq: int, turn: int, event: Event | UnknownEvent) -> Iterator[Mark]:
    match event:
        case ContextPruned(edits=edits):
            saved = sum(edit.saved for edit in edits)
            yield Mark(turn=turn, seq=seq, kind="pruned", edits=len(edits), saved=saved)
        case MemoryFlushed():
            said = f"{event.outcome} {event.path}".strip()
            yield Mark(turn=turn, seq=seq, kind="flushed", compaction=event.compaction, said=said)
        case ContextCompacted():
            number, before, after = event.compaction, event.tokens_before, event.tokens_after
            yield Mark(turn=turn, seq=seq, kind="compacted", compaction=number, before=before, after=after, said=event.by)
        case CompactionAbandoned():
            yield Mark(turn=turn, seq=seq, kind="abandoned", compaction=event.compaction, said=event.reason)
        case CompactionReverted():
            yield Mark(turn=turn, seq=seq, kind="reverted", compaction=event.to)
        case _:
            pass
