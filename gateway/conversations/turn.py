"""One turn, in a straight line: messages in, answer out, every step in the log.

`Turn` belongs to one conversation and changes the view only through its recorder. Whatever happens (an error of the
provider, a cancellation, a crash and a resumption) the log ends with each call paired and one `turn_ended`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress

import msgspec

from gateway.conversations.compacting import Compacting
from gateway.conversations.files import ConversationFiles
from gateway.conversations.inbox import Inbox
from gateway.conversations.live import Live
from gateway.conversations.tool_calls import ToolCalls, note_plugin_failure
from gateway.errors import GatewayError, sentence_of
from gateway.models.choosing import ChosenModel
from gateway.models.fallback import Line
from plugins.context.silent import SilenceFilter, is_silent
from plugins.contracts import ChatRequest, Clock, Reply, Tool
from plugins.errors import BadAnswer, BadRequest, ContextOverflow, ProviderError, StreamCut
from sessions.attachments import Attachments
from sessions.context import Context, Gauge, assemble
from sessions.errors import StorageFailed
from sessions.events import (
    AttachmentsWithheld,
    Failure,
    InstructionsSet,
    LoadedNote,
    ModelReplied,
    RequestedCall,
    RequestSent,
    TurnEnded,
    TurnInterrupted,
    TurnJoined,
    TurnOutcome,
    TurnResumed,
    TurnStarted,
)
from sessions.messages import Usage
from sessions.recorder import LineTooLong, Recorder
from sessions.sight import Sight
from sessions.transcript import OpenTurn, open_turn
from sessions.units import Units, of_files
from sessions.wire import carriable

REPLY_LIMIT = 1024 * 1024
"""Bytes of text after which an answer is taken as cut by length: it must fit one line of the log."""

CALLS_LIMIT = 128
"""Tool calls that one reply may ask for."""

MOST_TOKENS = 10**9
"""More than any request can have."""

OVERFLOWS = 4
"""How often in a row a conversation is compacted because a provider refused it as too long. Each time it is half as long."""

CUT_RETRIES = 2
"""How often a model is asked again after its stream was cut."""


_STRAY_CANCEL = Failure(code="provider_failed", sentence="The provider or a tool cancelled the turn by itself.")


class TurnRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says about turns; `rounds` bounds the model calls of one turn, `reserve` is in tokens."""

    instructions: str
    parameters: dict[str, str | int | float | bool | None]
    rounds: int
    reserve: int


