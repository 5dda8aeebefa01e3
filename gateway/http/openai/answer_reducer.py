"""Reduces a session's frames (`delta`, `reasoning` and `event`, as a subscriber receives them) to the answer to one message.

A client of OpenAI's API receives one text. The replies of a turn, between which tools ran, are joined by an empty line; so
is a reply that the model began anew after its stream was cut, since sent text cannot be taken back.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gateway.http.openai.api_errors import ApiError, failed_provider
from sessions.events.events import ApprovalAsked, Failure, StopReason, TurnOutcome
from sessions.events.messages import Usage

BETWEEN = "\n\n"
"""The separator of two replies in one answer."""

CANCELLED: StopReason = "cancelled"


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of an event. Events that are not in ANSWER_EVENTS may have fields of other types than `_Event`."""

    kind: str


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an event that are used here."""

    kind: str
    turn: int | None = None
    takes: tuple[int, ...] = ()
    provider: str = ""
    model: str = ""
    reply: int = 0
    text: str = ""
    reasoning: str = ""
    stop: StopReason = "end"
    usage: Usage | None = None
    outcome: TurnOutcome = "replied"
    error: Failure | None = None
    answers: int = 0
    answer: str = ""
    failed: bool = False
    approval: str = ""


class _Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A `delta`, a piece of `reasoning`, an `event`, a `gap`, or `paused`."""

    type: Literal["delta", "reasoning", "event", "gap", "paused"]
    turn: int = 0
    reply: int = 0
    offset: int = 0
    text: str = ""
    event: msgspec.Raw = msgspec.Raw()


ANSWER_EVENTS = frozenset(
    (
        "turn_started",
        "turn_joined",
        "model_replied",
        "approval_given",
        "turn_ended",
        "command_answered",
    )
)
"""The kinds of events that an answer is reduced from."""

_decode = msgspec.json.Decoder(_Frame).decode
_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_question = msgspec.json.Decoder(ApprovalAsked).decode


class _Stream:
    """The texts, or the reasoning, of the replies of a turn, of which every part is returned once."""

    def __init__(self) -> None:
        self.began = False
        """True once something was returned."""
        self._received = ""
        self._sent = 0  # characters of it that were returned

    def restart(self) -> None:
        """Begin another reply."""
        self._received, self._sent = "", 0

    def receive(self, offset: int, text: str) -> None:
        """Add a piece. If pieces before it were dropped, the event that confirms them has the whole text."""
        if offset <= len(self._received):
            self._received = self._received[:offset] + text

    def take(self, text: str | None = None) -> str:
        """Return the new part of the reply's text so far, by default of what was received."""
        text = self._received if text is None else text
        new = text[self._sent :]
        between = BETWEEN if new and self.began and not self._sent else ""
        self.began = self.began or bool(new)
        self._sent += len(new)
        return between + new

    def continues(self, text: str) -> bool:
        """Return True if a text begins with what was returned of this reply."""
        return text.startswith(self._received[: self._sent])


