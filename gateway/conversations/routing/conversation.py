"""One open session, and the two coroutines that run it while it is in memory.

`receive` appends messages to the log. One coroutine answers the commands that need not wait. The other runs turns: it takes
the waiting messages and commands in order of arrival, and it alone changes the model's view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from gateway.conversations.approvals.gate import ApprovalGate
from gateway.conversations.context.compacting import Compactor
from gateway.conversations.context.conversation_config import ConversationConfig
from gateway.conversations.context.session_models import SessionModels
from gateway.conversations.context.session_settings import VERBOSE, SessionSettings
from gateway.conversations.turn.inbox import Inbox, WaitingCommand
from gateway.conversations.turn.turn import Turn
from gateway.conversations.turn.typed_commands import TypedCommands
from gateway.protocol.slash_commands import TypedCommand
from plugins.api.command import Command
from sessions.events.errors import StorageFailed
from sessions.events.events import (
    ApprovalAsked,
    MessageReceived,
    SessionArchived,
    SessionClosed,
    SessionTitled,
    SettingChanged,
)
from sessions.state.transcript import PINNED, OpenTurn, WaitingMessage
from sessions.store.recorder import Recorder

RESUME_ATTEMPTS = 2
"""Resumptions after which an unfinished turn is abandoned, because it may itself crash the gateway."""

COLLECT_SECONDS = 0.5
"""Seconds without a new message after which the queue mode `collect` starts the next turn."""

LONGEST_WAIT = 60.0
"""Seconds between two looks at the clock while a question is open: the machine may have slept."""

COLLECT_AT_MOST = 5.0
"""Seconds after which `collect` starts it anyway."""


class Conversation:
    """One open session. `run` drives its coroutines; a `retired` conversation ends once nothing waits."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        turn: Turn,
        compacting: Compactor,
        inbox: Inbox,
        commands: Mapping[str, Command],
        run_command: Callable[[Conversation, Command, WaitingCommand], Awaitable[str]],
        models: SessionModels,
        settings: SessionSettings,
        approvals: ApprovalGate,
        config: ConversationConfig,
    ) -> None:
        self._wake = asyncio.Event()
        self.recorder = recorder
        self.session = recorder.transcript.session
        """The session's id."""
        self.streaming = turn.answering.streaming
        self.turn = turn
        self.compacting = compacting
        self.retired = False
        """True once the key has a newer session: this one answers what it has received, then closes."""
        self.inbox = inbox
        self.commands = TypedCommands(recorder, commands, partial(run_command, self), self._answered)
        self.models = models
        self.settings = settings
        self.approvals = approvals
        self._config = config
        self._paused = False
        self._parked_stopped = False
        """True if the parked turn is to end as cancelled."""
        self.busy = False
        """True while a turn runs, or a command that runs between turns."""
        self._interruptions: set[asyncio.Task[None]] = set()
        self._newest = 0.0
        """The time of the newest message on the event loop's clock."""
        for command in inbox.commands():
            self._queue_if_immediate(command)

    @property
    def idle(self) -> bool:
        """Return True if nothing runs, waits or is to be delivered, and no subagent runs."""
        transcript = self.recorder.transcript
        return transcript.settled and not transcript.owed and not transcript.open_children

    @property
    def verbose(self) -> bool:
        """Return True if clients show more than the conversation, by the session's choice or the configuration."""
        chosen = self.recorder.transcript.settings.get(VERBOSE)
        return self._config.current.agent.verbose if chosen is None else chosen == "on"

    @property
    def title(self) -> str:
        title = self.recorder.transcript.title
        return title.text if title else ""

    async def rename(self, title: str, person: str) -> None:
        """Set the session's title durably; an empty one removes it. Raises StorageFailed."""
        await self.recorder.append_durable(SessionTitled(title=title, by=person))

    @property
    def pinned(self) -> bool:
        return PINNED in self.recorder.transcript.settings

    async def pin(self, person: str, *, pinned: bool) -> None:
        """Pin the conversation in its person's lists durably, or unpin it. Raises StorageFailed."""
        await self.recorder.append_durable(SettingChanged(name=PINNED, value="true" if pinned else None, by=person))

    @property
    def archived(self) -> bool:
        return self.recorder.transcript.archived

    async def archive(self, person: str, *, archived: bool) -> None:
        """Archive the conversation durably, or bring it back. Raises StorageFailed."""
        await self.recorder.append_durable(SessionArchived(archived=archived, by=person))

    @property
    def parked(self) -> bool:
        """True if the open turn waits for a person, or for its continuation after the answer."""
        return self.recorder.transcript.open_turn is not None and not self.busy

    @property
    def waiting_for(self) -> ApprovalAsked | None:
        """The oldest open question about a tool call, for which the turn is parked or a tool waits."""
        turn = self.recorder.transcript.open_turn
        questions = turn.questions if turn is not None else ()
        return next((question.asked for question in questions if question.answer is None), None)

    def question_before(self, typed: TypedCommand | None) -> ApprovalAsked | None:
        """Return the question that a new message would wait for; None if the message is handled at once. `typed` is the
        command in the message, if it is one."""
        at_once = self.inbox.mode == "interrupt" if typed is None else self.inbox.runs_now(typed)
        return None if at_once else self.waiting_for

    def stop(self) -> bool:
        """Cancel the running turn, or the command that runs between turns; return False if nothing runs."""
        if self.turn.cancel():
            return True
        if self.parked:
            self._parked_stopped = True
            self._wake.set()
            return True
        return self.commands.stop()

    def pause(self) -> None:
        """Begin nothing new, because the gateway stops. A running turn continues; waiting messages are answered after the
        next start."""
        self._paused = True

    def receive(self, message: MessageReceived, typed: TypedCommand | None) -> int:
        """Append a message to the log and the inbox, and return its seq without waiting for the disk. It is accepted only
        once it is durable. `typed` is the command in the message, if it is one."""
        seq = self.recorder.append(message, urgent=True)
        self._newest = asyncio.get_running_loop().time()
        if (command := self.inbox.add(seq, message, typed)) is not None:
            self._queue_if_immediate(command)
        elif self.inbox.mode == "interrupt":
            task = asyncio.create_task(self._interrupt(seq))
            self._interruptions.add(task)
            task.add_done_callback(self._interruptions.discard)
        self._wake.set()
        return seq

    async def _interrupt(self, seq: int) -> None:
        """Once a new message is durable, cancel the running turn for it, unless a turn has taken it already."""
        with suppress(StorageFailed):  # the same failure ends the conversation
            await self.recorder.until_durable(seq)
            if any(waiting.seq == seq for waiting in self.recorder.transcript.waiting):
                self.turn.cancel()

    async def run(self) -> None:
        """Run both coroutines until the conversation is retired and done. Raises SessionsError if its storage fails."""
        answering = asyncio.create_task(self.commands.answer_now())
        unsubscribe = self.recorder.on_durable(self._on_durable)
        try:
            self.compacting.close_cycle()
            self.compacting.notes.write_in_background()
            await self._run_turns()
        finally:
            unsubscribe()
            answering.cancel()
            await asyncio.wait([answering])
            await self.compacting.notes.close()
        if not answering.cancelled() and (error := answering.exception()):
            raise error

    def retire(self, answered: int | None) -> None:
        """Answer what waits, then end. `answered` is the seq of the `/new` that has led to the next session."""
        self.retired = True
        self.commands.by_successor = answered
        self._wake.set()

    def _queue_if_immediate(self, command: WaitingCommand) -> None:
        if self.inbox.runs_now(command.typed):
            self.commands.put(command)

    def _answered(self, command: WaitingCommand) -> None:
        self.inbox.remove(command)
        self._wake.set()

    async def _run_turns(self) -> None:
        turn = self.recorder.transcript.open_turn
        if turn is not None and not turn.parked and not self._paused:
            await self._while_busy(self._resume_or_end(turn))
        while True:
            self._wake.clear()
            if (turn := self.recorder.transcript.open_turn) is not None and not self._paused:
                await self._continue_parked(turn)
                continue
            waiting = None if self._paused else self.inbox.first()
            if waiting is not None:
                await self._while_busy(self._process(waiting))
            elif self.retired and self.idle:
                await self._close()
                return
            else:
                await self._until_woken()

    async def _continue_parked(self, turn: OpenTurn) -> None:
        """Wait until the question of a parked turn is answered, expires or is stopped; then continue or end the turn."""
        if self._parked_stopped or self._is_interrupted():
            self._parked_stopped = False
            await self._while_busy(self.turn.end_cancelled())
        elif (question := turn.question(turn.parked)) is not None:
            expires = datetime.fromisoformat(question.asked.expires)
            seconds = (expires - self._config.clock.now()).total_seconds()
            if seconds <= 0:
                await self.approvals.expire(turn.parked)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._until_woken(), min(max(seconds, 1), LONGEST_WAIT))
        elif turn.answered > self.recorder.durable:
            await self._until_woken()
        else:
            await self._while_busy(self.turn.proceed())

    async def _while_busy(self, work: Awaitable[None]) -> None:
        self.busy = True
        try:
            await work
        finally:
            self.busy = False

    async def _until_woken(self) -> None:
        if self.recorder.failure is not None:
            raise self.recorder.failure
        await self._wake.wait()

    def _on_durable(self) -> None:
        """End the conversation when its log can no longer be written; it is opened again from its journal. While the turn is
        parked, look whether the answer has become durable."""
        if self.recorder.failure is not None:
            self.turn.abort()
            self._wake.set()
        elif self.parked or self.retired:
            self._wake.set()

    async def _process(self, waiting: WaitingMessage | WaitingCommand) -> None:
        if isinstance(waiting, WaitingCommand):
            await self.commands.answer_between_turns(waiting)
            return
        await self.recorder.until_durable(self.inbox.next_batch()[-1])
        if not self.inbox.durable_batch():  # it was withdrawn or replaced meanwhile
            return
        await self.turn.run()
        if self.recorder.transcript.cycle.owed:  # a note that could not be written before: try again
            self.compacting.notes.write_in_background()
        if self.inbox.mode == "collect" and self.inbox.messages():
            await self._until_pause()

    async def _until_pause(self) -> None:
        """Wait for a pause between messages, so that they are answered together."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + COLLECT_AT_MOST
        while not self.retired and (seconds := min(self._newest + COLLECT_SECONDS, latest) - loop.time()) > 0:
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._until_woken(), seconds)

    async def _resume_or_end(self, turn: OpenTurn) -> None:
        keys = self._config.current.sessions
        age = self._config.clock.now() - datetime.fromisoformat(turn.at).astimezone(UTC)
        if turn.finished:
            await (
                self.turn.resume()
            )  # the answer is complete, only `turn_ended` is missing: `sessions.resume` does not matter
        elif self._is_interrupted():
            await self.turn.end_cancelled()
        elif keys.resume == "never":
            await self.turn.abandon("The gateway stopped while this was being answered, and sessions.resume is never.")
        elif keys.resume == "offer":
            await self.turn.abandon("The gateway stopped while this was being answered; send it again.")
        elif age.total_seconds() > keys.resume_within:
            await self.turn.abandon("The gateway was stopped for too long while this was being answered; send it again.")
        elif turn.crashes >= RESUME_ATTEMPTS:
            await self.turn.abandon("This was interrupted again after being resumed twice; send it again to retry.")
        else:
            await self.turn.resume()

    def _is_interrupted(self) -> bool:
        """Return True if a durable message waits that would have cancelled the turn. One that is not durable yet cancels it
        later."""
        return self.inbox.mode == "interrupt" and self.inbox.has_message(upto=self.recorder.durable)

    async def _close(self) -> None:
        """Write the final notes, then record that the session is closed. While a note is pending it stays open, and the
        next start tries again."""
        if self.recorder.transcript.closed is None:
            await self.compacting.flush_at_end()
            await self.compacting.notes.write()
            if not self.recorder.transcript.cycle.owed:
                await self.recorder.append_durable(SessionClosed(reason="succeeded"))
