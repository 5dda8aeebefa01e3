"""One turn: takes messages, requests answers and runs tools until the model is done, and records every step in the log.

`Turn` belongs to one conversation and changes the view only through its recorder. Whatever happens (a provider's error, a
cancellation, a crash and a resumption), each tool call in the log gets a result, and each turn exactly one `turn_ended`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress

from msgspec.structs import replace

from gateway.conversations.approvals.gate import MustPark
from gateway.conversations.context.conversation_config import ConversationConfig
from gateway.conversations.context.loaded_notes import LoadedNotes
from gateway.conversations.context.session_models import SessionModels
from gateway.conversations.notes.memory_writer import ExplicitMemory
from gateway.conversations.turn.answering import ReplyRequester, is_heartbeat
from gateway.conversations.turn.inbox import Inbox
from gateway.conversations.turn.recalling import Recall
from gateway.conversations.turn.tool_calls import ToolCalls
from gateway.models.fallback import FallbackChain
from gateway.models.registry import ChosenModel
from gateway.support.errors import GatewayError, sentence_of
from plugins.api.tool import Tool
from plugins.support.errors import ProviderError
from plugins.support.untrusted import reraise_cancellation
from sessions.events.errors import StorageFailed
from sessions.events.events import (
    Failure,
    InstructionsSet,
    LoadedNote,
    TurnEnded,
    TurnInterrupted,
    TurnJoined,
    TurnOutcome,
    TurnResumed,
    TurnStarted,
)
from sessions.state.transcript import OpenTurn, open_turn
from sessions.store.log_writer import LineTooLong
from sessions.store.recorder import Recorder

_STRAY_CANCEL = Failure(code="provider_failed", sentence="The provider or a tool cancelled the turn by itself.")


class TurnFailed(GatewayError):
    """The turn cannot continue; `code` and the sentence go into `turn_ended`."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Turn:
    """Runs the turns of one conversation, one at a time.

    `run`, `resume` and `proceed` end the turn, unless it is parked because a person is asked about a tool call, the storage
    fails (SessionsError) or the gateway stops (CancelledError).
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        answering: ReplyRequester,
        preparation: TurnPreparation,
        calls: ToolCalls,
        inbox: Inbox,
        models: SessionModels,
        config: ConversationConfig,
    ) -> None:
        self._recorder = recorder
        self.answering = answering
        self._preparation = preparation
        self._calls = calls
        self._inbox = inbox
        self._models = models
        self._config = config
        self._clock = config.clock
        self._began = 0.0
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    @property
    def running(self) -> bool:
        """True if a turn runs that has not been cancelled yet."""
        return self._task is not None and not self._cancelled

    def cancel(self) -> bool:
        """Cancel the running turn; return False if none runs."""
        if not self.running:
            return False
        assert self._task is not None
        self._cancelled = True
        self._task.cancel()
        return True

    def abort(self) -> None:
        """Stop at once because the log can no longer be written; `run` and `resume` raise the recorder's failure."""
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Run a new turn for the next batch of waiting messages."""
        with self._models.in_use():
            try:
                model = self._choose()
            except TurnFailed as error:
                self._record_start("", "", None)
                await self._run(_failure(error))
            else:
                self._record_start(model.provider.name, model.model, model.window)
                await self._run(self._begin(model))

    async def _begin(self, model: ChosenModel) -> None:
        await self._preparation.prepare(model)
        await self._answer(model)

    async def resume(self) -> None:
        """Continue the open turn after an interruption."""
        with self._models.in_use():
            await self._run(self._continue())

    async def proceed(self) -> None:
        """Continue the open turn after the question that it was parked for was answered."""
        with self._models.in_use():
            await self._run(self._finish_calls())

    async def abandon(self, sentence: str) -> None:
        """End an interrupted turn without another attempt."""
        self._began = self._clock.monotonic()
        await self._end("abandoned", Failure(code="not_resumed", sentence=sentence))

    async def end_cancelled(self) -> None:
        """End an interrupted turn as cancelled."""
        self._began = self._clock.monotonic()
        await self._end("cancelled", None)

    def _record_start(self, provider: str, model: str, window: int | None) -> None:
        takes, reserve = tuple(self._inbox.durable_batch()), self.answering.reserve(window)
        started = TurnStarted(takes=takes, provider=provider, model=model, window=window, reserve=reserve)
        self._recorder.append(started, turn=self._recorder.transcript.turn + 1)

    async def _run(self, work: Awaitable[None]) -> None:
        """Run the work in a task, so that `cancel` can stop it, and record the end of the turn."""
        outcome: TurnOutcome
        failure: Failure | None
        self._began = self._clock.monotonic()
        self._cancelled = self.answering.silent = False
        self._task = asyncio.ensure_future(work)
        try:
            await self._task
            outcome, failure = "silent" if self.answering.silent else "replied", None
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                # The gateway stops: the turn stays open in the log and is resumed at the next start.
                await asyncio.wait([self._task])
                self._record_interruption()
                raise
            self.answering.keep_streamed()
            outcome, failure = ("cancelled", None) if self._cancelled else ("failed", _STRAY_CANCEL)
        except MustPark:
            if not self._cancelled:
                return
            outcome, failure = "cancelled", None
        except (TurnFailed, ProviderError) as error:
            outcome, failure = "failed", Failure(code=error.code, sentence=sentence_of(error))
        except LineTooLong as error:
            outcome, failure = "failed", Failure(code="bad_answer", sentence=sentence_of(error))
        finally:
            self._task = None
        self.answering.streaming.end()
        self.answering.streaming.forget()
        await self._end(outcome, failure)

    async def _end(self, outcome: TurnOutcome, failure: Failure | None) -> None:
        self._calls.close()
        millis = round((self._clock.monotonic() - self._began) * 1000)
        dropped = outcome == "silent" and is_heartbeat(self._open_turn())
        await self._recorder.append_durable(
            TurnEnded(outcome=outcome, millis=millis, error=failure, dropped=dropped), turn=self._open_turn().ordinal
        )

    def _record_interruption(self) -> None:
        self.answering.streaming.end()
        with suppress(StorageFailed):  # then the next start resumes the turn as after a crash
            interrupted = TurnInterrupted(reason="The gateway stops; the turn continues after the restart.")
            self._recorder.append(interrupted, turn=self._open_turn().ordinal)

    async def _continue(self) -> None:
        turn = self._open_turn()
        await self._recorder.append_durable(TurnResumed(attempt=turn.resumed + 1), turn=turn.ordinal)
        if turn.finished:
            return
        if not (turn.asked or turn.calls):
            await self._begin(self._choose())  # its instructions may not have been recorded
            return
        for call in turn.calls:
            if call.began and not call.repeatable:
                self._calls.record(call, "unknown", "The gateway stopped while this ran; its outcome is unknown.")
        await self._finish_calls()

    async def _finish_calls(self) -> None:
        """Run the calls that have no result yet, then let the model go on."""
        if self._open_turn().calls:
            await self._calls.run()
            await self._join()
        await self._answer(self._choose())

    def _choose(self) -> ChosenModel:
        try:
            return self._models.choose()
        except BaseException as error:  # this runs a provider's code too
            reraise_cancellation(error)
            raise TurnFailed("no_model", sentence_of(error)) from error

    async def _answer(self, model: ChosenModel) -> None:
        chain, rounds = FallbackChain(model), self._config.current.agent.tool_rounds
        for _ in range(rounds):
            await self.answering.answer(chain, model)
            if not self._open_turn().calls:
                return
            await self._calls.run()
            await self._join()
            self._preparation.offer_new_tools(model)
        raise TurnFailed(
            "too_many_rounds", f"The model asked for tools {rounds} times in a row and was stopped; say “go on” to continue."
        )

    async def _join(self) -> None:
        """Take waiting messages into the turn if the queue mode says so. All calls have their results now, so that a message
        never comes between the two."""
        if takes := self._inbox.joining():
            await self._recorder.until_durable(takes[-1])
            self._recorder.append(TurnJoined(takes=tuple(takes)), turn=self._open_turn().ordinal)

    def _open_turn(self) -> OpenTurn:
        return open_turn(self._recorder.transcript)


async def _failure(error: TurnFailed) -> None:
    """Raise the error within the turn's task, so that the turn ends like any other that fails."""
    raise error