class AnswerReducer:
    """The answer to the message at `seq`.

    `model` is the `provider:model` that answers, once known; `stop` the reason why the answer ended, None before that;
    `usage` the sum over all its requests; `question` is the question about a tool call that the turn, or the one before it,
    waits for; `reasoning` the new part of the model's reasoning after the last frame. Deltas may come before the event that
    names their turn, so they are kept until then.

    Args:
        seq: The seq of the message.
        parked: The turn that waits for an answer, if the message is a command that may give it: what the turn says after
            that is part of the answer.
        waiting: The question that this turn waits for.
    """

    def __init__(self, seq: int, parked: int | None = None, waiting: ApprovalAsked | None = None) -> None:
        self.model = ""
        self.stop: StopReason | None = None
        self.usage: Usage | None = None
        self.reasoning = ""
        self._asked: dict[str, ApprovalAsked] = {}
        self._seq = seq
        self._parked = parked
        self._waiting = waiting
        self._turn: int | None = None
        self._streaming: tuple[int, int] | None = None
        """The turn and reply of the deltas that no event has confirmed yet."""
        self._text = _Stream()
        self._reasoning = _Stream()
        self._last: StopReason = "end"

    @property
    def question(self) -> ApprovalAsked | None:
        """The oldest open question about a tool call."""
        return next(iter(self._asked.values()), None)

    def feed(self, data: bytes) -> str:
        """Return the new text after a frame.

        Raises:
            ApiError: The turn failed.
        """
        frame = _decode(data)
        self.reasoning = ""
        if frame.type == "event":
            kind = _decode_kind(frame.event).kind
            if kind == "approval_asked":
                asked = _decode_question(frame.event)
                self._asked[asked.approval] = asked
                return ""
            return self._apply(_decode_event(frame.event)) if kind in ANSWER_EVENTS else ""
        if frame.type in ("delta", "reasoning"):
            if self._streaming != (frame.turn, frame.reply):
                self._stream((frame.turn, frame.reply))
            (self._text if frame.type == "delta" else self._reasoning).receive(frame.offset, frame.text)
        return self._new_text()

    def _stream(self, reply: tuple[int, int] | None) -> None:
        """Begin to follow another reply."""
        self._streaming = reply
        self._text.restart()
        self._reasoning.restart()

    def _new_text(self) -> str:
        """Return the received text of our turn that was not returned yet; its reasoning is in `reasoning`."""
        if self._streaming is None or self._streaming[0] != self._turn:
            return ""
        self.reasoning = self._reasoning.take()
        return self._text.take()

    def separated(self, text: str) -> str:
        """Return a text that follows the answer so far."""
        return BETWEEN + text if self._text.began else text

    def _apply(self, event: _Event) -> str:
        mine = self._turn is not None and event.turn == self._turn
        match event.kind:
            case "turn_started" | "turn_joined":
                self._taken(event)
                return self._new_text()
            case "model_replied":
                return self._confirmed(event, mine=mine)
            case "approval_given":
                self._asked.pop(event.approval, None)
                if self._waiting is not None and self._waiting.approval == event.approval:
                    self._waiting = None
            case "turn_ended":
                self._asked.clear()
                if mine:
                    self._end(event)
            case "command_answered" if event.answers == self._seq:
                return self._answered(event)
            case _:
                pass
        return ""

    def _answered(self, event: _Event) -> str:
        """Handle the answer of a command. After one that may have answered a question, its turn follows."""
        if self._parked is None or event.failed:
            self.stop = "end"
        else:
            self._turn, self._text.began = self._parked, True
            if self._waiting is not None:
                self._asked[self._waiting.approval] = self._waiting
        return event.answer

    def _taken(self, event: _Event) -> None:
        if event.kind == "turn_started" and self._turn is None:
            self.model = f"{event.provider}:{event.model}"  # also for a turn that the message may join
        if self._seq in event.takes:
            self._turn = event.turn

    def _confirmed(self, event: _Event, *, mine: bool) -> str:
        """Handle a complete reply, which replaces its deltas."""
        same = self._streaming == (event.turn, event.reply)
        for stream, whole in ((self._text, event.text), (self._reasoning, event.reasoning)):
            if not (same and stream.continues(whole)):
                stream.restart()
        text = ""
        if mine:
            self._last = event.stop
            if event.provider:  # may differ from the one that the turn began with
                self.model = f"{event.provider}:{event.model}"
            if event.usage is not None:
                self.usage = event.usage if self.usage is None else self.usage + event.usage
            self.reasoning = self._reasoning.take(event.reasoning)
            text = self._text.take(event.text)
        self._stream(None)
        return text

    def _end(self, event: _Event) -> None:
        if event.outcome in ("failed", "abandoned"):
            raise _failed(event.error)
        self.stop = CANCELLED if event.outcome == "cancelled" else "end" if self._last == "calls" else self._last


def _failed(error: Failure | None) -> ApiError:
    """Return the error for a failed turn. The message is in the session, so sending it again is of no use."""
    code, sentence = ("failed", "The turn failed.") if error is None else (error.code, error.sentence)
    refused = failed_provider(code, sentence)
    refused.again = False
    return refused
