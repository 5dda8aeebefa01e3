"""Printing of events: `Screen` streams to a terminal, `Page` writes whole answers to a pipe or file."""

from __future__ import annotations

import math
from typing import TextIO, assert_never

from gateway.protocol.client_frames import Delta, Paused, Refusal, Settings
from gateway.support.printable import one_line, printable
from gateway.support.sentences import call_line, ending_sentence, recalled_line, result_line
from gateway.terminal.client.signals import Connected, Disconnected, Happened, Postponed, Signal
from gateway.terminal.renderer import Renderer
from sessions.events.events import (
    ApprovalAsked,
    ApprovalGiven,
    AttachmentsWithheld,
    CommandAnswered,
    CompactionAbandoned,
    CompactionBegan,
    CompactionReverted,
    ContextCompacted,
    ContextPruned,
    Event,
    InstructionsSet,
    MemoryFlushed,
    MemoryRecalled,
    MessageReceived,
    ModelReplied,
    NoteAppended,
    PluginFailed,
    ReplyDelivered,
    RequestSent,
    SessionClosed,
    SessionForked,
    SessionOpened,
    SettingChanged,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnInterrupted,
    TurnJoined,
    TurnParked,
    TurnResumed,
    TurnStarted,
    UnknownEvent,
)

CLIENT = "exuvia chat"
"""The name of this program in the protocol."""


class Page:
    """Confirmed answers to this client's messages; nothing is printed twice."""

    def __init__(self, out: TextIO, complaints: TextIO) -> None:
        self._out = out
        self._complaints = complaints

    def show(self, signal: Signal, *, ours: bool) -> None:
        """Print confirmed answers to `out`, and the reason for a missing one to `complaints`."""
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
        """Print a message of this program."""
        self._complaints.write(f"exuvia: {one_line(sentence, 500)}\n")
        self._complaints.flush()

    def document(self, text: str) -> None:
        """Print an answer of this program."""
        self._print(text)

    def _print(self, text: str) -> None:
        self._out.write(printable(text).rstrip("\n") + "\n")
        self._out.flush()


