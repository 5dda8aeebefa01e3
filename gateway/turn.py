"""One turn, in a straight line: messages in, answer out, every step in the log.

`Turn` belongs to one conversation and changes the view only through its recorder. Whatever happens (an error of the
provider, a cancellation, a crash and a resumption) the log ends with each call paired and one `turn_ended`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

import msgspec

from gateway.errors import GatewayError, sentence_of
from gateway.inbox import Inbox
from gateway.live import Live
from gateway.models import ChosenModel
from plugins.contracts import ChatRequest, Clock, Reply, Tool, ToolContext
from plugins.errors import BadAnswer, ProviderError, StreamCut, ToolFailed
from sessions.attachments import Attachments, head_and_tail
from sessions.context import Context, Gauge, assemble
from sessions.errors import SessionsError
from sessions.events import (
    Failure,
    InstructionsSet,
    ModelReplied,
    Outcome,
    PluginFailed,
    RequestedCall,
    RequestSent,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnJoined,
    TurnOutcome,
    TurnResumed,
    TurnStarted,
)
from sessions.messages import Usage
from sessions.recorder import LineTooLong, Recorder
from sessions.transcript import OpenCall, OpenTurn
from sessions.wire import carriable

REPLY_LIMIT = 1024 * 1024
"""Bytes of text after which an answer is taken as cut by length: it must fit one line of the log."""

CALLS_LIMIT = 128
"""Tool calls that one reply may ask for."""

OUTPUT_LIMIT = 256 * 1024
"""Bytes of a tool's output that stand in the log; more is kept as an attachment."""

MOST_TOKENS = 10**9
"""More than any request can have."""

