"""Chat completions without a session: the request goes to the named model, and nothing is stored.

Fallback models, the providers' rate limits and circuit breakers, and the counters apply as for turns. Instructions, memory
and tools of the gateway do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing
from hashlib import blake2b

import msgspec
import structlog

from gateway.conversations.turn.answering import CALLS_LIMIT, CUT_RETRIES, REPLY_LIMIT
from gateway.http.openai.api_errors import bad_request
from gateway.http.openai.in_flight import InFlight
from gateway.http.openai.model_names import ModelNames
from gateway.http.openai.request_parser import ParsedRequest
from gateway.http.openai.response_writer import ResponseWriter
from gateway.metrics.counters import Counters
from gateway.models.fallback import FallbackChain
from gateway.models.registry import ChosenModel
from gateway.models.sound_replies import sound
from gateway.support.errors import sentence_of
from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.support.errors import BadAnswer, ProviderError, StreamCut
from plugins.support.untrusted import reraise_cancellation
from sessions.events.codec import replace_surrogates
from sessions.events.messages import AssistantMessage, UserMessage
from sessions.events.tokens import MESSAGE, estimate
from sessions.events.vision import attachment_visibility, placeholder_line

PURPOSE = "api"
"""The purpose that providers and counters see."""

log = structlog.get_logger("exuvia.openai_api")


async def checked_stream(model: ChosenModel, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
    """Yield a model's answer, cut at its limits. Closing this closes the provider's stream."""
    size = 0
    try:
        async with aclosing(model.provider.stream(request)) as stream:  # type: ignore[type-var]
            async for part in stream:
                if isinstance(part, Reply):
                    yield _checked(sound(part))
                    return
                text = replace_surrogates(part.text)
                size += len(text.encode())
                yield Delta(text)
                if size > REPLY_LIMIT:
                    yield Reply(text="", model=model.model, stop="length")
                    return
    except ProviderError:
        raise
    except GeneratorExit:
        raise  # nobody listens any more
    except BaseException as error:
        reraise_cancellation(error)
        log.exception("provider_failed", provider=model.provider.name)
        raise BadAnswer(f"The provider {model.provider.name} failed: {sentence_of(error)}") from error
    raise StreamCut(f"The answer of {model.name} ended before its end.")


def _checked(reply: Reply) -> Reply:
    if len(reply.calls) > CALLS_LIMIT:
        raise BadAnswer(f"The model asked for {len(reply.calls)} tools at once; {CALLS_LIMIT} are taken.")
    return reply


class StopSequences:
    """Finds stop sequences in a stream. Text that may be the beginning of one is held back until that is decided.

    Once one was found, `met` is True and no more text is returned.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.met = False
        self._words = [word for word in words if word]
        self._held = ""

    def feed(self, text: str) -> str:
        """Add a piece and return the text that may be sent."""
        if self.met:
            return ""
        held = self._held + text
        # Of several, the first to be complete, however the text is split; of those the longest.
        found = [(at + len(word), at) for word in self._words if (at := held.find(word)) >= 0]
        if found:
            self.met, self._held = True, ""
            return held[: min(found)[1]]
        keep = max((_overlap(held, word) for word in self._words), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def end(self) -> str:
        """Return the text that was held back when the answer ended."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, word: str) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of `word`."""
    longest = min(len(text), len(word) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(word[:size])), 0)


