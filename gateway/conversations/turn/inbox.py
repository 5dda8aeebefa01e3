"""What waits in a session, and which of it is taken next: the rules of the four queue modes.

followup   each message has a turn of its own, in the order of arrival.
collect    what arrived during a turn is taken by the next one together, once nothing more has come for half a second.
steer      what arrives during a turn joins it behind the next results of its tools; without any it has the next turn.
interrupt  what arrives during a turn stops it, a running tool too; the next turn takes all that waits.

In every mode messages are taken in the order in which they arrived, each once, and none is taken before a command that
arrived earlier and waits for the end of the turn.
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
"""The session's setting that stands above `sessions.queue`."""


class Inbox:
    """A session's waiting messages. `configured` tells the mode of sessions that have chosen none."""

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
        """The oldest waiting thing that the turn coroutine has to deal with: a message, or a command between turns."""
        return next((waiting for waiting in self._recorder.transcript.waiting if not self._is_now(waiting)), None)

    def messages(self) -> Sequence[int]:
        """The seqs of all messages before the next command that waits for its place between turns."""
        seqs = []
        for waiting in self._recorder.transcript.waiting:
            if parse_command(waiting.message.text) is None:
                seqs.append(waiting.seq)
            elif not self._is_now(waiting):
                break
        return seqs

    def together(self) -> Sequence[int]:
        """The seqs that the next turn takes: one message, or as many as the mode takes at once."""
        seqs = self.messages()
        return seqs if self.mode in ("collect", "interrupt") else seqs[:1]

    def joining(self) -> Sequence[int]:
        """The seqs that the running turn takes now, behind the results of its tools."""
        return self.messages() if self.mode == "steer" else ()

    def is_now(self, typed: TypedCommand) -> bool:
        """Whether a command is answered beside the running turn; so is one that there is not."""
        command = self._commands.get(typed.name)
        return command is None or command.when == "now"

    def _is_now(self, waiting: WaitingMessage) -> bool:
        typed = parse_command(waiting.message.text)
        return typed is not None and self.is_now(typed)
