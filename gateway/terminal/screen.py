"""What `exuvia chat` prints: `Screen` streams to a terminal, `Page` writes whole answers for a pipe or a file."""

from __future__ import annotations

import math
from typing import TextIO, assert_never

from gateway.sentences import CALL_CHARACTERS, call_line, ending_sentence
from gateway.terminal.client import Connected, Disconnected, Happened, Signal
from gateway.terminal.frames import Delta, Refusal
from gateway.terminal.printable import one_line, printable
from sessions.events import (
    CommandAnswered,
    Event,
    Foreign,
    InstructionsSet,
    MessageReceived,
    ModelReplied,
    PluginFailed,
    RequestSent,
    SessionClosed,
    SessionOpened,
    SettingChanged,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnJoined,
    TurnResumed,
    TurnStarted,
)

PROMPT = "› "


class Page:
    """Only what is certain, and only what answers this client: nothing is printed twice or taken back."""

    def __init__(self, out: TextIO, complaints: TextIO) -> None:
        self._out = out
        self._complaints = complaints

    def show(self, signal: Signal, *, ours: bool) -> None:
        """Print confirmed answers to `out`, and why there is none to `complaints`."""
        if isinstance(signal, Refusal):
            self.say(signal.message)
        if not isinstance(signal, Happened) or not ours:
            return
        event = signal.recorded.event
        if isinstance(event, ModelReplied) and event.text.strip():
            self._print(event.text)
        elif isinstance(event, CommandAnswered):
            self._print(event.answer)
        elif isinstance(event, TurnEnded) and (sentence := ending_sentence(event)):
            self.say(sentence)

    def say(self, sentence: str) -> None:
        """Tell the person something, beside the answers."""
        self._complaints.write(f"exuvia: {one_line(sentence, 500)}\n")
        self._complaints.flush()

    def _print(self, text: str) -> None:
        self._out.write(printable(text).rstrip("\n") + "\n")
        self._out.flush()


class Screen:
    """A terminal: answers appear as they are written, tool calls as one dim line each. `address` is shown at the start;
    `styled` allows escape sequences, which are all our own."""

    def __init__(self, out: TextIO, *, address: str, session: str, styled: bool) -> None:
        self._out = out
        self._address = address
        self._session = session
        self._styled = styled
        self._greeted = False
        self._fresh = True
        """The cursor stands at the beginning of a line."""
        self._prompted = False
        self._streaming: tuple[str, int | None, int] | None = None
        """Session, turn and reply of the unconfirmed text on the screen, which is `_text`."""
        self._text = ""
        self._done: dict[str, tuple[int, float]] = {}
        """The turn and reply of each session up to which nothing is a preview any more."""

    def show(self, signal: Signal, *, ours: bool) -> None:
        """Print what there is to see of a signal."""
        match signal:
            case Connected():
                self._greet(signal)
            case Disconnected():
                self._dim(f"({one_line(signal.reason, 200)}; trying to come back)")
            case Refusal():
                self.say(signal.message)
            case Delta():
                self._delta(signal)
            case Happened():
                self._event(signal.session_id, signal.recorded.turn, signal.recorded.event, ours=ours)
            case _:
                assert_never(signal)
        self._out.flush()

    def say(self, sentence: str) -> None:
        """A sentence on a line of its own."""
        self._line(one_line(sentence, 500))
        self._out.flush()

    def prompt(self) -> None:
        """Invite the person to write."""
        if not self._prompted:
            self._start_line()
            self._out.write(PROMPT)
            self._out.flush()
            self._prompted, self._fresh = True, False

    def entered(self) -> None:
        """The person pressed Enter, which began a new line."""
        self._prompted, self._fresh = False, True

    # --- signals ------------------------------------------------------------------------------------------------------

    def _greet(self, signal: Connected) -> None:
        if self._greeted:
            self._dim("(connected again)")
            return
        self._greeted = True
        model = f", model {signal.welcome.model}" if signal.welcome.model else ""
        self._dim(
            f"{one_line(signal.welcome.server, 60)} at {self._address}, session {self._session}{one_line(model, 100)}."
            " /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves."
        )

    def _event(self, session: str, turn: int | None, event: Event | Foreign, *, ours: bool) -> None:
        match event:
            case MessageReceived():
                if not ours:
                    self._line(f"{one_line(event.client, 40)}: {event.text}")
            case ModelReplied():
                self._confirm((session, turn, event.reply), event.text)
                self._done[session] = (turn or 0, event.reply)
                for call in event.calls:
                    self._dim(call_line(call))
            case ToolReturned():
                if event.outcome != "returned":
                    self._dim(one_line(f"✗ {event.output}", CALL_CHARACTERS))
            case TurnResumed():
                self._dim("(the gateway was stopped meanwhile; it goes on)")
            case TurnEnded():
                self._forget()
                self._done[session] = (turn or 0, math.inf)
                if (sentence := ending_sentence(event)) is not None:
                    self._line(sentence)
            case CommandAnswered():
                self._line(event.answer)
            case (
                SessionOpened()
                | SessionClosed()
                | InstructionsSet()
                | TurnStarted()
                | TurnJoined()
                | RequestSent()
                | ToolCalled()
                | SettingChanged()
                | PluginFailed()
                | Foreign()
            ):
                # Nothing that a person reads while talking; `exuvia sessions export` has it all.
                pass
            case _:
                assert_never(event)

    def _delta(self, delta: Delta) -> None:
        if (delta.turn, delta.reply) <= self._done.get(delta.session_id, (0, 0)):
            # It came again after a break, and its text stands there already.
            return
        self._begin((delta.session_id, delta.turn, delta.reply))
        if delta.offset > len(self._text):
            # Pieces were dropped; the confirmed text will fill the gap.
            return
        known = self._text[delta.offset :]
        if not delta.text.startswith(known) and not known.startswith(delta.text):
            self._start_again()
            if delta.offset > 0:
                return
            known = ""
        self._stream(delta.text[len(known) :])

    def _confirm(self, reply: tuple[str, int | None, int], text: str) -> None:
        self._begin(reply)
        if not text.startswith(self._text):
            self._start_again()
        self._stream(text[len(self._text) :])
        self._forget()

    def _begin(self, reply: tuple[str, int | None, int]) -> None:
        if reply != self._streaming:
            if self._streaming is not None and self._text:
                if reply[:2] == self._streaming[:2]:
                    self._start_again()
                else:
                    self._forget()
            self._streaming = reply

    def _start_again(self) -> None:
        self._forget()
        self._dim("(starting again)")

    def _forget(self) -> None:
        """What was streamed is confirmed, or was for nothing: the next text begins a line."""
        self._text = ""
        self._start_line()

    # --- the cursor ---------------------------------------------------------------------------------------------------

    def _stream(self, text: str) -> None:
        self._text += text
        if shown := printable(text):
            if self._prompted:
                self._start_line()
            self._out.write(shown)
            self._fresh = shown.endswith("\n")

    def _start_line(self) -> None:
        if self._prompted and self._styled:
            self._out.write("\r\x1b[K")
        elif not self._fresh:
            self._out.write("\n")
        self._prompted, self._fresh = False, True

    def _line(self, text: str) -> None:
        self._start_line()
        self._out.write(printable(text).rstrip("\n") + "\n")

    def _dim(self, text: str) -> None:
        self._start_line()
        self._out.write(f"\x1b[2m{text}\x1b[0m\n" if self._styled else f"{text}\n")
