"""Printing of events: `Screen` streams to a terminal, `Page` writes whole answers to a pipe or file."""

from __future__ import annotations

import math
from typing import TextIO, assert_never

from gateway.protocol.client_frames import Deleted, Delta, Output, Paused, Reasoning, Refusal, Settings
from gateway.support.approval_text import answer_sentence, question_text
from gateway.support.printable import one_line, printable
from gateway.support.sentences import arguments_of, ending_sentence, recalled_line, returned_line, thought_line
from gateway.terminal.client.signals import Connected, Disconnected, Earlier, Happened, Postponed, Signal
from gateway.terminal.pictures.shown_pictures import CaptionedStream, captioned, files_of
from gateway.terminal.renderer import PROMPT, Renderer
from gateway.terminal.shown_calls import FinishedCall, FinishedThought, ShownCalls
from sessions.events.events import (
    ApprovalAsked,
    ApprovalGiven,
    AttachmentsWithheld,
    ChangesUndone,
    ChildEnded,
    ChildStarted,
    CommandAnswered,
    CompactionAbandoned,
    CompactionBegan,
    CompactionReverted,
    ContextCompacted,
    ContextPruned,
    DeliveryAttempted,
    Event,
    InstructionsSet,
    JournalErased,
    MemoryFlushed,
    MemoryRecalled,
    MessageImported,
    MessageReceived,
    MessageWithdrawn,
    ModelReplied,
    NoteAppended,
    PluginFailed,
    Recorded,
    ReplyDelivered,
    ReplyImported,
    RequestRepeated,
    RequestSent,
    SessionArchived,
    SessionClosed,
    SessionForked,
    SessionOpened,
    SessionTitled,
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
from sessions.events.handed_messages import HEARTBEAT, child_of, is_handed, parent_of, result_in

CLIENT = "exuvia chat"
"""The name of this program in the protocol."""


UNFOLDED_LINES = 200
"""Lines of an argument or an output that are shown in full; of a longer one, the beginning and the end."""


EARLIER_EXCHANGES, EARLIER_LINES = 3, 40
"""How many exchanges are shown of a conversation that is opened, and how many lines of each text."""


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
            if event.notice:
                self.say(event.notice)
        elif isinstance(event, ApprovalAsked):
            self._complaints.write(printable(question_text(event)) + "\n")
            self._complaints.flush()
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
    """A terminal: answers stream, a tool call is one dim line and unfolds on demand. `address` is shown at the start, unless
    it is empty."""

    def __init__(self, renderer: Renderer, *, address: str, session: str) -> None:
        self._renderer = renderer
        self._address = address
        self._session = session
        self._greeted = False
        self._verbose = False
        self._calls = ShownCalls()
        self._toggled = False
        """True if the output of running tools is shown although the session is not verbose, or hidden although it is."""
        self._compacts_by_itself = True
        """True if the running compaction was not requested by a person, who would get an answer."""
        self._streaming: tuple[str, int | None, int] | None = None
        """Session, turn and reply of the unconfirmed text on the screen, which is `_text`."""
        self._text = ""
        self._captions = CaptionedStream()
        self._thought: tuple[str, int | None, int] | None = None
        """Session, turn and reply of the last reasoning whose duration is on the screen."""
        self._done: dict[str, tuple[int, float]] = {}
        """For each session, the turn and reply up to which deltas are outdated."""

    def show(self, signal: Signal, *, ours: bool) -> None:  # noqa: PLR0912 - one arm for each kind
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
            case Earlier():
                self._show_earlier(signal)
            case Delta():
                self._answering(signal)
                self._delta(signal)
            case Reasoning():
                if not self._is_outdated(signal):
                    self._calls.reasoning(signal)
                    self._show_running()
            case Settings():
                self._verbose = signal.verbose
            case Output():
                self._calls.output(signal)
                self._show_running()
            case Deleted():
                self._show_deleted(signal)
            case Paused():
                pass  # the line above the prompt says it, see `Activity`
            case Happened():
                finished = self._calls.event(signal.recorded.seq, signal.recorded.event)
                self._event(signal.session_id, signal.recorded, ours=ours)
                self._show_running()
                if finished is not None and self._verbose:
                    self._renderer.dim(returned_line(finished.call, finished.result))
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

    def file(self, caption: str, drawing: str | None) -> None:
        """Show a file of the last event: a picture if there is a drawing, and its caption."""
        if drawing is not None:
            self._renderer.picture(drawing, caption)
        else:
            self._renderer.dim(caption)
        self._renderer.flush()

    def unfold(self) -> None:
        """Show the output of the running tool, or what the model thinks, or hide it again; if there is none, show the last
        call or thought in full, and when called again the one before it."""
        if self._calls.running:
            self._toggled = not self._toggled
            self._show_running()
        elif (finished := self._calls.next_unfolded()) is not None:
            self._unfold(finished)
        else:
            self.say("There is no other tool call or reasoning to show.")
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
        if not self._address:
            return
        model = f", model {signal.welcome.model}" if signal.welcome.model else ""
        self._renderer.dim(
            f"{one_line(signal.welcome.server, 60)} at {self._address}, session {self._session}{one_line(model, 100)}."
            " /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves."
        )

    def _show_earlier(self, signal: Earlier) -> None:
        """Show the last exchanges of the conversation: what was asked, and how it was answered."""
        kinds = MessageReceived | MessageImported | ModelReplied | ReplyImported | CommandAnswered
        shown = [each for each in signal.events if isinstance(each.event, kinds) and not _is_beat(each.event)]
        asked = [at for at, each in enumerate(shown) if isinstance(each.event, MessageReceived | MessageImported)]
        for each in shown[asked[-EARLIER_EXCHANGES:][0] :] if asked else ():
            match each.event:
                case MessageReceived() as message if is_handed(message):
                    self._handed(message, EARLIER_LINES)
                case MessageReceived() | MessageImported():
                    self._renderer.dim(f"{PROMPT}{_shortened(printable(each.event.text), EARLIER_LINES)}")
                    for file in files_of(each.event):
                        self._renderer.dim(file.caption)
                case ModelReplied() | ReplyImported() if each.event.text.strip():
                    self._renderer.document(_shortened(captioned(each.event.text), EARLIER_LINES))
                case CommandAnswered():
                    self._renderer.document(_shortened(each.event.answer, EARLIER_LINES))
                case _:
                    pass

    def _show_deleted(self, signal: Deleted) -> None:
        self._renderer.line("This conversation was deleted; a message begins a new one.")
        for sentence in signal.remains:
            self._renderer.dim(f"This remains: {one_line(sentence, 500)}")

    def _event(  # noqa: PLR0912 - one arm for each kind
        self, session: str, recorded: Recorded, *, ours: bool
    ) -> None:
        turn, event = recorded.turn, recorded.event
        match event:
            case MessageReceived(client=client) if client == HEARTBEAT:
                if self._verbose:
                    self._renderer.dim("· heartbeat")
            case MessageReceived() as message if is_handed(message):
                self._handed(message, UNFOLDED_LINES)
            case MessageReceived():
                if not ours:
                    client = "another terminal" if event.client == CLIENT else one_line(event.client, 40) or "elsewhere"
                    self._renderer.line(f"(from {client}) {event.text}")
            case ModelReplied():
                self._replied(session, turn, event)
            case MemoryRecalled():
                if self._verbose:
                    self._renderer.dim(recalled_line(event))
            case TurnInterrupted():
                self._renderer.dim(f"({event.reason})")
            case ApprovalAsked():
                self._renderer.document(question_text(event))
            case ApprovalGiven():
                self._renderer.dim(f"({one_line(answer_sentence(event), 200)})")
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
            case ChildStarted(child=child, task=task):
                self._renderer.dim(f"├─ the subagent {child} works on: {one_line(task, 200)}")
            case ChildEnded(child=child, outcome=outcome):
                self._renderer.dim(f"└─ the subagent {child}: {outcome.replace('_', ' ')}")
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
                | RequestRepeated()
                | ToolCalled()
                | ToolReturned()
                | TurnParked()
                | SettingChanged()
                | SessionTitled()
                | SessionArchived()
                | PluginFailed()
                | JournalErased()
                | ReplyDelivered()
                | MessageWithdrawn()
                | DeliveryAttempted()
                | ChangesUndone()
                | MessageImported()
                | ReplyImported()
                | UnknownEvent()
            ):
                # Nothing to show during a chat; `exuvia sessions export` has it all.
                pass
            case _:
                assert_never(event)

    def _handed(self, message: MessageReceived, most: int) -> None:
        """Show the result of a subagent, or a subagent's task, set apart from what a person has said."""
        if child := child_of(message):
            heading, text = f"the subagent {child} reports (/switch {child} shows its work):", result_in(message.text)
        else:
            heading, text = f"the task of this subagent, from {parent_of(message)}:", message.text
        self._renderer.dim(f"┌─ {one_line(heading, 200)}")
        for line in _shortened(printable(text), most).split("\n"):
            self._renderer.dim(f"│  {line}".rstrip())

    def _show_running(self) -> None:
        self._renderer.running(self._calls.tail() if self._verbose != self._toggled else "")

    def _unfold(self, finished: FinishedCall | FinishedThought) -> None:
        """Print a call with its arguments, its changes and its output; or what a model thought."""
        if isinstance(finished, FinishedThought):
            self._renderer.line(f"\n{thought_line(finished.millis)}")
            self._renderer.verbatim(_shortened(finished.text))
            return
        call, result = finished.call, finished.result
        self._renderer.line(f"\n{returned_line(call, result)}")
        for name, text in arguments_of(call) if call is not None else ():
            if "\n" in text:
                self._renderer.dim(f"{one_line(name, 60)}:")
                self._renderer.verbatim(_shortened(text))
            else:
                self._renderer.verbatim(f"{one_line(name, 60)}: {text}")
        if result.diff:
            self._renderer.dim("changes:")
            self._renderer.diff(_shortened(result.diff))
        self._renderer.dim(f"output, shortened from {result.cut_from:,} bytes:" if result.cut_from else "output:")
        self._renderer.verbatim(_shortened(result.output) or "(nothing)")
        for file in files_of(result):
            self._renderer.dim(file.caption)

    def _replied(self, session: str, turn: int | None, event: ModelReplied) -> None:
        if event.reasoning and self._thought != (session, turn, event.reply):
            self._renderer.dim(thought_line(event.reasoning_millis))
        self._confirm((session, turn, event.reply), event.text)
        self._done[session] = (turn or 0, event.reply)
        if event.notice:
            self._renderer.dim(event.notice)
        if not self._verbose:
            return
        if (usage := event.usage) is not None:
            self._renderer.dim(f"· {usage.input:,} tokens in ({usage.cached:,} cached), {usage.output:,} out")

    def _ended(self, session: str, turn: int | None, event: TurnEnded) -> None:
        self._forget()
        self._done[session] = (turn or 0, math.inf)
        if (sentence := ending_sentence(event)) is not None:
            self._renderer.line(sentence)

    def _answering(self, delta: Delta) -> None:
        """Say above an answer how long the model reasoned before it."""
        if (millis := self._calls.answering()) is not None:
            self._show_running()
            self._thought = (delta.session_id, delta.turn, delta.reply)
            self._renderer.dim(thought_line(millis))

    def _is_outdated(self, piece: Delta | Reasoning) -> bool:
        """Return True if a piece was repeated after a reconnect: its text is already on the screen."""
        return (piece.turn, piece.reply) <= self._done.get(piece.session_id, (0, 0))

    def _delta(self, delta: Delta) -> None:
        if self._is_outdated(delta):
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
        if rest := self._captions.rest():
            self._renderer.stream(rest)
        self._renderer.finish()

    def _stream(self, text: str) -> None:
        self._text += text
        self._renderer.stream(self._captions.add(text))


def _is_beat(event: Event | UnknownEvent) -> bool:
    return isinstance(event, MessageReceived) and event.client == HEARTBEAT


def _shortened(text: str, most: int = UNFOLDED_LINES) -> str:
    """Return the beginning and the end of a text with more than `most` lines."""
    lines = text.rstrip("\n").split("\n")
    if len(lines) <= most:
        return "\n".join(lines)
    half = most // 2
    return "\n".join([*lines[:half], f"[… {len(lines) - 2 * half:,} lines …]", *lines[-half:]])
