"""A chat completion without a session: straight to the model that the client names, and nothing of it is kept.

What holds for turns holds here as well: who steps in for a model that cannot answer, how long a provider is left alone, and
what is counted. What a turn adds does not: no instructions of the house, no memory, no tools but the client's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, aclosing
from hashlib import blake2b

import msgspec

from gateway.conversations.answering import CUT_RETRIES
from gateway.measuring.figures import Figures
from gateway.models.choosing import ChosenModel
from gateway.models.fallback import Line
from gateway.openai_api.asked import Asked
from gateway.openai_api.in_hand import InHand
from gateway.openai_api.listening import heard
from gateway.openai_api.model_names import ModelNames
from gateway.openai_api.refusals import bad_request
from gateway.openai_api.saying import Saying
from gateway.openai_api.stop_words import StopWords
from plugins.contracts import ChatRequest, Delta, Reply
from plugins.errors import ProviderError, StreamCut
from sessions.messages import AssistantMessage, UserMessage
from sessions.sight import look, said_of
from sessions.tokens import MESSAGE, estimate

PURPOSE = "api"
"""What providers are told that a request is for."""


class Stateless:
    """Answers for one gateway. `hold` keeps the providers open while the block runs."""

    def __init__(
        self, names: ModelNames, *, hold: Callable[[], AbstractContextManager[None]], in_hand: InHand, figures: Figures
    ) -> None:
        self._names = names
        self._hold = hold
        self._in_hand = in_hand
        self._figures = figures

    async def answer(self, asked: Asked, person: str, saying: Saying) -> None:
        """Have the question answered. Raises ModelUnknown, Refused or a ProviderError, whatever was said before that."""
        chosen = _seeing(await self._names.chosen(asked.model), asked)
        line = Line(chosen)
        session = _conversation(asked, person)

        async def ask(model: ChosenModel) -> None:
            for attempt in range(CUT_RETRIES + 1):
                saying.begin(model.name)
                try:
                    await self._ask(model, asked, session, saying, line)
                    return
                except ProviderError as error:
                    self._figures.provider_errors.add(model.provider.name, error.code)
                    if attempt == CUT_RETRIES or saying.heard or not (isinstance(error, StreamCut) and error.retryable):
                        raise
                await asyncio.sleep(0.5 * 2**attempt)

        with self._hold(), self._in_hand.one():
            await line.answer(ask, lambda _: _tokens(asked))

    async def _ask(self, model: ChosenModel, asked: Asked, session: str, saying: Saying, line: Line) -> None:
        request = ChatRequest(
            model=model.model,
            context=asked.context,
            purpose=PURPOSE,
            session=session,
            pictures=asked.pictures,
            window=model.window,
            others=True,  # a client is told to wait, and can do so itself
            wishes=asked.wishes,
        )
        stops = StopWords(asked.stops)
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
                        line.settle()
                if stops.met:
                    reply = Reply(text="", model=model.model, stop="end")
                if reply is not None:
                    calls = reply.calls[:1] if asked.wishes.one_call else reply.calls
                    await saying.end(calls, reply.stop, reply.usage)
                    return

    def _count(self, reply: Reply, model: ChosenModel) -> None:
        if (usage := reply.usage) is not None:
            self._figures.tokens.add(reply.model, "input", by=usage.input)
            self._figures.tokens.add(reply.model, "output", by=usage.output)
            self._figures.cached_tokens.add(reply.model, by=usage.cached)
            self._figures.pay(PURPOSE, model.name, usage)


def _seeing(chosen: ChosenModel, asked: Asked) -> ChosenModel:
    """The model, with those behind it that see what it sees. Refused where it does not see a picture: an answer that passes
    over one would be wrong without a word."""
    if not asked.pictures:
        return chosen
    if why := _unseen(chosen, asked):
        raise bad_request(f"A picture cannot be sent: {why}", "messages", "image_not_taken")
    behind = tuple(each for each in chosen.fallbacks if not _unseen(each, asked))
    return msgspec.structs.replace(chosen, fallbacks=behind)


def _unseen(model: ChosenModel, asked: Asked) -> str:
    """What of the pictures a model would not see, in words; empty if it sees all."""
    seen = look(asked.context.messages, model.provider.limits(model.model).sight, model.name)
    return next((f"{said_of(each)[1:-1]}." for each in seen if each.form != "picture"), "")


def _conversation(asked: Asked, person: str) -> str:
    """A name for the conversation that a request goes on with: the client sends all of it each time, so what a provider
    keeps of the last request can be used for the next."""
    first = next((each.text for each in asked.context.messages if isinstance(each, UserMessage)), "")
    begins = "\0".join((person, asked.context.instructions, first)).encode("utf-8", "replace")
    return f"{PURPOSE}-{blake2b(begins, digest_size=12).hexdigest()}"


def _tokens(asked: Asked) -> int:
    """Roughly how long the request is, which decides about models that step in."""
    context = asked.context
    texts = [context.instructions, *(message.text for message in context.messages)]
    texts += [call.arguments for m in context.messages if isinstance(m, AssistantMessage) for call in m.calls]
    texts += [f"{tool.description}{tool.parameters}" for tool in context.tools]
    return sum(estimate(text) + MESSAGE for text in texts)
