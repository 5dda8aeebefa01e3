"""What a command sees of the conversation that it was typed in, and may do to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from gateway.chat import Chat
from gateway.conversation import Conversation
from gateway.errors import Conflict, GatewayError
from gateway.models import Models
from gateway.status import SessionStatus, describe
from plugins.contracts import Clock, Command, CommandFailed, CommandHelp, HistoryEntry
from sessions.events import (
    CommandAnswered,
    MessageReceived,
    ModelReplied,
    Recorded,
    SettingChanged,
    ToolReturned,
)
from sessions.tokens import MESSAGE, estimate
from sessions.transcript import Transcript, Waiting
from sessions.wire import decode

HISTORY_BYTES = 2 * 1024 * 1024
"""How far back `/history` reads."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What all commands share: `began` is when the gateway started, on the monotonic clock."""

    models: Models
    commands: Mapping[str, Command]
    clock: Clock
    began: float
    version: str
    queue_limit: int
    refused: Callable[[], Sequence[str]]


class View:
    """A `ConversationView` of one command's message."""

    def __init__(self, chat: Chat, conversation: Conversation, waiting: Waiting, around: Surroundings) -> None:
        self._chat = chat
        self._conversation = conversation
        self._waiting = waiting
        self._around = around

    @property
    def person(self) -> str:
        """Who typed it."""
        return self._waiting.message.sender

    @property
    def client(self) -> str:
        """With which program."""
        return self._waiting.message.client

    @property
    def channel(self) -> str:
        """On which channel."""
        return self._waiting.message.channel

    @property
    def key(self) -> str:
        """The key of the session."""
        return self._chat.key

    @property
    def session(self) -> str:
        """The session's id."""
        return self._conversation.session

    def commands(self) -> Sequence[CommandHelp]:
        """All commands, by name."""
        commands = sorted(self._around.commands.values(), key=lambda command: command.name)
        return [CommandHelp(name=c.name, usage=c.usage, summary=c.summary) for c in commands]

    def status(self) -> str:
        """What `/status` shows."""
        transcript = self._transcript
        around = self._around
        try:
            chosen = around.models.choose(transcript.settings.get("model"))
            model, window = chosen.why, chosen.window
        except GatewayError as error:
            model, window = str(error), None
        return describe(
            SessionStatus(
                version=around.version,
                uptime=around.clock.monotonic() - around.began,
                model=model,
                key=self.key,
                session=self.session,
                age=time_since(transcript.opened_at, around.clock),
                turns=transcript.turn,
                events=transcript.head,
                usage=transcript.usage,
                context=tokens_used(transcript),
                window=window,
                waiting=sum(w.seq != self._waiting.seq for w in transcript.waiting),
                queue_limit=around.queue_limit,
                running=transcript.open_turn is not None,
                refused=around.refused(),
            )
        )

    def model(self) -> str:
        """The model in use and why."""
        return self._chosen(self._transcript.settings.get("model"))

    def models(self) -> Sequence[str]:
        """Each provider's own choice."""
        return self._around.models.available()

    async def choose_model(self, name: str | None) -> str:
        """Use another model from the next turn on."""
        now = self._chosen(name)
        await self._conversation.recorder.record(SettingChanged(name="model", value=name, by=self.person))
        return now

    async def history(self, count: int) -> Sequence[HistoryEntry]:
        """The last messages, oldest first."""
        head = self._chat.head(self.session) or 0
        entries: list[HistoryEntry] = []
        before, read = head + 1, 0
        while before > 1 and len(entries) < count and read < HISTORY_BYTES:
            first = max(1, before - 64)
            lines = [line for line in await self._lines(first, before) if line]
            read += sum(map(len, lines))
            entries = [entry for line in lines if (entry := entry_of(decode(line)))] + entries
            before = first
        return [entry for entry in entries if entry.seq != self._waiting.seq][-count:]

    def stop_turn(self) -> bool:
        """Cancel the running turn of the key's conversations."""
        running = [self._conversation, *self._chat.finishing.values()]
        stopped = [conversation.turn.cancel() for conversation in running]
        return any(stopped)

    async def start_anew(self) -> str:
        """Open the key's next session."""
        try:
            return await self._chat.start_anew(self._conversation, self._waiting.seq)
        except Conflict as error:
            raise CommandFailed(str(error)) from error

    @property
    def _transcript(self) -> Transcript:
        return self._conversation.recorder.transcript

    def _chosen(self, name: str | None) -> str:
        try:
            return self._around.models.choose(name).why
        except GatewayError as error:
            raise CommandFailed(str(error)) from error

    async def _lines(self, first: int, before: int) -> list[bytes]:
        lines: list[bytes] = []
        while first + len(lines) < before:
            page = await self._chat.lines(self.session, first + len(lines))
            if not page:
                break
            lines += page
        return lines[: before - first]


def entry_of(recorded: Recorded) -> HistoryEntry | None:
    """An event as a line of the conversation, where it is one."""
    match recorded.event:
        case MessageReceived(text=text):
            return HistoryEntry(seq=recorded.seq, at=recorded.at, who="person", text=text)
        case ModelReplied(text=text) | CommandAnswered(answer=text) if text:
            return HistoryEntry(seq=recorded.seq, at=recorded.at, who="assistant", text=text)
        case ToolReturned(output=text):
            return HistoryEntry(seq=recorded.seq, at=recorded.at, who="tool", text=text)
        case _:
            return None


def tokens_used(transcript: Transcript) -> int | None:
    """Tokens of the view: what the provider counted last, and an estimate of what came since. None before any count."""
    if transcript.last_usage is None:
        return None
    since = transcript.messages[transcript.last_usage_messages :]
    return transcript.last_usage.input + sum(MESSAGE + estimate(message.text) for message in since)


def time_since(at: str, clock: Clock) -> float:
    """Seconds since an event's time."""
    return (clock.now() - datetime.fromisoformat(at)).total_seconds()
