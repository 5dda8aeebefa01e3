"""One answer of a model within a turn: build the request, read the stream, record the reply."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from gateway.conversations.context.compacting import Compactor
from gateway.conversations.context.pruning import Pruner
from gateway.conversations.context.request_attachments import ConversationFiles
from gateway.conversations.turn.streaming_reply import StreamingReplies
from gateway.conversations.turn.tool_calls import record_plugin_failure
from gateway.models.call import ModelCaller, ProviderCrashed, ReplyStream
from gateway.models.fallback import FallbackChain
from gateway.models.registry import ChosenModel
from plugins.api.chat import ChatRequest, Reasoning, Reply
from plugins.http.client import ON_PAUSE
from plugins.policies.silent_reply import SilenceFilter, is_silent
from plugins.support.errors import BadRequest, ContextOverflow
from sessions.events.events import AttachmentsWithheld, ModelReplied, RequestedCall, RequestSent
from sessions.events.handed_messages import HEARTBEAT
from sessions.events.messages import ToolMessage
from sessions.events.tokens import TokenFeatures, attachment_features
from sessions.events.vision import AttachmentVisibility, VisionSupport
from sessions.state.context import Context, Gauge, assemble
from sessions.state.transcript import OpenTurn, open_turn
from sessions.store.recorder import Recorder

OVERFLOWS = 4
"""Maximum consecutive compactions after a provider refused a request as too long. Each halves the conversation."""


def is_heartbeat(turn: OpenTurn) -> bool:
    """Return True if a turn answers the heartbeat only."""
    return turn.senders == (HEARTBEAT,)


class PreparedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The next request: its `context`, the visibility of each attachment, its hash and its size."""

    context: Context
    visibility: Sequence[AttachmentVisibility]
    sha256: str
    units: TokenFeatures
    tokens: int


