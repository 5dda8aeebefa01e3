"""The slash commands of a conversation: each runs once its message is durable, and its answer is recorded in the log.

Commands that run `now` run beside the turn, one after the other. A slow one delays only those of its own name, so that of
two `/model` the later one wins; `/stop` waits for none. A command that runs between turns can be stopped like a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial

from gateway.conversations.turn.inbox import WaitingCommand
from gateway.support.errors import sentence_of
from plugins.api.command import Command, CommandFailed
from plugins.support import task_leaks
from plugins.support.suggestions import did_you_mean
from plugins.support.untrusted import is_cancelling, is_own_object, reraise_cancellation
from sessions.events.codec import replace_surrogates
from sessions.events.errors import SessionsError, StorageFailed
from sessions.events.events import CommandAnswered, PluginFailed
from sessions.state.truncation import head_and_tail
from sessions.store.recorder import Recorder

NOW_SECONDS = 30.0
"""Seconds after which a command that runs `now` is stopped."""

BETWEEN_SECONDS = 900.0
"""The same for a command between turns: a compaction makes two model requests, and models are slow."""

ORDER_SECONDS = 0.25
"""Maximum seconds that a command waits for the answer to an earlier one, so that answers usually come in order."""

ANSWER_LIMIT = 256 * 1024
"""Bytes of a command's answer in the log."""


class OutcomeUnknown(StorageFailed):
    """It is not known whether a command has begun the next session. It is not answered: its conversation ends, and whoever
    opens it again finds the next session, or runs the command again."""


class TypedCommands:
    """Answers the commands of one session. `run` runs a command; `answered` is called after each answer."""

    def __init__(
        self,
        recorder: Recorder,
        commands: Mapping[str, Command],
        run: Callable[[Command, WaitingCommand], Awaitable[str]],
        answered: Callable[[WaitingCommand], None],
    ) -> None:
        self.by_successor: int | None = None
        """The seq of the command that opened the next session. It is not run again: the new session answers it."""
        self._recorder = recorder
        self._commands = commands
        self._run = run
        self._answered = answered
        self._now: asyncio.Queue[WaitingCommand] = asyncio.Queue()
        self._between: asyncio.Task[tuple[str, bool]] | None = None
        self._stopped = False

    def put(self, waiting: WaitingCommand) -> None:
        """Queue a command that runs `now`."""
        self._now.put_nowait(waiting)

    async def answer_now(self) -> None:
        """Answer queued commands until cancelled."""
        last: asyncio.Task[None] | None = None
        of_name: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as answering:
            while True:
                waiting = await self._now.get()
                typed = waiting.typed
                name = "" if typed.opens_session else typed.name  # a session has one successor, whichever command opened it
                of_name = {other: task for other, task in of_name.items() if not task.done()}
                before = None if typed.is_urgent else last
                last = of_name[name] = answering.create_task(self._answer_after(before, of_name.get(name), waiting))

    async def _answer_after(
        self, before: asyncio.Task[None] | None, of_its_name: asyncio.Task[None] | None, waiting: WaitingCommand
    ) -> None:
        if of_its_name is not None:
            await asyncio.wait([of_its_name])
        if before is not None:
            await asyncio.wait([before], timeout=ORDER_SECONDS)
        seconds = None if waiting.typed.opens_session else NOW_SECONDS  # a slow disk must not leave a session half open
        with suppress(StorageFailed):  # the same failure, or the same doubt, ends the conversation
            await self._recorder.until_durable(waiting.seq)
            await self._record(waiting, *await self._result(waiting, seconds))

    async def answer_between_turns(self, waiting: WaitingCommand) -> None:
        """Answer a command between turns. Raises StorageFailed if the answer cannot be recorded."""
        await self._recorder.until_durable(waiting.seq)
        self._stopped = False
        self._between = asyncio.create_task(self._result(waiting, BETWEEN_SECONDS))
        try:
            answer, failed = await self._between
        except asyncio.CancelledError:
            if not self._stopped or is_cancelling():
                raise
            answer, failed = f"/{waiting.typed.name} was stopped.", True
        finally:
            self._between = None
        await self._record(waiting, answer, failed)

    def stop(self) -> bool:
        """Stop the command that runs between turns; return False if none does."""
        if self._between is None or self._stopped:
            return False
        self._stopped = True
        return self._between.cancel()

    async def _record(self, waiting: WaitingCommand, answer: str, failed: bool) -> None:
        answer = head_and_tail(replace_surrogates(answer), ANSWER_LIMIT)
        await self._recorder.append_durable(CommandAnswered(answers=waiting.seq, answer=answer, failed=failed))
        self._answered(waiting)

    async def _result(  # noqa: PLR0911 - each way that a command ends
        self, waiting: WaitingCommand, seconds: float | None
    ) -> tuple[str, bool]:
        """Run a command for at most `seconds`; return the answer, and True if it reports a failure. Raises StorageFailed if
        it cannot be answered."""
        if waiting.seq == self.by_successor:
            return "A new session has begun.", False
        name = waiting.typed.name
        command = self._commands.get(name)
        if command is None:
            meant = did_you_mean(name, self._commands, before="/", mark="`") or "."
            return f"There is no command /{name}{meant} `/help` lists them all.", True
        try:
            with (
                nullcontext()
                if is_own_object(command)
                else task_leaks.cancelling_leaks(command.name, partial(self._leaked, command))
            ):
                answer = await self._bounded(seconds, command, waiting)
            if not isinstance(answer, str):
                raise TypeError(f"it returned {type(answer).__name__} instead of a text")
            return answer, False
        except CommandFailed as error:
            return sentence_of(error), True
        except StorageFailed as error:
            if self._recorder.failure is not None or isinstance(error, OutcomeUnknown):
                raise
            return sentence_of(error), True  # the failure of another journal, such as that of a new session
        except SessionsError as error:
            return sentence_of(error), True
        except BaseException as error:
            reraise_cancellation(error)  # the gateway stops and the next start answers the command, or it was stopped
            return self._failed(command, error)

    async def _bounded(self, seconds: float | None, command: Command, waiting: WaitingCommand) -> str:
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self._run(command, waiting)
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"it did not answer within {seconds:.0f} seconds and was stopped") from error
            raise

    def _leaked(self, command: Command, sentence: str) -> None:
        """Record that a command left tasks running."""
        with suppress(SessionsError):  # the conversation may have ended
            self._recorder.append(PluginFailed(plugin=command.name, hook="run", sentence=sentence))

    def _failed(self, command: Command, error: BaseException) -> tuple[str, bool]:
        sentence = f"{type(error).__name__}: {sentence_of(error)}"
        self._recorder.append(PluginFailed(plugin=command.name, hook="run", sentence=sentence))
        return f"/{command.name} failed: {sentence_of(error)}", True
