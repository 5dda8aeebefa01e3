"""Calls to models: the only loop over a provider's stream, with its limits, checks and retries, for all requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import msgspec
import structlog

from gateway.metrics.counters import Counters
from gateway.models.fallback import FallbackChain
from gateway.models.registry import ChosenModel
from gateway.models.spending.budgets import RequestRefused
from gateway.models.spending.spending import Charge, ModelRequest
from gateway.support.errors import error_fields, sentence_of
from plugins.api.chat import CallDraft, ChatRequest, Delta, Reasoning, Reply, RequestOptions, StreamPart
from plugins.api.plugin_services import ModelAnswer
from plugins.support.errors import BadAnswer, ProviderError, StreamCut, Unreachable
from plugins.support.untrusted import is_own_object, reraise_cancellation
from sessions.events.codec import replace_surrogates
from sessions.events.messages import AssistantMessage, Usage, UserMessage
from sessions.events.tokens import MESSAGE, estimate
from sessions.state.context import Context

REPLY_LIMIT = 1024 * 1024
"""Bytes of text after which an answer is cut off as too long: it must fit one line of the log."""

REASONING_LIMIT = 256 * 1024
"""Bytes of reasoning that are kept of one reply, with the mark."""

REASONING_CUT = "\n[…]"
"""The mark at the end of reasoning that was cut off."""

CALLS_LIMIT = 128
"""Maximum tool calls in one reply."""

CUT_RETRIES = 2
"""Retries after a stream was interrupted."""

MOST_TOKENS = 10**9
"""The limit to which a provider's token counts are clamped. No real request has as many."""

MOST_COST = 10**10
"""The largest cost, in millionths of a dollar, that a provider may report for one request; a larger one is ignored."""

SPARE_BYTES, TOKEN_BYTES = 2000, 8
"""An answer outside a conversation is cut off after SPARE_BYTES, plus TOKEN_BYTES for each requested token."""

T = TypeVar("T")

log = structlog.get_logger("exuvia.models")


class ProviderCrashed(BadAnswer):
    """A provider raised something other than a ProviderError, or yielded something that the API does not allow."""

    def __init__(self, sentence: str, cause: BaseException) -> None:
        super().__init__(sentence)
        self.cause = cause


