"""The waiting messages of a session, and the rules of the four queue modes.

followup   each message has its own turn, in order of arrival.
collect    messages that arrived during a turn share the next one, once no more have come for half a second.
steer      messages that arrive during a turn join it after the next tool results; without tools they wait for the next turn.
interrupt  a message that arrives during a turn cancels it, also a running tool; the next turn takes all that wait.

In every mode messages are taken in order of arrival, each once, and none before a command that arrived earlier and waits for
the end of the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from gateway.protocol.slash_commands import TypedCommand, parse_command
from plugins.api.command import Command
from sessions.state.transcript import WaitingMessage
from sessions.store.recorder import Recorder

QueueMode: TypeAlias = Literal["followup", "collect", "steer", "interrupt"]

MODES: tuple[QueueMode, ...] = get_args(QueueMode)

SETTING = "queue"
"""The session's setting that overrides `sessions.queue`."""


class Inbox:
    """A session's waiting messages. `configured` returns the mode of sessions that chose none."""

    def __init__(self, recorder: Recorder, *, commands: Mapping[str, Command], configured: Callable[[], QueueMode]) -> None:
        self._recorder = recorder
        self._commands = commands
        self._configured = configured

    @property
    def mode(self) -> QueueMode:
        """The mode in force."""
        chosen = self._recorder.transcript.settings.get(SETTING)
        return next((mode for mode in MODES if mode == chosen), self._configured())

    def first(self) -> WaitingMessage | None:
        """Return the oldest waiting message, or command that runs between turns."""
        return next((waiting for waiting in self._recorder.transcript.waiting if not self._is_now(waiting)), None)

    def messages(self) -> Sequence[int]:
        """Return the seqs of all messages before the next command that runs between turns."""
        seqs = []
        for waiting in self._recorder.transcript.waiting:
            if parse_command(waiting.message.text) is None:
                seqs.append(waiting.seq)
            elif not self._is_now(waiting):
                break
        return seqs

    def together(self) -> Sequence[int]:
        """Return the seqs that the next turn takes: one message, or as many as the mode combines."""
        seqs = self.messages()
        return seqs if self.mode in ("collect", "interrupt") else seqs[:1]

    def joining(self) -> Sequence[int]:
        """Return the seqs that the running turn takes now, after the results of its tools."""
        return self.messages() if self.mode == "steer" else ()

    def is_now(self, typed: TypedCommand) -> bool:
        """Return True if a command is answered during the running turn; an unknown one is."""
        command = self._commands.get(typed.name)
        return command is None or command.when == "now"

    def _is_now(self, waiting: WaitingMessage) -> bool:
        typed = parse_command(waiting.message.text)
        return typed is not None and self.is_now(typed)