class ReplyRequester:
    """Requests and records the answers of one session."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        streaming: StreamingReplies,
        files: ConversationFiles,
        pruner: Pruner,
        compacting: Compactor,
        caller: ModelCaller,
    ) -> None:
        self._recorder = recorder
        self.streaming = streaming
        self._files = files
        self._pruner = pruner
        self._compacting = compacting
        self._caller = caller
        self._gauge = Gauge()
        self._before: Context | None = None
        self._answering_model: ChosenModel | None = None
        self.silent = False
        """True if the last answer was the silent reply, which is not shown."""

    async def answer(self, chain: FallbackChain, model: ChosenModel) -> None:
        """Request an answer from the first model of the chain that can give it, and record it. If the request is too long
        for `model`, compact the view and try again.

        Raises ProviderError.
        """
        for attempt in range(OVERFLOWS + 1):
            try:
                await self._caller.call(chain, self._ask, self._size)
            except ContextOverflow:
                if attempt == OVERFLOWS or not await self._compacting.overflowed(model.window):
                    raise
            else:
                return

    def reserve(self, window: int | None) -> int:
        """Return the tokens of a window that are kept free; 0 if the window is unknown."""
        return 0 if window is None else self._compacting.reserve(window)

    def _size(self, model: ChosenModel) -> int:
        return self._prepared(model.limits.vision, model.name).tokens

    def measure(self, vision: VisionSupport | None, model: str) -> TokenFeatures:
        """Return the size of the next request to a `provider:model` with this vision support. Only what is new since the
        last call is measured."""
        return self._prepared(vision, model).units

    def _prepared(self, vision: VisionSupport | None, model: str) -> PreparedRequest:
        transcript = self._recorder.transcript
        context = self._before = assemble(transcript, self._before)
        visibility, measured = self._files.visibility(context, vision, model), self._gauge.measure(context)
        units = measured.units + attachment_features(visibility) if visibility else measured.units
        tokens = transcript.counts.estimate(units, model)
        return PreparedRequest(context=context, visibility=visibility, sha256=measured.sha256, units=units, tokens=tokens)

    async def _prepare_to_fit(self, model: ChosenModel) -> PreparedRequest:
        """Return the next request to this model, after pruning and compaction."""
        vision = model.limits.vision
        await self._pruner.prune(model.window, self.reserve(model.window))
        view, prepared = self._recorder.transcript.view, self._prepared(vision, model.name)
        await self._compacting.before_request(model.window, prepared.tokens)
        return prepared if self._recorder.transcript.view is view else self._prepared(vision, model.name)

    async def _ask(self, model: ChosenModel) -> None:
        self._record_reply(await self._request(model), model)

    async def _request(self, model: ChosenModel) -> Reply:
        """Record and send a request. If the server refuses it and attachments may be why, send it again without them."""
        prepared = await self._prepare_to_fit(model)
        transcript = self._recorder.transcript
        ordinal = self._open_turn().ordinal
        self._recorder.append(
            RequestSent(
                purpose="answer",
                sha256=prepared.sha256,
                messages=len(prepared.context.messages),
                tokens=prepared.tokens,
                units=prepared.units,
                model="" if model.name == self._open_turn().name else model.name,
            ),
            turn=ordinal,
        )
        rendered = await self._files.render(prepared.context, prepared.visibility)
        if withheld := self._files.unreported(model.name, rendered, transcript.withheld):
            self._recorder.append(AttachmentsWithheld(model=model.name, files=withheld), turn=ordinal)
        self._answering_model = model
        self.streaming.begin(ordinal, self._open_turn().replies, self._shown_before())
        request = ChatRequest(
            model=model.model,
            context=rendered.context,
            purpose="answer",
            session=transcript.session,
            pictures=rendered.pictures,
            window=model.window,
            has_fallback=bool(model.fallbacks),
            compact_at=self._compacting.provider_side(model.window),
        )
        try:
            reply = await self._read_stream(model, request, prepared.tokens)
        except BadRequest:
            if not (suspects := self._files.suspects(model.name, rendered)):
                raise
            with self._files.leaving_out(suspects):
                return await self._request(model)
        self._files.record_accepted(model.name, rendered)
        return reply

    def _shown_before(self) -> int:
        """Return the seq of the event that clients must have seen before the next answer: the last durable one, but at
        least the result of the last tool."""
        view = self._recorder.transcript.view
        returned = view.sources[-1] if len(view) and isinstance(view.messages[-1], ToolMessage) else 0
        return max(self._recorder.durable, returned)

    async def _read_stream(self, model: ChosenModel, request: ChatRequest, tokens: int) -> Reply:
        """Send one request of about this many tokens, show its text and reasoning to subscribers as they arrive, and return
        the reply."""
        silence = SilenceFilter()
        charged_as = HEARTBEAT if is_heartbeat(self._open_turn()) else ""
        outer = ON_PAUSE.set(partial(self.streaming.wait, self._recorder.transcript.head))
        try:
            async with ReplyStream(model, request, tokens=tokens, charged_as=charged_as) as stream:
                async for piece in stream:
                    if isinstance(piece, Reasoning):
                        self.streaming.add_reasoning(piece.text)
                    else:
                        self._show(silence.feed(piece.text))
        except ProviderCrashed as error:
            record_plugin_failure(self._recorder, model.provider.name, "stream", error.cause)
            raise
        finally:
            ON_PAUSE.reset(outer)
        self._show(silence.end())
        return stream.reply

    def _show(self, text: str) -> None:
        if text:
            self.streaming.add(text)

    def _record_reply(self, reply: Reply, model: ChosenModel) -> None:
        calls = tuple(RequestedCall(id=call.id, tool=call.tool, arguments=call.arguments) for call in reply.calls)
        turn, person = self._open_turn(), self._recorder.transcript.person
        self.silent = is_silent(reply.text) and not calls
        streamed = self.streaming.current
        assert streamed is not None
        streamed.end_reasoning()
        shows_notices = not calls and not self.silent and not turn.group
        seq = self._recorder.append(
            ModelReplied(
                reply=turn.replies,
                model=reply.model,
                text="" if is_silent(reply.text) else reply.text,
                calls=calls,
                stop=reply.stop,
                usage=reply.usage,
                opaque=reply.opaque,
                compacted=reply.compacted,
                provider=_unless_same(model, turn),
                reasoning=streamed.reasoning.text,
                reasoning_millis=streamed.reasoning_millis,
                cost=reply.cost,
                notice=model.spending.take_notice(person) if shows_notices and model.spending else "",
            ),
            turn=turn.ordinal,
            urgent=bool(calls),
        )
        self.streaming.end(confirmed=seq)

    def keep_streamed(self) -> None:
        """Record the streamed part of a cancelled answer."""
        turn = self._open_turn()
        streamed = self.streaming.current
        if (text := self.streaming.end()) and streamed is not None:
            assert self._answering_model is not None
            reply = ModelReplied(
                reply=streamed.reply,  # a later attempt may have begun without text
                model=self._answering_model.model,
                text=text,
                calls=(),
                stop="cancelled",
                usage=None,
                provider=_unless_same(self._answering_model, turn),
                reasoning=streamed.reasoning.text,
                reasoning_millis=streamed.reasoning_millis,
            )
            streamed.confirmed = self._recorder.append(reply, turn=turn.ordinal)

    def _open_turn(self) -> OpenTurn:
        return open_turn(self._recorder.transcript)


def _unless_same(model: ChosenModel, turn: OpenTurn) -> str:
    """Return the provider to record in `model_replied`: empty if it is the one that the turn started with."""
    return "" if model.provider.name == turn.provider else model.provider.name