class ReplyStream:
    """One request to a model: an asynchronous iterator over the pieces of the text and of the reasoning; afterwards `reply`
    is the whole reply.

    Use as an async context manager; leaving the block cancels the request. All fields of the reply are checked. Its text is
    cut off after `limit` bytes in UTF-8, its reasoning after `REASONING_LIMIT`. What it costs is charged as `charged_as`,
    empty for its purpose.

    Budgets reserve the most that the request may cost: `tokens` is the estimate of its input, 0 to make one, and `output`
    the most that the answer may have, None if only the model and the parameters limit it.

    Raises:
        ProviderError: The model could not reply. Nothing else is raised, whatever the provider does: StreamCut if the
            stream ends without a reply, ProviderCrashed if the provider's code fails.
    """

    def __init__(
        self,
        model: ChosenModel,
        request: ChatRequest,
        limit: int = REPLY_LIMIT,
        *,
        tokens: int = 0,
        output: int | None = None,
        charged_as: str = "",
    ) -> None:
        self._tokens = tokens
        self._output = output
        self._model = model
        self._request = request
        self._charged_as = charged_as or request.purpose
        self._limit = self._room = limit
        self._reasoning_room = REASONING_LIMIT - len(REASONING_CUT.encode())
        self._pieces: list[str] = []
        self._reply: Reply | None = None
        self._charge: Charge | None = None
        self._stream: Any = None
        self._next: Callable[[], Awaitable[StreamPart]] = self._send

    @property
    def reply(self) -> Reply:
        """The complete reply, once the iteration has ended."""
        assert self._reply is not None
        return self._reply

    async def __aenter__(self) -> Self:
        if (spending := self._model.spending) is not None:
            self._charge = await spending.begin(
                ModelRequest(
                    session=self._request.session,
                    purpose=self._charged_as,
                    model=self._model.name,
                    price=spending.price(self._model.provider, self._model.model),
                    tokens=lambda: self._tokens or context_tokens(self._request.context),
                    output=self._most_output(spending.reserved_output),
                )
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._charge is not None:
            self._charge.end(self._estimated if self._may_cost(error) else None)
        if self._stream is None:
            return
        try:
            await self._stream.aclose()
        except BaseException as failed:
            reraise_cancellation(failed)
            crashed = self._crashed(failed)
            if error is None:
                raise crashed from failed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta | Reasoning:
        while self._reply is None:
            if (piece := await self._read()).text:
                if isinstance(piece, Delta):
                    self._pieces.append(piece.text)
                return piece
        raise StopAsyncIteration

    async def _send(self) -> StreamPart:
        """Send the request and return the first part of the stream."""
        request = self._request if is_own_object(self._model.provider) else _own_copy(self._request)
        self._stream = self._model.provider.stream(request)
        self._next = aiter(self._stream).__anext__
        return await self._next()

    async def _read(self) -> Delta | Reasoning:
        """Return the next piece, possibly empty; the last part sets the reply."""
        try:
            part = await self._next()
            if isinstance(part, Reply):
                return Delta(self._end(checked_reply(part)))
            text = replace_surrogates(part.text)
            if isinstance(part, Reasoning):
                return Reasoning(self._shortened_reasoning(text))
        except ProviderError:
            raise
        except StopAsyncIteration:
            raise StreamCut(f"The answer of {self._model.name} was interrupted.") from None
        except BaseException as error:
            reraise_cancellation(error)
            raise self._crashed(error) from error
        size = len(text.encode())
        if size > self._room:
            text = _shortened(text, self._room)
            self._finish(Reply(text="".join((*self._pieces, text)), model=self._request.model, stop="length"))
        self._room -= size
        return part if text is part.text and isinstance(part, Delta) else Delta(text)

    def _shortened_reasoning(self, text: str) -> str:
        """Return a piece of reasoning, cut off with a mark where all of it becomes too long, and empty after that."""
        room = self._reasoning_room
        self._reasoning_room -= len(text.encode())
        if self._reasoning_room >= 0 or not text:
            return text
        self._reasoning_room = -1
        return _shortened(text, room) + REASONING_CUT if room >= 0 else ""

    def _end(self, reply: Reply) -> str:
        """Set the reply and return the text that was not streamed."""
        text = _shortened(reply.text, self._limit)
        if len(text) < len(reply.text):
            reply = msgspec.structs.replace(reply, text=text, calls=(), stop="length")
        self._finish(reply)
        streamed = "".join(self._pieces)
        return text[len(streamed) :] if text.startswith(streamed) else ""

    def _most_output(self, usual: int) -> int:
        """Return the most tokens that the answer may have; `usual` if neither the parameters nor the caller say so."""
        asked = self._request.context.parameters.get("max_tokens")
        named = [most for most in (asked, self._output) if isinstance(most, int) and most > 0] or [usual]
        return min([*named, self._model.limits.output or named[0]])

    def _may_cost(self, error: BaseException | None) -> bool:
        """Return True if the request may cost something although no reply came."""
        return self._stream is not None and may_cost(error, begun=bool(self._pieces))

    def _estimated(self) -> Usage:
        text = "".join(self._pieces)
        return Usage(input=context_tokens(self._request.context), output=estimate(text) if text else 0)

    def _finish(self, reply: Reply) -> None:
        """Set the reply, and charge it."""
        self._reply = reply
        if self._charge is not None:
            cost = self._charge.settle(reply.usage, self._estimated, reported=reply.cost)
            self._reply = msgspec.structs.replace(reply, cost=cost)

    def _crashed(self, error: BaseException) -> ProviderCrashed:
        name, sentence = self._model.provider.name, sentence_of(error)
        log.error("provider_failed", provider=name, **error_fields(error))
        return ProviderCrashed(f"The provider {name} failed: {sentence}", error)


def may_cost(error: BaseException | None, *, begun: bool) -> bool:
    """Return True if a request that was sent and ended with this error may cost something: the answer had `begun`, or nobody
    knows."""
    unknown = isinstance(error, StreamCut) or (isinstance(error, Unreachable) and error.unanswered)
    return begun or unknown or not isinstance(error, ProviderError)


def checked_reply(reply: Reply) -> Reply:
    """Return a reply whose fields have the declared types, whose texts can be encoded in UTF-8, and whose usage is clamped,
    so that sums of usages do not overflow.

    Raises:
        BadAnswer: It has too many tool calls, or their arguments are too long.
        msgspec.ValidationError, TypeError: A field has another type.
    """
    checked = msgspec.convert(msgspec.to_builtins(reply), Reply)
    if len(checked.calls) > CALLS_LIMIT:
        raise BadAnswer(f"The model requested {len(checked.calls)} tool calls at once; at most {CALLS_LIMIT} are allowed.")
    if sum(len(call.arguments) for call in checked.calls) > REPLY_LIMIT:
        raise BadAnswer("The model requested tool calls with more than a megabyte of arguments.")
    calls = tuple(
        CallDraft(
            id=replace_surrogates(call.id), tool=replace_surrogates(call.tool), arguments=replace_surrogates(call.arguments)
        )
        for call in checked.calls
    )
    return msgspec.structs.replace(
        checked,
        text=replace_surrogates(checked.text),
        model=replace_surrogates(checked.model),
        calls=calls,
        usage=_checked_usage(checked.usage),
        cost=checked.cost if checked.cost is not None and 0 <= checked.cost <= MOST_COST else None,
        opaque=checked.opaque and replace_surrogates(checked.opaque),
    )


def _checked_usage(usage: Usage | None) -> Usage | None:
    if usage is None:
        return None
    return Usage(**{name: min(getattr(usage, name), MOST_TOKENS) for name in usage.__struct_fields__})


def _shortened(text: str, limit: int) -> str:
    """Return the text, cut off after a number of bytes in UTF-8."""
    data = text.encode()
    return text if len(data) <= limit else data[:limit].decode(errors="ignore")


def _own_copy(request: ChatRequest) -> ChatRequest:
    """Return the request with copies of its mutable parts: a third-party provider may modify schemas in place."""
    context, options = request.context, deepcopy(request.options)
    context = msgspec.structs.replace(context, tools=deepcopy(context.tools), parameters=deepcopy(context.parameters))
    return msgspec.structs.replace(request, context=context, options=options, pictures=dict(request.pictures))


class TextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A text-only request outside a conversation: for an answer of about `limit` tokens, with a timeout of `seconds`."""

    context: Context
    purpose: str
    session: str
    limit: int
    seconds: float
    options: RequestOptions = RequestOptions()


def context_tokens(context: Context) -> int:
    """Return an estimate of the tokens of a context, without its pictures."""
    texts = [context.instructions, *(message.text for message in context.messages)]
    texts += [call.arguments for each in context.messages if isinstance(each, AssistantMessage) for call in each.calls]
    texts += [f"{tool.description}{tool.parameters}" for tool in context.tools]
    return sum(estimate(text) + MESSAGE for text in texts)


def text_context(system: str, text: str) -> Context:
    """Return the context of one message with instructions."""
    message = UserMessage(text=replace_surrogates(text))
    return Context(instructions=replace_surrogates(system), tools=(), parameters={}, messages=(message,))


async def text_answer(model: ChosenModel, request: TextRequest) -> ModelAnswer:
    """Return the text of a model's reply, whatever its stop reason. A text much longer than requested is cut off.

    Raises:
        ProviderError: The model could not reply; Unreachable if it took too long, so that a fallback is tried.
    """
    sent = ChatRequest(
        model=model.model,
        context=request.context,
        purpose=request.purpose,
        session=request.session,
        window=model.window,
        has_fallback=bool(model.fallbacks),
        options=request.options,
    )
    most_bytes = min(REPLY_LIMIT, SPARE_BYTES + TOKEN_BYTES * request.limit)
    try:
        async with (
            asyncio.timeout(request.seconds),
            ReplyStream(model, sent, most_bytes, output=SPARE_BYTES // 4 + 2 * request.limit) as stream,
        ):
            async for _ in stream:
                pass
    except TimeoutError as error:
        raise Unreachable(f"{model.name} did not answer within {request.seconds:.0f} seconds.") from error
    return ModelAnswer(text=stream.reply.text, model=model.name, usage=stream.reply.usage)


AskText: TypeAlias = Callable[[ChosenModel, TextRequest], Awaitable[ModelAnswer]]
"""Sends one text-only request to one model."""


class ModelCaller:
    """Calls the models of fallback chains: retries after cut streams, counts failures, and keeps providers open meanwhile.

    Args:
        counters: The gateway's counters.
        hold: Keeps the open providers open while its block runs.
        sleep: Waits before a retry, for a number of seconds.
    """

    def __init__(
        self,
        counters: Counters,
        *,
        hold: Callable[[], AbstractContextManager[None]] = nullcontext,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._counters = counters
        self._hold = hold
        self._sleep = sleep

    async def call(
        self, chain: FallbackChain, ask: Callable[[ChosenModel], Awaitable[T]], tokens: Callable[[ChosenModel], int]
    ) -> T:
        """Return the result of `ask` with the first model of the chain that answers.

        `ask` is called again after a cut stream, unless a client has already seen part of the answer.

        Raises:
            ProviderError: No model answered, see `FallbackChain.answer`.
        """

        async def ask_again(model: ChosenModel) -> T:
            attempt = 0
            while True:
                try:
                    return await ask(model)
                except RequestRefused:
                    raise
                except ProviderError as error:
                    self._counters.provider_errors.add(model.provider.name, error.code)
                    if attempt == CUT_RETRIES or chain.pinned or not (isinstance(error, StreamCut) and error.retryable):
                        raise
                await self._sleep(0.5 * 2**attempt)
                attempt += 1

        with self._hold():
            return await chain.answer(ask_again, tokens)

    async def answer(self, model: ChosenModel, request: TextRequest, ask: AskText = text_answer) -> ModelAnswer:
        """Return the answer of a model, or of one of its fallbacks, to a request that belongs to no session's log; count its
        tokens.

        Raises:
            ProviderError: No model answered.
        """
        tokens = context_tokens(request.context)
        answer = await self.call(FallbackChain(model), lambda each: ask(each, request), lambda _: tokens)
        if answer.usage is not None:
            self._counters.count_spent(request.purpose, answer.model, answer.usage)
        return answer