class StatelessMode:
    """Chat completions without a session. `hold` keeps the providers open while its block runs."""

    def __init__(
        self, names: ModelNames, *, hold: Callable[[], AbstractContextManager[None]], in_flight: InFlight, counters: Counters
    ) -> None:
        self._names = names
        self._hold = hold
        self._in_flight = in_flight
        self._counters = counters

    async def answer(self, parsed: ParsedRequest, person: str, writer: ResponseWriter) -> None:
        """Answer a request.

        Raises:
            ModelUnknown: There is no such model.
            ApiError: The request is invalid, or the client's token is no longer valid.
            ProviderError: All models failed, perhaps after text was sent.
        """
        chosen = _with_vision(await self._names.chosen(parsed.model), parsed)
        chain = FallbackChain(chosen)
        session = _conversation(parsed, person)

        async def ask(model: ChosenModel) -> None:
            for attempt in range(CUT_RETRIES + 1):
                writer.begin(model.name)
                try:
                    await self._ask(model, parsed, session, writer, chain)
                    return
                except ProviderError as error:
                    self._counters.provider_errors.add(model.provider.name, error.code)
                    if attempt == CUT_RETRIES or writer.has_sent or not (isinstance(error, StreamCut) and error.retryable):
                        raise
                await asyncio.sleep(0.5 * 2**attempt)

        with self._hold(), self._in_flight.one():
            await chain.answer(ask, lambda _: _tokens(parsed))

    async def _ask(
        self, model: ChosenModel, parsed: ParsedRequest, session: str, writer: ResponseWriter, chain: FallbackChain
    ) -> None:
        request = ChatRequest(
            model=model.model,
            context=parsed.context,
            purpose=PURPOSE,
            session=session,
            pictures=parsed.pictures,
            window=model.window,
            has_fallback=True,  # a client can wait by itself
            options=parsed.options,
        )
        stops = StopSequences(parsed.stops)
        async with aclosing(checked_stream(model, request)) as parts:
            async for part in parts:
                if isinstance(part, Delta):
                    shown, reply = stops.feed(part.text), None
                else:
                    shown, reply = stops.end(), part
                    self._count(part, model)
                if shown:
                    await writer.text(shown)
                    if writer.has_sent:
                        chain.pin()
                if stops.met:
                    reply = Reply(text="", model=model.model, stop="end")
                if reply is not None:
                    calls = reply.calls[:1] if parsed.options.single_tool_call else reply.calls
                    await writer.end(calls, reply.stop, reply.usage)
                    return

    def _count(self, reply: Reply, model: ChosenModel) -> None:
        if (usage := reply.usage) is not None:
            self._counters.tokens.add(reply.model, "input", by=usage.input)
            self._counters.tokens.add(reply.model, "output", by=usage.output)
            self._counters.cached_tokens.add(reply.model, by=usage.cached)
            self._counters.count_spent(PURPOSE, model.name, usage)


def _with_vision(chosen: ChosenModel, parsed: ParsedRequest) -> ChosenModel:
    """Return the model with those of its fallbacks that see every picture that it sees.

    Raises:
        ApiError: The model does not see a picture; an answer that silently ignores one would be wrong.
    """
    if not parsed.pictures:
        return chosen
    if why := _unseen(chosen, parsed):
        raise bad_request(f"A picture cannot be sent: {why}", "messages", "image_not_taken")
    fallbacks = tuple(each for each in chosen.fallbacks if not _unseen(each, parsed))
    return msgspec.structs.replace(chosen, fallbacks=fallbacks)


def _unseen(model: ChosenModel, parsed: ParsedRequest) -> str:
    """Return what the model would not see of the pictures, as a sentence; empty if it sees all."""
    renderings = attachment_visibility(parsed.context.messages, model.provider.limits(model.model).vision, model.name)
    return next((f"{placeholder_line(each)[1:-1]}." for each in renderings if each.form != "picture"), "")


def _conversation(parsed: ParsedRequest, person: str) -> str:
    """Return an identifier of the conversation that a request continues, so that a provider can reuse its cache."""
    first = next((each.text for each in parsed.context.messages if isinstance(each, UserMessage)), "")
    prefix = "\0".join((person, parsed.context.instructions, first)).encode("utf-8", "replace")
    return f"{PURPOSE}-{blake2b(prefix, digest_size=12).hexdigest()}"


def _tokens(parsed: ParsedRequest) -> int:
    """Return the estimated length of the request, by which fallback models are chosen."""
    context = parsed.context
    texts = [context.instructions, *(message.text for message in context.messages)]
    texts += [call.arguments for m in context.messages if isinstance(m, AssistantMessage) for call in m.calls]
    texts += [f"{tool.description}{tool.parameters}" for tool in context.tools]
    return sum(estimate(text) + MESSAGE for text in texts)
