"""One answer of a model within a turn: the request as it must be, the stream as it comes, the reply as it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from copy import deepcopy
from functools import partial

import msgspec

from gateway.conversations.context.compacting import Compactor
from gateway.conversations.turn.conversation_files import ConversationFiles
from gateway.conversations.turn.streaming_reply import StreamingReplies
from gateway.conversations.turn.tool_calls import note_plugin_failure
from gateway.models.fallback import FallbackChain
from gateway.models.registry import ChosenModel
from gateway.models.sound_replies import sound
from gateway.support.errors import sentence_of
from plugins.api.chat import ChatRequest, Reply
from plugins.http.client import ON_PAUSE
from plugins.policies.silent_reply import SilenceFilter, is_silent
from plugins.support.errors import BadAnswer, BadRequest, ContextOverflow, ProviderError, StreamCut
from plugins.support.untrusted import ANYTHING, is_ours
from sessions.events.codec import carriable
from sessions.events.events import AttachmentsWithheld, ModelReplied, RequestedCall, RequestSent
from sessions.events.token_features import TokenFeatures, of_files
from sessions.events.vision import AttachmentVisibility, VisionSupport
from sessions.state.context import Context, Gauge, assemble
from sessions.state.transcript import OpenTurn, open_turn
from sessions.store.recorder import Recorder

REPLY_LIMIT = 1024 * 1024
"""Bytes of text after which an answer is taken as cut by length: it must fit one line of the log."""

CALLS_LIMIT = 128
"""Tool calls that one reply may ask for."""

OVERFLOWS = 4
"""How often in a row a conversation is compacted because a provider refused it as too long. Each time it is half as long."""

CUT_RETRIES = 2
"""How often a model is asked again after its stream was cut."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it would be sent now: its `context` with what becomes of each attachment (`seen`), the hash of what is
    sent, and how much that is."""

    context: Context
    seen: Sequence[AttachmentVisibility]
    sha256: str
    units: TokenFeatures
    tokens: int


class ReplyRequest:
    """Asks models for one session's answers. `prune` makes the view smaller at a window and a reserve in tokens,
    `provider_failed` is told each failure of a provider by name and code."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        live: StreamingReplies,
        files: ConversationFiles,
        prune: Callable[[int | None, int], Awaitable[None]],
        compacting: Compactor,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        provider_failed: Callable[[str, str], None] = lambda _provider, _code: None,
    ) -> None:
        self._recorder = recorder
        self._live = live
        self._files = files
        self._prune = prune
        self._compacting = compacting
        self._sleep = sleep
        self._provider_failed = provider_failed
        self._gauge = Gauge()
        self._before: Context | None = None
        self._speaking: ChosenModel | None = None
        self.silent = False
        """The last answer was that there is nothing to say; nobody is shown it."""

    async def answer(self, line: FallbackChain, model: ChosenModel) -> None:
        """One answer of the models in line, `model` the first of them, after as many compactions as refusals of a request as
        too long ask for. Raises ProviderError."""
        for attempt in range(OVERFLOWS + 1):
            try:
                await line.answer(self._ask, self._size)
            except ContextOverflow:
                if attempt == OVERFLOWS or not await self._compacting.overflowed(model.window):
                    raise
            else:
                return

    def reserve(self, window: int | None) -> int:
        """Tokens of a window that are kept free; 0 of one that nobody knows."""
        return 0 if window is None else self._compacting.reserve(window)

    def _size(self, model: ChosenModel) -> int:
        """Estimated tokens of the next request to this model."""
        return self._draft(model.provider.limits(model.model).vision, model.name).tokens

    def measure(self, sight: VisionSupport | None, model: str) -> TokenFeatures:
        """What the next request would hold, for a `provider:model` of this sight. Costs what is new since the last time."""
        return self._draft(sight, model).units

    def _draft(self, sight: VisionSupport | None, model: str) -> Draft:
        transcript = self._recorder.transcript
        context = self._before = assemble(transcript, self._before)
        seen, measured = self._files.look(context, sight, model), self._gauge.measure(context)
        units = measured.units + of_files(seen) if seen else measured.units
        tokens = transcript.counts.estimate(units, model)
        return Draft(context=context, seen=seen, sha256=measured.sha256, units=units, tokens=tokens)

    async def _drafted(self, model: ChosenModel) -> Draft:
        """The next request to this model, once what is too large was pruned and compacted."""
        sight = model.provider.limits(model.model).vision
        await self._prune(model.window, self.reserve(model.window))
        view, draft = self._recorder.transcript.view, self._draft(sight, model.name)
        await self._compacting.before_request(model.window, draft.tokens)
        return draft if self._recorder.transcript.view is view else self._draft(sight, model.name)

    async def _ask(self, model: ChosenModel) -> None:
        """One answer of the model, asked again if its stream is cut."""
        for attempt in range(CUT_RETRIES + 1):
            try:
                reply = await self._stream(model)
            except ProviderError as error:
                self._provider_failed(model.provider.name, error.code)
                if attempt == CUT_RETRIES or not (isinstance(error, StreamCut) and error.retryable):
                    raise
                await self._sleep(0.5 * 2**attempt)
            else:
                self._note_reply(reply, model)
                return

    async def _stream(self, model: ChosenModel) -> Reply:
        draft = await self._drafted(model)
        transcript = self._recorder.transcript
        ordinal = self._open().ordinal
        self._recorder.append(
            RequestSent(
                purpose="answer",
                sha256=draft.sha256,
                messages=len(draft.context.messages),
                tokens=draft.tokens,
                units=draft.units,
                model="" if model.name == self._open().name else model.name,
            ),
            turn=ordinal,
        )
        shown = await self._files.show(draft.context, draft.seen)
        if news := self._files.news(model.name, shown, transcript.withheld):
            self._recorder.append(AttachmentsWithheld(model=model.name, files=news), turn=ordinal)
        self._speaking = model
        self._live.begin(ordinal, self._open().replies, self._recorder.durable)
        request = ChatRequest(
            model=model.model,
            context=shown.context if is_ours(model.provider) else with_own_tools(shown.context),
            purpose="answer",
            session=transcript.session,
            pictures=shown.pictures,
            window=model.window,
            has_fallback=bool(model.fallbacks),
            compact_at=self._compacting.provider_side(model.window),
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
        outer = ON_PAUSE.set(partial(self._live.wait, self._recorder.transcript.head))
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
        except ANYTHING as error:
            note_plugin_failure(self._recorder, model.provider.name, "stream", error)
            raise BadAnswer(f"The provider {model.provider.name} failed: {sentence_of(error)}") from error
        finally:
            ON_PAUSE.reset(outer)
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
        self.silent = is_silent(reply.text) and not calls
        seq = self._recorder.append(
            ModelReplied(
                reply=turn.replies,
                model=carriable(reply.model),
                text="" if is_silent(reply.text) else carriable(reply.text),
                calls=calls,
                stop=reply.stop,
                usage=reply.usage,
                opaque=reply.opaque,
                compacted=reply.compacted,
                provider=_unless_same(model, turn),
            ),
            turn=turn.ordinal,
            urgent=bool(calls),
        )
        self._live.end(confirmed=seq)

    def keep_streamed(self) -> None:
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
            streamed.confirmed = self._recorder.append(reply, turn=turn.ordinal)

    def _open(self) -> OpenTurn:
        return open_turn(self._recorder.transcript)


def _unless_same(model: ChosenModel, turn: OpenTurn) -> str:
    """The provider as `model_replied` names it: not at all where the turn started with it."""
    return "" if model.provider.name == turn.provider else model.provider.name


def with_own_tools(context: Context) -> Context:
    """The context with copies of what could be changed in it: a stranger's provider may fit schemas to its service in
    place."""
    return msgspec.structs.replace(context, tools=deepcopy(context.tools), parameters=deepcopy(context.parameters))
