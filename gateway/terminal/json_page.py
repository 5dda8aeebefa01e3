"""Answers as lines of JSON, for scripts."""

from __future__ import annotations

from typing import Any, TextIO

import msgspec

from gateway.protocol.client_frames import Refusal
from gateway.support.printable import one_line
from gateway.terminal.client.signals import Happened, Signal
from sessions.events.events import ApprovalAsked, CommandAnswered, ModelReplied, TurnEnded, TurnStarted
from sessions.events.messages import Usage


class JsonPage:
    """Prints one object for each answer to this client's messages.

    The object has `session`, `session_id`, `seq` of the last event, `text`, `outcome` and, if there are any, `model`,
    `calls` (the names of the tools), `usage`, `millis`, `error` and `question` (the id of an open question about a tool
    call).
    """

    def __init__(self, out: TextIO, complaints: TextIO, session: str) -> None:
        self._out = out
        self._complaints = complaints
        self._session = session
        self._start()

    def _start(self) -> None:
        self._texts: list[str] = []
        self._calls: list[str] = []
        self._model = ""
        self._usage: Usage | None = None

    def show(self, signal: Signal, *, ours: bool) -> None:
        """Collect an answer to one of our messages, and print it when it is complete."""
        if isinstance(signal, Refusal):
            self.say(signal.message)
        if not isinstance(signal, Happened):
            return
        event = signal.recorded.event
        if isinstance(event, TurnStarted):  # before it is known whose it is
            self._model = f"{event.provider}:{event.model}"
        if not ours:
            return
        match event:
            case ModelReplied():
                self._texts.append(event.text)
                self._calls += [call.tool for call in event.calls]
                self._usage = event.usage if self._usage is None or event.usage is None else self._usage + event.usage
            case ApprovalAsked():
                self._print(signal, outcome="asked", question=event.approval)
            case TurnEnded():
                error = msgspec.to_builtins(event.error) if event.error is not None else None
                self._print(signal, outcome=event.outcome, millis=event.millis, error=error)
            case CommandAnswered():
                self._texts.append(event.answer)
                self._print(signal, outcome="failed" if event.failed else "replied")
            case _:
                pass

    def say(self, sentence: str) -> None:
        """Print a message of this program to the standard error."""
        self._complaints.write(f"exuvia: {one_line(sentence, 500)}\n")
        self._complaints.flush()

    def document(self, text: str) -> None:
        """Print nothing: it is not part of an answer."""

    def _print(self, happened: Happened, **fields: Any) -> None:
        answer = {
            "session": self._session,
            "session_id": happened.session_id,
            "seq": happened.recorded.seq,
            "text": "\n\n".join(text for text in self._texts if text.strip()),
            "model": self._model,
            "calls": self._calls,
            "usage": msgspec.to_builtins(self._usage),
            **fields,
        }
        shown = {name: value for name, value in answer.items() if value not in (None, "", []) or name == "text"}
        self._out.write(msgspec.json.encode(shown).decode() + "\n")
        self._out.flush()
        self._start()
