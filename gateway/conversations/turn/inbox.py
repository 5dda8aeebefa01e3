"""The waiting messages of a session, and the rules of the four queue modes.

followup   each message has its own turn, in order of arrival.
collect    messages that arrived during a turn share the next one, once no more have come for half a second.
steer      messages that arrive during a turn join it after the next tool results; without tools they wait for the next turn.
interrupt  a message that arrives during a turn cancels it, with a running tool; the next turn takes all waiting messages.

In every mode messages are taken in order of arrival, each once, and none before a command that arrived earlier and waits for
the end of the turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec

from gateway.config.keys import QueueMode
from gateway.conversations.context.conversation_config import ConversationConfig
from gateway.conversations.context.session_settings import QUEUE
from gateway.protocol.slash_commands import TypedCommand, parse_command
from plugins.api.command import Command
from sessions.events.events import MessageReceived
from sessions.state.transcript import WaitingMessage
from sessions.store.recorder import Recorder

MODES: tuple[QueueMode, ...] = get_args(QueueMode)


class WaitingCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting message that is a command."""

    seq: int
    message: MessageReceived
    typed: TypedCommand


class Inbox:
    """A session's waiting messages and commands.

    Each message is parsed once: where it arrives, or here if it was waiting when the session was opened.
    """

    def __init__(self, recorder: Recorder, config: ConversationConfig, commands: Mapping[str, Command]) -> None:
        self._recorder = recorder
        self._commands = commands
        self._config = config
        self._waiting_commands: dict[int, WaitingCommand] = {}
        for waiting in recorder.transcript.waiting:
            self.add(waiting.seq, waiting.message, parse_command(waiting.message.text))

    @property
    def mode(self) -> QueueMode:
        chosen = self._recorder.transcript.settings.get(QUEUE)
        return next((mode for mode in MODES if mode == chosen), self._config.current.sessions.queue)

    def add(self, seq: int, message: MessageReceived, typed: TypedCommand | None) -> WaitingCommand | None:
        """Add a message that was appended to the log; return it as a command if it is one."""
        if typed is None:
            return None
        command = self._waiting_commands[seq] = WaitingCommand(seq=seq, message=message, typed=typed)
        return command

    def waiting(self, id_: str) -> int | None:
        """Return the seq of the waiting message with this id, or that replaced it; None if there is none, or it is a
        command."""
        found = (each.seq for each in self._recorder.transcript.waiting if id_ in (each.message.id, each.message.edits))
        return next((seq for seq in found if seq not in self._waiting_commands), None)

    def remove(self, command: WaitingCommand) -> None:
        self._waiting_commands.pop(command.seq, None)

    def commands(self) -> Sequence[WaitingCommand]:
        """Return the waiting commands, in order of arrival."""
        return tuple(self._waiting_commands.values())

    def count(self, *, commands: bool) -> int:
        """Return the number of waiting commands if `commands` is True, else of other waiting messages."""
        return sum((waiting.seq in self._waiting_commands) is commands for waiting in self._recorder.transcript.waiting)

    def has_message(self, upto: int) -> bool:
        """Return True if a message waits whose seq is at most `upto`, not counting commands."""
        waiting = self._recorder.transcript.waiting
        return any(each.seq <= upto and each.seq not in self._waiting_commands for each in waiting)

    def first(self) -> WaitingMessage | WaitingCommand | None:
        """Return the oldest waiting message or command, leaving out commands that do not wait for the running turn."""
        for waiting in self._recorder.transcript.waiting:
            command = self._waiting_commands.get(waiting.seq)
            if command is None or not self.runs_now(command.typed):
                return command or waiting
        return None

    def messages(self) -> Sequence[int]:
        """Return the seqs of all messages before the next command that runs between turns."""
        seqs = []
        for waiting in self._recorder.transcript.waiting:
            if (command := self._waiting_commands.get(waiting.seq)) is None:
                seqs.append(waiting.seq)
            elif not self.runs_now(command.typed):
                break
        return seqs

    def next_batch(self) -> Sequence[int]:
        """Return the seqs that the next turn takes: one message, or as many as the mode combines."""
        seqs = self.messages()
        return seqs if self.mode in ("collect", "interrupt") else seqs[:1]

    def durable_batch(self) -> Sequence[int]:
        """Return the seqs of `next_batch` as far as they are durable."""
        return [seq for seq in self.next_batch() if seq <= self._recorder.durable]

    def joining(self) -> Sequence[int]:
        """Return the seqs that the running turn takes now, after the results of its tools."""
        return self.messages() if self.mode == "steer" else ()

    def runs_now(self, typed: TypedCommand) -> bool:
        """Return True if a command is answered without waiting for the running turn. An unknown command is, too."""
        command = self._commands.get(typed.name)
        return command is None or command.when == "now"
