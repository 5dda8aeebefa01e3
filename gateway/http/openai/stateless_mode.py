"""A chat completion without a session: straight to the model that the client names, and nothing of it is kept.

What holds for turns holds here as well: who steps in for a model that cannot answer, how long a provider is left alone, and
what is counted. What a turn adds does not: no instructions of the house, no memory, no tools but the client's own.
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
"""What providers are told that a request is for."""

log = structlog.get_logger("exuvia.openai_api")


async def heard(model: ChosenModel, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
    """What a model answers; one that says too much is cut there. Closing this closes the provider's stream."""
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
    """Watches an answer as it streams. `feed` gives what may be shown; what could be the beginning of a stop word waits
    until it is known. Once one has come, `met` is true and nothing more is given."""

    def __init__(self, words: Sequence[str]) -> None:
        self.met = False
        self._words = [word for word in words if word]
        self._held = ""

    def feed(self, text: str) -> str:
        """The text that may be shown after this piece."""
        if self.met:
            return ""
        held = self._held + text
        # Of several, the one that is whole first, however the text is cut into pieces; of those the longest.
        found = [(at + len(word), at) for word in self._words if (at := held.find(word)) >= 0]
        if found:
            self.met, self._held = True, ""
            return held[: min(found)[1]]
        keep = max((_overlap(held, word) for word in self._words), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def end(self) -> str:
        """What was held when the answer ended, which is no stop word any more."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, word: str) -> int:
    """How long the longest end of a text is with which the word begins, without being all of it."""
    longest = min(len(text), len(word) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(word[:size])), 0)


class StatelessMode:
    """Answers for one gateway. `hold` keeps the providers open while the block runs."""

    def __init__(
        self, names: ModelNames, *, hold: Callable[[], AbstractContextManager[None]], in_flight: InFlight, counters: Counters
    ) -> None:
        self._names = names
        self._hold = hold
        self._in_flight = in_flight
        self._counters = counters

    async def answer(self, asked: ParsedRequest, person: str, saying: ResponseWriter) -> None:
        """Have the question answered. Raises ModelUnknown, Refused or a ProviderError, whatever was said before that."""
        chosen = _seeing(await self._names.chosen(asked.model), asked)
        line = FallbackChain(chosen)
        session = _conversation(asked, person)

        async def ask(model: ChosenModel) -> None:
            for attempt in range(CUT_RETRIES + 1):
                saying.begin(model.name)
                try:
                    await self._ask(model, asked, session, saying, line)
                    return
                except ProviderError as error:
                    self._counters.provider_errors.add(model.provider.name, error.code)
                    if attempt == CUT_RETRIES or saying.heard or not (isinstance(error, StreamCut) and error.retryable):
                        raise
                await asyncio.sleep(0.5 * 2**attempt)

        with self._hold(), self._in_flight.one():
            await line.answer(ask, lambda _: _tokens(asked))

    async def _ask(
        self, model: ChosenModel, asked: ParsedRequest, session: str, saying: ResponseWriter, line: FallbackChain
    ) -> None:
        request = ChatRequest(
            model=model.model,
            context=asked.context,
            purpose=PURPOSE,
            session=session,
            pictures=asked.pictures,
            window=model.window,
            has_fallback=True,  # a client is told to wait, and can do so itself
            options=asked.options,
        )
        stops = StopSequences(asked.stops)
        async with aclosing(heard(model, request)) as parts:
            async for part in parts:
                if isinstance(part, Delta):
                    shown, reply = stops.feed(part.text), None
                else:
                    shown, reply = stops.end(), part
                    self._count(part, model)
                if shown:
                    await saying.text(shown)
                    if saying.heard:
                        line.pin()
                if stops.met:
                    reply = Reply(text="", model=model.model, stop="end")
                if reply is not None:
                    calls = reply.calls[:1] if asked.options.single_tool_call else reply.calls
                    await saying.end(calls, reply.stop, reply.usage)
                    return

    def _count(self, reply: Reply, model: ChosenModel) -> None:
        if (usage := reply.usage) is not None:
            self._counters.tokens.add(reply.model, "input", by=usage.input)
            self._counters.tokens.add(reply.model, "output", by=usage.output)
            self._counters.cached_tokens.add(reply.model, by=usage.cached)
            self._counters.count_spent(PURPOSE, model.name, usage)


def _seeing(chosen: ChosenModel, asked: ParsedRequest) -> ChosenModel:
    """The model, with those behind it that see what it sees. Refused where it does not see a picture: an answer that passes
    over one would be wrong without a word."""
    if not asked.pictures:
        return chosen
    if why := _unseen(chosen, asked):
        raise bad_request(f"A picture cannot be sent: {why}", "messages", "image_not_taken")
    behind = tuple(each for each in chosen.fallbacks if not _unseen(each, asked))
    return msgspec.structs.replace(chosen, fallbacks=behind)


def _unseen(model: ChosenModel, asked: ParsedRequest) -> str:
    """What of the pictures a model would not see, in words; empty if it sees all."""
    seen = attachment_visibility(asked.context.messages, model.provider.limits(model.model).vision, model.name)
    return next((f"{placeholder_line(each)[1:-1]}." for each in seen if each.form != "picture"), "")


def _conversation(asked: ParsedRequest, person: str) -> str:
    """A name for the conversation that a request goes on with: the client sends all of it each time, so what a provider
    keeps of the last request can be used for the next."""
    first = next((each.text for each in asked.context.messages if isinstance(each, UserMessage)), "")
    begins = "\0".join((person, asked.context.instructions, first)).encode("utf-8", "replace")
    return f"{PURPOSE}-{blake2b(begins, digest_size=12).hexdigest()}"


def _tokens(asked: ParsedRequest) -> int:
    """Roughly how long the request is, which decides about models that step in."""
    context = asked.context
    texts = [context.instructions, *(message.text for message in context.messages)]
    texts += [call.arguments for m in context.messages if isinstance(m, AssistantMessage) for call in m.calls]
    texts += [f"{tool.description}{tool.parameters}" for tool in context.tools]
    return sum(estimate(text) + MESSAGE for text in texts)
