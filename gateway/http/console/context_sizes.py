"""What each turn's request held, part by part, and what was done to keep it small: a fold over a journal, which goes on
from where it stopped.

For a thread: the first look at a long session reads all of its journal, in slices that whoever asks may bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from time import perf_counter, sleep
from typing import Literal, TypeAlias

import msgspec

from gateway.conversations.commands.context_report import shared
from gateway.journals.past_requests import advance
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
from sessions.events.messages import Message, ToolMessage
from sessions.events.token_features import TokenFeatures, head_features, message_features
from sessions.files.reader import read_lines
from sessions.state.context import assemble, canonical_head
from sessions.state.transcript import Transcript
from sessions.state.view import View

Part: TypeAlias = Literal["instructions", "summary", "recalled", "conversation", "results"]

PARTS: tuple[Part, ...] = ("instructions", "summary", "recalled", "conversation", "results")
"""In the order in which the console stacks them. `instructions` are what stands before all messages, tools too; `results`
those of tools; `conversation` is all else."""

PIECE = 1024 * 1024
"""Bytes of a journal that are read at a time."""


STRETCH, PAUSE = 0.004, 0.001
"""After so many seconds of work a thread that reads rests for so many, or it would hold the event loop up: only one of them
has the interpreter."""

MOST_RESTS = 16
"""Transcripts of one session that are kept, so that a past turn is not rebuilt from the very beginning. Each holds on to
what stood in the view then."""


class TurnSize(msgspec.Struct, frozen=True, kw_only=True):
    """A turn's last request for its answer: `tokens` as they were estimated then, and the same shared out to `PARTS`;
    `counted` is what the provider counted, `window` and `reserve` are tokens, None and 0 where unknown. `calls` is how many
    requests the turn had, `seq` that of the last."""

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


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that was done to the view in a turn or behind it. `compaction` is its number, or that which a revert returns
    to; `before` and `after` are tokens, of prunes characters: of what was shown less, how many are `saved`. `said` is the
    outcome of a flush and its note, or why a compaction was given up."""

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
    """The sizes of one session's requests, as far as its journal at `path` was read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reading = Lock()
        self.transcript = Transcript()
        self.turns: list[TurnSize] = []
        self.marks: list[Mark] = []
        self._rests: list[Transcript] = []
        self._spacing = 1
        self._head = TokenFeatures()
        self._held: dict[int, tuple[Part, TokenFeatures]] = {}
        """Of each message in the view, by its source: to which part it belongs, and its units."""
        self._sums: dict[Part, TokenFeatures] = {}

    def read(self, upto: int, seconds: float) -> bool:
        """Go on to the event `upto`, or for about so many seconds; whether it came so far. Raises JournalDamaged,
        UnknownSession, StorageFailed."""
        deadline = perf_counter() + seconds
        with self._reading:  # two pages of one session may ask at once
            pause = perf_counter() + STRETCH
            for line in self._lines(upto):
                self._take(decode(line))
                if (now := perf_counter()) > deadline:
                    break
                if now > pause:
                    sleep(PAUSE)
                    pause = perf_counter() + STRETCH
            return self.transcript.head >= upto

    def _lines(self, upto: int) -> Iterator[bytes]:
        """What follows what was read, up to the event `upto`."""
        while lines := read_lines(self._path, self.transcript.head + 1, PIECE):
            for line in lines:
                if self.transcript.head >= upto:
                    return
                yield line

    def before(self, *, turn: int = 0, seq: int = 0) -> Transcript:
        """The latest transcript that is kept of what stands before a turn, or before an event."""
        kept = (rest for rest in reversed(self._rests) if (rest.turn < turn if turn else rest.head < seq))
        return next(kept, Transcript())

    def _rest(self) -> None:
        """Keep what the transcript is now that a turn has ended; as a session grows they come to stand wider apart."""
        if self.transcript.turn % self._spacing == 0:
            self._rests.append(self.transcript)
        if len(self._rests) > MOST_RESTS:
            del self._rests[::2]
            self._spacing *= 2

    def _take(self, recorded: Recorded) -> None:
        before, event = self.transcript, recorded.event
        if isinstance(event, RequestSent) and event.purpose == "answer":
            self._asked(recorded, event)
        after = self.transcript = advance(self._path, before, recorded)
        if after.instructions is not before.instructions:
            self._head = head_features(canonical_head(assemble(after)).decode())
        if after.view is not before.view:
            self._weigh(event, before.view, after.view)
        self._mark(recorded, event)

    # --- sizes --------------------------------------------------------------------------------------------------------

    def _weigh(self, event: Event | UnknownEvent, before: View, view: View) -> None:
        """Keep the sums right at a cost of what changed; a cut and its revert change everything."""
        if isinstance(event, ContextPruned):
            for edit in event.edits:
                if (index := view.index_of(edit.of)) is not None:
                    self._add(edit.of, self._part(view, index), message_features(view.messages[index]))
        elif view.messages.extends(before.messages):
            for index in range(len(before), len(view)):
                self._add(view.sources[index], self._part(view, index), message_features(view.messages[index]))
        else:
            known, self._held, self._sums = self._held, {}, {}
            for index, source in enumerate(view.sources):
                units = known[source][1] if source in known and source else message_features(view.messages[index])
                self._add(source, self._part(view, index), units)

    def _add(self, source: int, part: Part, units: TokenFeatures) -> None:
        old = self._held.get(source, (part, TokenFeatures()))[1]
        self._held[source] = part, units
        self._sums[part] = self._sums.get(part, TokenFeatures()) - old + units

    @staticmethod
    def _part(view: View, index: int) -> Part:
        message: Message = view.messages[index]
        source = view.sources[index]
        if source == 0:
            return "summary"
        if source in view.recalled:
            return "recalled"
        return "results" if isinstance(message, ToolMessage) else "conversation"

    def _asked(self, recorded: Recorded, event: RequestSent) -> None:
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
        )
        self.turns[len(self.turns) - again :] = [size]

    # --- marks --------------------------------------------------------------------------------------------------------

    def _mark(self, recorded: Recorded, event: Event | UnknownEvent) -> None:
        if isinstance(event, ModelReplied) and event.usage is not None:
            self._amend(counted=event.usage.input)
        elif isinstance(event, TurnEnded):
            self._amend(outcome=event.outcome)
            self._rest()
        else:
            self.marks.extend(_marks(recorded.seq, self.transcript.turn, event))

    def _amend(self, **changes: int | str) -> None:
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