TOOL_SECONDS = 300.0
"""After this time a tool that has not returned is stopped."""

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
        rules: Callable[[], TurnRules],
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._recorder = recorder
        self._live = live
        self._inbox = inbox
        self._choose = choose
        self._tools = tools
        self._attachments = attachments
        self._rules = rules
        self._clock = clock
        self._sleep = sleep
        self._gauge = Gauge()
        self._before: Context | None = None
        self._began = 0.0
        self._answering: asyncio.Task[None] | None = None
        self._cancelled = False

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

    async def run(self, takes: Sequence[int]) -> None:
        """A new turn over the waiting messages with these seqs."""
        ordinal = self._recorder.transcript.turn + 1
        try:
            model = self._choose()
        except GatewayError as error:
            self._note_start(ordinal, takes, "", "", None)
            await self._through(self._refuse(str(error)))
            return
        self._note_start(ordinal, takes, model.provider.name, model.model, model.window)
        await self._through(self._answer(model))

    async def resume(self) -> None:
        """Go on with the turn that a stop interrupted."""
        turn = self._open()
        await self._recorder.record(TurnResumed(attempt=turn.resumed + 1), turn=turn.ordinal)
        await self._through(self._take_up())

    async def abandon(self, sentence: str) -> None:
        """End an interrupted turn without another attempt."""
        self._began = self._clock.monotonic()
        self._close_calls()
        await self._end("abandoned", Failure(code="not_resumed", sentence=sentence))

    def _note_start(self, ordinal: int, takes: Sequence[int], provider: str, model: str, window: int | None) -> None:
        rules = self._rules()
        self._recorder.note(
            TurnStarted(takes=tuple(takes), provider=provider, model=model, window=window, reserve=rules.reserve),
            turn=ordinal,
        )
        wanted = InstructionsSet(
            text=rules.instructions,
            tools=tuple(tool.definition for tool in self._tools.values()),
            notes=(),
            parameters=rules.parameters,
        )
        if self._recorder.transcript.instructions != wanted:
            self._recorder.note(wanted, turn=ordinal)

    async def _through(self, work: Awaitable[None]) -> None:
        """Do the work as a task that `cancel` can reach, and end the turn as it ended."""
        outcome: TurnOutcome
        failure: Failure | None
        self._began = self._clock.monotonic()
        self._cancelled = False
        self._answering = asyncio.ensure_future(work)
        try:
            await self._answering
            outcome, failure = "replied", None
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                # The gateway stops: the turn stays open in the log and is resumed at the next start.
                await asyncio.wait([self._answering])
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
        self._close_calls()
        await self._end(outcome, failure)

    async def _end(self, outcome: TurnOutcome, failure: Failure | None) -> None:
        millis = round((self._clock.monotonic() - self._began) * 1000)
        await self._recorder.record(TurnEnded(outcome=outcome, millis=millis, error=failure), turn=self._open().ordinal)

    async def _refuse(self, sentence: str) -> None:
        raise TurnFailed("no_model", sentence)

    async def _take_up(self) -> None:
        turn = self._open()
        if turn.finished:
            return
        for call in turn.calls:
            if call.began and not call.repeatable:
                self._note_return(call, "unknown", "The gateway stopped while this ran; how it ended is not known.")
        if self._open().calls:
            await self._run_calls()
            await self._join()
        await self._answer(self._choose_again(turn))

    def _choose_again(self, turn: OpenTurn) -> ChosenModel:
        try:
            return self._choose()
        except GatewayError as error:
            raise TurnFailed("no_model", str(error)) from error

    async def _answer(self, model: ChosenModel) -> None:
        for _ in range(self._rules().rounds):
            await self._ask(model)
            if not self._open().calls:
                return
            await self._run_calls()
            await self._join()
        raise TurnFailed(
            "too_many_rounds",
            f"The model asked for tools {self._rules().rounds} times in a row and was stopped; say “go on” to let it.",
        )

    async def _join(self) -> None:
        """Take what came meanwhile, where the queue mode says so. Here no call is parted from its result."""
        if takes := self._inbox.joining():
            await self._recorder.until_durable(takes[-1])
            self._recorder.note(TurnJoined(takes=tuple(takes)), turn=self._open().ordinal)

    async def _ask(self, model: ChosenModel) -> None:
        """One answer of the model, asked again if its stream is cut."""
        for attempt in range(CUT_RETRIES + 1):
            try:
                reply = await self._stream(model)
            except StreamCut:
                if attempt == CUT_RETRIES:
                    raise
                await self._sleep(0.5 * 2**attempt)
            else:
                self._note_reply(reply)
                return

    async def _stream(self, model: ChosenModel) -> Reply:
        transcript = self._recorder.transcript
        ordinal = self._open().ordinal
        context = self._before = assemble(transcript, self._before)
        measured = self._gauge.measure(context)
        self._recorder.note(
            RequestSent(
                purpose="answer",
                sha256=measured.sha256,
                messages=len(context.messages),
                tokens=measured.tokens,
            ),
            turn=ordinal,
        )
        self._live.begin(ordinal, self._open().replies, self._recorder.durable)
        request = ChatRequest(model=model.model, context=context, purpose="answer", session=transcript.session)
        return await self._listen(model, request)

    async def _listen(self, model: ChosenModel, request: ChatRequest) -> Reply:
        """Stream one request; deltas go to `live`, the reply is returned."""
        size = 0
        try:
            async with aclosing(model.provider.stream(request)) as stream:  # type: ignore[type-var]
                async for part in stream:
                    if isinstance(part, Reply):
                        return sound(part)
                    text = carriable(part.text)
                    size += len(text.encode())
                    if size > REPLY_LIMIT:
                        return Reply(text=self._live.end(), model=model.model, stop="length")
                    self._live.add(text)
        except ProviderError:
            raise
        except (Exception, SystemExit) as error:
            self._plugin_failed(model.provider.name, "stream", error)
            raise BadAnswer(f"The provider {model.provider.name} failed: {sentence_of(error)}") from error
        raise StreamCut(f"The answer of {model.name} ended before its end.")

    def _note_reply(self, reply: Reply) -> None:
        if len(reply.calls) > CALLS_LIMIT:
            raise BadAnswer(f"The model asked for {len(reply.calls)} tools at once; {CALLS_LIMIT} are taken.")
        calls = tuple(
            RequestedCall(id=carriable(call.id), tool=carriable(call.tool), arguments=carriable(call.arguments))
            for call in reply.calls
        )
        if sum(len(call.arguments) for call in calls) > REPLY_LIMIT:
            raise BadAnswer("The model asked for tools with more than a megabyte of arguments.")
        turn = self._open()
        seq = self._recorder.note(
            ModelReplied(
                reply=turn.replies,
                model=carriable(reply.model),
                text=carriable(reply.text),
                calls=calls,
                stop=reply.stop,
                usage=believable(reply.usage),
                opaque=reply.opaque,
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
            streamed.confirmed = self._recorder.note(
                ModelReplied(reply=turn.replies, model=turn.model, text=text, calls=(), stop="cancelled", usage=None),
                turn=turn.ordinal,
            )

    async def _run_calls(self) -> None:
        for call in self._open().calls:
            await self._run_call(call)

    async def _run_call(self, call: OpenCall) -> None:
        ordinal = self._open().ordinal
        tool = self._tools.get(call.tool)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            self._note_return(call, "refused", f"There is no tool {call.tool!r}; there are: {known}.")
            return
        try:
            arguments = parse_arguments(call.arguments)
        except ToolFailed as error:
            self._note_return(call, "refused", str(error))
            return
        called = ToolCalled(call=call.ref, repeatable=tool.repeatable)
        if tool.repeatable:
            self._recorder.note(called, turn=ordinal)
        else:
            await self._recorder.record(called, turn=ordinal)
        outcome, output = await self._output(tool, arguments, call, ordinal)
        await self._return(call, outcome, output)

    async def _output(self, tool: Tool, arguments: dict[str, object], call: OpenCall, ordinal: int) -> tuple[Outcome, str]:
        transcript = self._recorder.transcript
        context = ToolContext(
            session=transcript.session,
            person=transcript.person,
            turn=ordinal,
            call=f"{transcript.session}/{call.ref.of}/{call.ref.index}",
        )
        try:
            async with asyncio.timeout(TOOL_SECONDS) as limit:
                output = await tool.run(arguments, context)
            return "returned", carriable(output.text)
        except ToolFailed as error:
            return "failed", sentence_of(error)
        except (Exception, SystemExit) as error:
            if isinstance(error, TimeoutError) and limit.expired():
                return "failed", f"The tool did not return within {TOOL_SECONDS:.0f} seconds and was stopped."
            self._plugin_failed(call.tool, "run", error)
            return "failed", f"The tool failed: {sentence_of(error)}"

    async def _return(self, call: OpenCall, outcome: Outcome, output: str) -> None:
        encoded = output.encode()
        if len(encoded) <= OUTPUT_LIMIT:
            self._note_return(call, outcome, output)
            return
        whole = await self._attachments.keep(encoded)
        self._recorder.note(
            ToolReturned(
                call=call.ref,
                outcome=outcome,
                output=head_and_tail(output, OUTPUT_LIMIT),
                cut_from=len(encoded),
                whole=whole,
            ),
            turn=self._open().ordinal,
        )

    def _note_return(self, call: OpenCall, outcome: Outcome, output: str) -> None:
        self._recorder.note(ToolReturned(call=call.ref, outcome=outcome, output=output), turn=self._open().ordinal)

    def _close_calls(self) -> None:
        """Give each call that has no result one that says so."""
        for call in self._open().calls:
            if call.began:
                self._note_return(call, "unknown", "This was stopped while it ran; how it ended is not known.")
            else:
                self._note_return(call, "refused", "The turn ended before this ran.")

    def _plugin_failed(self, plugin: str, hook: str, error: BaseException) -> None:
        self._recorder.note(
            PluginFailed(plugin=plugin, hook=hook, sentence=f"{type(error).__name__}: {sentence_of(error)}"),
            turn=self._open().ordinal,
        )

    def _open(self) -> OpenTurn:
        turn = self._recorder.transcript.open_turn
        if turn is None:
            raise SessionsError("no turn is open")
        return turn


def sound(reply: Reply) -> Reply:
    """The reply, if its fields are of the types that they promise; msgspec.ValidationError or TypeError if not."""
    return msgspec.convert(msgspec.to_builtins(reply), Reply)


def believable(usage: Usage | None) -> Usage | None:
    """A provider's counts, as far as they can be counts at all: the sum of many must still be a number for every reader."""
    if usage is None:
        return None
    return Usage(**{name: min(max(0, getattr(usage, name)), MOST_TOKENS) for name in usage.__struct_fields__})


def parse_arguments(text: str) -> dict[str, object]:
    """A call's arguments as an object; ToolFailed with a sentence for the model."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ToolFailed(f"The arguments are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ToolFailed("The arguments must be a JSON object.")
    return value