class Screen:
    """A terminal: answers stream, tool calls are one dim line each. `address` is shown at the start."""

    def __init__(self, renderer: Renderer, *, address: str, session: str) -> None:
        self._renderer = renderer
        self._address = address
        self._session = session
        self._greeted = False
        self._verbose = False
        self._compacts_by_itself = True
        """True if the running compaction was not requested by a person, who would get an answer."""
        self._streaming: tuple[str, int | None, int] | None = None
        """Session, turn and reply of the unconfirmed text on the screen, which is `_text`."""
        self._text = ""
        self._done: dict[str, tuple[int, float]] = {}
        """For each session, the turn and reply up to which deltas are outdated."""

    def show(self, signal: Signal, *, ours: bool) -> None:
        """Print a signal."""
        match signal:
            case Connected():
                self._greet(signal)
            case Disconnected():
                self._renderer.dim(f"({one_line(signal.reason, 200)}; reconnecting)")
            case Postponed():
                self._renderer.dim(f"({one_line(signal.reason, 200)} Your messages are kept and sent later.)")
            case Refusal():
                self.say(signal.message)
            case Delta():
                self._delta(signal)
            case Settings():
                self._verbose = signal.verbose
            case Paused():
                pass  # the line above the prompt says it, see `Activity`
            case Happened():
                self._event(signal.session_id, signal.recorded.turn, signal.recorded.event, ours=ours)
            case _:
                assert_never(signal)
        self._renderer.flush()

    def say(self, sentence: str) -> None:
        """Print a sentence on its own line."""
        self._renderer.line(one_line(sentence, 500))
        self._renderer.flush()

    def document(self, text: str) -> None:
        """Print Markdown that is not part of the conversation."""
        self._renderer.document(text)
        self._renderer.flush()

    def prompt(self) -> None:
        """Show the prompt."""
        self._renderer.prompt()

    def entered(self, held: str | None) -> None:
        """Handle a message that was entered; one that is `held` waits for `taken`."""
        self._renderer.entered(held)

    def taken(self, name: str) -> None:
        """Show a held message: it is answered from here on, or never will be."""
        self._renderer.taken(name)

    # --- signals ------------------------------------------------------------------------------------------------------

    def _greet(self, signal: Connected) -> None:
        if self._greeted:
            self._renderer.dim("(connected again)")
            return
        self._greeted = True
        self._verbose = signal.welcome.verbose
        model = f", model {signal.welcome.model}" if signal.welcome.model else ""
        self._renderer.dim(
            f"{one_line(signal.welcome.server, 60)} at {self._address}, session {self._session}{one_line(model, 100)}."
            " /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves."
        )

    def _event(  # noqa: PLR0912 - one arm for each kind
        self, session: str, turn: int | None, event: Event | UnknownEvent, *, ours: bool
    ) -> None:
        match event:
            case MessageReceived():
                if not ours:
                    client = "another terminal" if event.client == CLIENT else one_line(event.client, 40) or "elsewhere"
                    self._renderer.line(f"(from {client}) {event.text}")
            case ModelReplied():
                self._replied(session, turn, event)
            case ToolReturned():
                if self._verbose:
                    self._renderer.dim(result_line(event))
            case MemoryRecalled():
                if self._verbose:
                    self._renderer.dim(recalled_line(event))
            case TurnInterrupted():
                self._renderer.dim(f"({event.reason})")
            case ApprovalAsked():
                self._renderer.line(f"(approval {event.approval}) {event.tool}: {one_line(event.what, 500)}")
            case ApprovalGiven():
                self._renderer.dim(f"(approval {event.approval}: {event.decision})")
            case TurnResumed():
                self._renderer.dim("(the gateway was restarted and resumes this turn)")
            case TurnEnded():
                self._ended(session, turn, event)
            case CommandAnswered():
                self._renderer.document(event.answer)
            case AttachmentsWithheld():
                for file in event.files:
                    self._renderer.line(f"({file.sentence})")
            case CompactionBegan(trigger=trigger):
                self._compacts_by_itself = trigger not in ("command", "new")
            case ContextCompacted():
                if self._verbose and self._compacts_by_itself:
                    self._renderer.dim("🧹 Auto-compaction complete")
            case CompactionReverted():
                self._renderer.dim("(a compaction was reverted; the model sees the original messages again)")
            case (
                SessionOpened()
                | SessionForked()
                | SessionClosed()
                | ContextPruned()
                | CompactionAbandoned()
                | MemoryFlushed()
                | NoteAppended()
                | InstructionsSet()
                | TurnStarted()
                | TurnJoined()
                | RequestSent()
                | ToolCalled()
                | TurnParked()
                | SettingChanged()
                | PluginFailed()
                | ReplyDelivered()
                | UnknownEvent()
            ):
                # Nothing to show during a chat; `exuvia sessions export` has it all.
                pass
            case _:
                assert_never(event)

    def _replied(self, session: str, turn: int | None, event: ModelReplied) -> None:
        self._confirm((session, turn, event.reply), event.text)
        self._done[session] = (turn or 0, event.reply)
        if not self._verbose:
            return
        for call in event.calls:
            self._renderer.dim(call_line(call))
        if (usage := event.usage) is not None:
            self._renderer.dim(f"· {usage.input:,} tokens in ({usage.cached:,} cached), {usage.output:,} out")

    def _ended(self, session: str, turn: int | None, event: TurnEnded) -> None:
        self._forget()
        self._done[session] = (turn or 0, math.inf)
        if (sentence := ending_sentence(event)) is not None:
            self._renderer.line(sentence)

    def _delta(self, delta: Delta) -> None:
        if (delta.turn, delta.reply) <= self._done.get(delta.session_id, (0, 0)):
            # It was repeated after a reconnect; its text is already on the screen.
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
        self._renderer.dim("(starting again)")

    def _forget(self) -> None:
        """End the streamed text, which is confirmed or discarded."""
        self._text = ""
        self._renderer.finish()

    def _stream(self, text: str) -> None:
        self._text += text
        self._renderer.stream(text)
