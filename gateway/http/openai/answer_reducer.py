"""What of a session's frames answers one message: a fold over `delta` and `event` frames, as a subscriber is sent them.

A client of OpenAI's API is told one text. The texts of a turn's several answers, between which tools ran, stand behind each
other with an empty line between; so does a text that the model began anew after its stream was cut, since what was said
cannot be taken back.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gateway.http.openai.api_errors import ApiError, failed_provider
from sessions.events.events import Failure, StopReason, TurnOutcome
from sessions.events.messages import Usage

BETWEEN = "\n\n"
"""What stands between two texts of one answer."""

CANCELLED: StopReason = "cancelled"


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of an event. The fields of others than those in TOLD may have other types than `_Event`'s."""

    kind: str


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """As much of an event as matters here."""

    kind: str
    turn: int | None = None
    takes: tuple[int, ...] = ()
    provider: str = ""
    model: str = ""
    reply: int = 0
    text: str = ""
    stop: StopReason = "end"
    usage: Usage | None = None
    outcome: TurnOutcome = "replied"
    error: Failure | None = None
    answers: int = 0
    answer: str = ""


class _Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A `delta`, an `event`, a `gap`, or `paused`."""

    type: Literal["delta", "event", "gap", "paused"]
    turn: int = 0
    reply: int = 0
    offset: int = 0
    text: str = ""
    event: msgspec.Raw = msgspec.Raw()


TOLD = frozenset(("turn_started", "turn_joined", "model_replied", "turn_ended", "command_answered"))
"""The kinds of events that an answer is made of."""

_decode = msgspec.json.Decoder(_Frame).decode
_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_event = msgspec.json.Decoder(_Event).decode


class AnswerReducer:
    """The answer to the message at `seq`. `model` is the `provider:model` that answers, once that is known; `stop` says why
    the answer ended, None before its end; `usage` is that of all its requests.

    Pieces of an answer may come before the event that tells which turn they belong to, so they are kept until it has come.
    """

    def __init__(self, seq: int) -> None:
        self.model = ""
        self.stop: StopReason | None = None
        self.usage: Usage | None = None
        self._seq = seq
        self._turn: int | None = None
        self._speaking: tuple[int, int] | None = None
        """The turn and the reply that is being said and no event has confirmed."""
        self._heard = ""
        self._said = 0  # characters of it that the client was told
        self._began = False
        self._last: StopReason = "end"

    def hear(self, data: bytes) -> str:
        """The text that is new after a frame. Raises Refused where the turn failed."""
        frame = _decode(data)
        if frame.type == "event":
            told = _decode_kind(frame.event).kind in TOLD
            return self._happened(_decode_event(frame.event)) if told else ""
        if frame.type == "delta":
            if self._speaking != (frame.turn, frame.reply):
                self._speaking, self._heard, self._said = (frame.turn, frame.reply), "", 0
            if frame.offset <= len(self._heard):  # else pieces were dropped: the event that confirms them has all
                self._heard = self._heard[: frame.offset] + frame.text
        return self._new()

    def _new(self) -> str:
        """What was heard of our turn and not told yet."""
        if self._speaking is None or self._speaking[0] != self._turn:
            return ""
        return self._tell(self._heard)

    def _tell(self, text: str) -> str:
        """What is new of a reply's text so far."""
        new = text[self._said :]
        between = BETWEEN if new and self._began and not self._said else ""
        self._began = self._began or bool(new)
        self._said += len(new)
        return between + new

    def _happened(self, event: _Event) -> str:
        mine = self._turn is not None and event.turn == self._turn
        match event.kind:
            case "turn_started" | "turn_joined":
                self._taken(event)
                return self._new()
            case "model_replied":
                return self._confirmed(event, mine=mine)
            case "turn_ended" if mine:
                self._end(event)
            case "command_answered" if event.answers == self._seq:
                self.stop = "end"
                return event.answer
            case _:
                pass
        return ""

    def _taken(self, event: _Event) -> None:
        if event.kind == "turn_started" and self._turn is None:
            self.model = f"{event.provider}:{event.model}"  # also of a turn that the message may join
        if self._seq in event.takes:
            self._turn = event.turn

    def _confirmed(self, event: _Event, *, mine: bool) -> str:
        """A reply is whole; whatever was heard of it counts no more."""
        if self._speaking != (event.turn, event.reply) or not event.text.startswith(self._heard[: self._said]):
            self._said = 0
        told = ""
        if mine:
            self._last = event.stop
            if event.provider:  # another one than the turn began with
                self.model = f"{event.provider}:{event.model}"
            if event.usage is not None:
                self.usage = event.usage if self.usage is None else self.usage + event.usage
            told = self._tell(event.text)
        self._speaking, self._heard, self._said = None, "", 0
        return told

    def _end(self, event: _Event) -> None:
        if event.outcome in ("failed", "abandoned"):
            raise _failed(event.error)
        self.stop = CANCELLED if event.outcome == "cancelled" else "end" if self._last == "calls" else self._last


def _failed(error: Failure | None) -> ApiError:
    """What a client is told of a turn that failed. The message stands in the session, so to send it again is no use."""
    code, sentence = ("failed", "The turn failed.") if error is None else (error.code, error.sentence)
    refused = failed_provider(code, sentence)
    refused.again = False
    return refused