class TurnFailed(GatewayError):
    """The turn cannot go on; `code` and the sentence go into `turn_ended`."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Turn:
    """Takes messages and answers them. One at a time per conversation; `run` and `resume` always end the turn, unless the
    storage fails (SessionsError) or the gateway stops (CancelledError without `cancelled` set)."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        live: Live,
        inbox: Inbox,
        choose: Callable[[], ChosenModel],
        tools: Mapping[str, Tool],
        attachments: Attachments,
        files: ConversationFiles,
        rules: Callable[[], TurnRules],
        notes: Callable[[int | None], Awaitable[tuple[LoadedNote, ...]]],
        clock: Clock,
        prune: Callable[[int | None, int], Awaitable[None]],
        compacting: Compacting,
        hold: Callable[[], AbstractContextManager[None]] = nullcontext,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        provider_failed: Callable[[str, str], None] = lambda _provider, _code: None,
    ) -> None:
        self._recorder = recorder
        self._live = live
        self._inbox = inbox
        self._choose = choose
        self._tools = tools
        self._calls = ToolCalls(recorder, tools, attachments)
        self._files = files
        self._rules = rules
        self._notes = notes
        self._clock = clock
        self._prune = prune
        self._compacting = compacting
        self._hold = hold
        self._sleep = sleep
        self._provider_failed = provider_failed
        self._gauge = Gauge()
        self._before: Context | None = None
        self._began = 0.0
        self._speaking: ChosenModel | None = None
        self._answering: asyncio.Task[None] | None = None
        self._cancelled = False
        self._silent = False
        """The last answer was that there is nothing to say; nobody is shown it."""

    @property
    def running(self) -> bool:
        """Whether a turn can be cancelled now."""
        return self._answering is not None and not self._cancelled

    def cancel(self) -> bool:
        """End the running turn; False if none runs."""
        if not self.running:
            return False
        assert self._answering is not None
        self._cancelled = True
        self._answering.cancel()
        return True

    def break_off(self) -> None:
        """Stop at once, since nothing can be recorded any more; the recorder's failure comes out of `run` and `resume`."""
        if self._answering is not None:
            self._answering.cancel()

    async def run(self, takes: Callable[[], Sequence[int]]) -> None:
        """A new turn over the waiting messages whose seqs `takes` returns when it begins."""
        with self._hold():  # a provider that a reload replaces stays open until then
            ordinal = self._recorder.transcript.turn + 1
            try:
                model = self._choose()
            except (Exception, SystemExit) as error:  # a provider's own code is asked too
                self._note_start(ordinal, takes(), "", "", None)
                await self._through(self._refuse(sentence_of(error)))
                return
            self._note_start(ordinal, takes(), model.provider.name, model.model, model.window)
            await self._through(self._begin(model))

    async def _begin(self, model: ChosenModel) -> None:
        notes = await self._notes(model.window)
        self._note_instructions(self._open().ordinal, notes)
        await self._answer(model)

    async def resume(self) -> None:
        """Go on with the turn that a stop interrupted."""
        with self._hold():
            await self._through(self._take_up())

    async def abandon(self, sentence: str) -> None:
        """End an interrupted turn without another attempt."""
        self._began = self._clock.monotonic()
        self._calls.close()
        await self._end("abandoned", Failure(code="not_resumed", sentence=sentence))

    async def drop(self) -> None:
        """End an interrupted turn as `cancel` ends one that runs."""
        self._began = self._clock.monotonic()
        self._calls.close()
        await self._end("cancelled", None)

    def _note_start(self, ordinal: int, takes: Sequence[int], provider: str, model: str, window: int | None) -> None:
        reserve = self._rules().reserve
        self._recorder.note(
            TurnStarted(takes=tuple(takes), provider=provider, model=model, window=window, reserve=reserve),
            turn=ordinal,
        )

    def _note_instructions(self, ordinal: int, notes: tuple[LoadedNote, ...]) -> None:
        rules = self._rules()
        wanted = InstructionsSet(
            text=rules.instructions,
            tools=tuple(tool.definition for tool in self._tools.values()),
            notes=notes,
            parameters=rules.parameters,
        )
        if self._recorder.transcript.instructions != wanted:
            self._recorder.note(wanted, turn=ordinal)

    async def _through(self, work: Awaitable[None]) -> None:
        """Do the work as a task that `cancel` can reach, and end the turn as it ended."""
        outcome: TurnOutcome
        failure: Failure | None
        self._began = self._clock.monotonic()
        self._cancelled = self._silent = False
        self._answering = asyncio.ensure_future(work)
        try:
            await self._answering
            outcome, failure = "silent" if self._silent else "replied", None
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                # The gateway stops: the turn stays open in the log and is resumed at the next start.
                await asyncio.wait([self._answering])
                self._note_interruption()
                raise
            self._keep_streamed()
            outcome, failure = ("cancelled", None) if self._cancelled else ("failed", _STRAY_CANCEL)
        except (TurnFailed, ProviderError) as error:
            outcome, failure = "failed", Failure(code=error.code, sentence=sentence_of(error))
        except LineTooLong as error:
            outcome, failure = "failed", Failure(code="bad_answer", sentence=sentence_of(error))
        finally:
            self._answering = None
        self._live.end()
        self._live.forget()
        self._calls.close()
        await self._end(outcome, failure)

    async def _end(self, outcome: TurnOutcome, failure: Failure | None) -> None:
        millis = round((self._clock.monotonic() - self._began) * 1000)
        await self._recorder.record(TurnEnded(outcome=outcome, millis=millis, error=failure), turn=self._open().ordinal)

    def _note_interruption(self) -> None:
        self._live.end()
        with suppress(StorageFailed):  # then the next start finds the turn as after a crash
            interrupted = TurnInterrupted(reason="The gateway stops; this goes on when it is back.")
            self._recorder.note(interrupted, turn=self._open().ordinal)

    async def _refuse(self, sentence: str) -> None:
        raise TurnFailed("no_model", sentence)

    async def _take_up(self) -> None:
        turn = self._open()
        await self._recorder.record(TurnResumed(attempt=turn.resumed + 1), turn=turn.ordinal)
        if turn.finished:
            return
        for call in turn.calls:
            if call.began and not call.repeatable:
                self._calls.note(call, "unknown", "The gateway stopped while this ran; how it ended is not known.")
        if self._open().calls:
            await self._calls.run()
            await self._join()
        await self._answer(self._choose_again(turn))

    def _choose_again(self, turn: OpenTurn) -> ChosenModel:
        try:
            return self._choose()
        except (Exception, SystemExit) as error:
            raise TurnFailed("no_model", sentence_of(error)) from error

    async def _answer(self, model: ChosenModel) -> None:
        line = Line(model)
        for _ in range(self._rules().rounds):
            await self._answer_in(line, model)
            if not self._open().calls:
                return
            await self._calls.run()
            await self._join()
        raise TurnFailed(
            "too_many_rounds",
            f"The model asked for tools {self._rules().rounds} times in a row and was stopped; say “go on” to let it.",
        )

    async def _answer_in(self, line: Line, model: ChosenModel) -> None:
        """One answer, after as many compactions as a provider's refusals of a request as too long ask for."""
        for attempt in range(OVERFLOWS + 1):
            try:
                await line.answer(self._ask, self._size)
            except ContextOverflow:
                if attempt == OVERFLOWS or not await self._compacting.overflowed(model.window):
                    raise
            else:
                return

    async def _join(self) -> None:
        """Take what came meanwhile, where the queue mode says so. Here no call is parted from its result."""
        if takes := self._inbox.joining():
            await self._recorder.until_durable(takes[-1])
            self._recorder.note(TurnJoined(takes=tuple(takes)), turn=self._open().ordinal)

    def _size(self) -> int:
        """Estimated tokens of the next request, to a model that was not asked before."""
        return self._recorder.transcript.counts.estimate(self.measure(None, ""), "")

    def measure(self, sight: Sight | None, model: str) -> Units:
        """What the next request would hold, for a `provider:model` of this sight. Costs what is new since the last time."""
        context = assemble(self._recorder.transcript, self._before)
        return self._gauge.measure(context).units + of_files(self._files.look(context, sight, model))

    def _tokens(self, model: ChosenModel) -> int:
        """Estimated tokens of the next request to this model."""
        units = self.measure(model.provider.limits(model.model).sight, model.name)
        return self._recorder.transcript.counts.estimate(units, model.name)

    async def _ask(self, model: ChosenModel) -> None:
        """One answer of the model, asked again if its stream is cut."""
        for attempt in range(CUT_RETRIES + 1):
            try:
                reply = await self._stream(model)
            except ProviderError as error:
                self._provider_failed(model.provider.name, error.code)
                if attempt == CUT_RETRIES or not isinstance(error, StreamCut):
                    raise
                await self._sleep(0.5 * 2**attempt)
            else:
                self._note_reply(reply, model)
                return

    async def _stream(self, model: ChosenModel) -> Reply:
        await self._prune(model.window, self._rules().reserve)
        await self._compacting.before_request(model.window, self._tokens(model))
        transcript = self._recorder.transcript
        ordinal = self._open().ordinal
        context = self._before = assemble(transcript, self._before)
        seen = self._files.look(context, model.provider.limits(model.model).sight, model.name)
        measured = self._gauge.measure(context)
        units = measured.units + of_files(seen)
        self._recorder.note(
            RequestSent(
                purpose="answer",
                sha256=measured.sha256,
                messages=len(context.messages),
                tokens=transcript.counts.estimate(units, model.name),
                units=units,
                model="" if model.name == self._open().name else model.name,
            ),
            turn=ordinal,
        )
        shown = await self._files.show(context, seen)
        if news := self._files.news(model.name, shown, transcript.withheld):
            self._recorder.note(AttachmentsWithheld(model=model.name, files=news), turn=ordinal)
        self._speaking = model
        self._live.begin(ordinal, self._open().replies, self._recorder.durable)
        request = ChatRequest(
            model=model.model,
            context=shown.context,
            purpose="answer",
            session=transcript.session,
            pictures=shown.pictures,
            window=model.window,
            others=bool(model.fallbacks),
        )
        try:
            reply = await self._listen(model, request)
        except BadRequest:
            if not (suspects := self._files.suspects(model.name, shown)):
                raise
            with self._files.leaving_out(suspects):
                return await self._stream(model)
        self._files.took(model.name, shown)
        return reply

    async def _listen(self, model: ChosenModel, request: ChatRequest) -> Reply:
        """Stream one request; deltas go to `live`, the reply is returned."""
        size, silence = 0, SilenceFilter()
        try:
            async with aclosing(model.provider.stream(request)) as stream:  # type: ignore[type-var]
                async for part in stream:
                    if isinstance(part, Reply):
                        self._show(silence.end())
                        return sound(part)
                    text = carriable(part.text)
                    size += len(text.encode())
                    if size > REPLY_LIMIT:
                        return Reply(text=self._live.end(), model=model.model, stop="length")
                    self._show(silence.feed(text))
        except ProviderError:
            raise
        except (Exception, SystemExit) as error:
            note_plugin_failure(self._recorder, model.provider.name, "stream", error)
            raise BadAnswer(f"The provider {model.provider.name} failed: {sentence_of(error)}") from error
        raise StreamCut(f"The answer of {model.name} ended before its end.")

    def _show(self, text: str) -> None:
        if text:
            self._live.add(text)

    def _note_reply(self, reply: Reply, model: ChosenModel) -> None:
        if len(reply.calls) > CALLS_LIMIT:
            raise BadAnswer(f"The model asked for {len(reply.calls)} tools at once; {CALLS_LIMIT} are taken.")
        calls = tuple(
            RequestedCall(id=carriable(call.id), tool=carriable(call.tool), arguments=carriable(call.arguments))
            for call in reply.calls
        )
        if sum(len(call.arguments) for call in calls) > REPLY_LIMIT:
            raise BadAnswer("The model asked for tools with more than a megabyte of arguments.")
        turn = self._open()
        self._silent = is_silent(reply.text) and not calls
        seq = self._recorder.note(
            ModelReplied(
                reply=turn.replies,
                model=carriable(reply.model),
                text="" if is_silent(reply.text) else carriable(reply.text),
                calls=calls,
                stop=reply.stop,
                usage=believable(reply.usage),
                opaque=reply.opaque,
                provider=_unless_same(model, turn),
            ),
            turn=turn.ordinal,
            urgent=bool(calls),
        )
        self._live.end(confirmed=seq)

    def _keep_streamed(self) -> None:
        """What had come of an answer when the turn was cancelled."""
        turn = self._open()
        streamed = self._live.current
        if (text := self._live.end()) and streamed is not None:
            assert self._speaking is not None
            reply = ModelReplied(
                reply=streamed.reply,  # another attempt may have begun since, which has said nothing
                model=self._speaking.model,
                text=text,
                calls=(),
                stop="cancelled",
                usage=None,
                provider=_unless_same(self._speaking, turn),
            )
            streamed.confirmed = self._recorder.note(reply, turn=turn.ordinal)

    def _open(self) -> OpenTurn:
        return open_turn(self._recorder.transcript)


def _unless_same(model: ChosenModel, turn: OpenTurn) -> str:
    """The provider as `model_replied` names it: not at all where the turn started with it."""
    return "" if model.provider.name == turn.provider else model.provider.name


def sound(reply: Reply) -> Reply:
    """The reply, if its fields are of the types that they promise; msgspec.ValidationError or TypeError if not."""
    return msgspec.convert(msgspec.to_builtins(reply), Reply)


def believable(usage: Usage | None) -> Usage | None:
    """A provider's counts, as far as they can be counts at all: the sum of many must still be a number for every reader."""
    if usage is None:
        return None
    return Usage(**{name: min(max(0, getattr(usage, name)), MOST_TOKENS) for name in usage.__struct_fields__})