class TurnPreparation:
    """Prepares the turns of one session: instructions, requests to remember something, and recall."""

    def __init__(
        self,
        recorder: Recorder,
        config: ConversationConfig,
        *,
        models: SessionModels,
        tools: Mapping[str, Tool],
        notes: LoadedNotes,
        explicit_memory: ExplicitMemory,
        recall: Recall,
    ) -> None:
        self._recorder = recorder
        self._config = config
        self._models = models
        self._tools = tools
        self._notes = notes
        self._explicit_memory = explicit_memory
        self._recall = recall

    async def prepare(self, model: ChosenModel) -> None:
        """Record the instructions of the open turn. Then write the note that its messages ask for, or else recall
        passages that are relevant to them."""
        small = model.limits.small
        self._record_instructions(await self._notes.load(model.window, small), model)
        if not await self._explicit_memory.write_requested(small):
            await self._recall.recall(model.window, small)

    def offer_new_tools(self, model: ChosenModel) -> None:
        """Record the tools if others are offered since the last request, such as those that the model searched for."""
        instructions = self._recorder.transcript.instructions
        if instructions is None or model.limits.small:
            return
        tools = tuple(tool.definition for tool in self._tools.values())
        if tools != instructions.tools:
            changed = replace(instructions, tools=tools)
            self._recorder.append(changed, turn=open_turn(self._recorder.transcript).ordinal)

    def _record_instructions(self, notes: tuple[LoadedNote, ...], model: ChosenModel) -> None:
        transcript, small = self._recorder.transcript, model.limits.small
        wanted = InstructionsSet(
            text=self._config.instructions(small=small),
            tools=() if small else tuple(tool.definition for tool in self._tools.values()),
            notes=notes,
            parameters={**self._models.parameters(model)},
        )
        if transcript.instructions != wanted:
            self._recorder.append(wanted, turn=open_turn(transcript).ordinal)
