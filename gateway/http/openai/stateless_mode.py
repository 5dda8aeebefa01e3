"""Chat completions without a session: the request goes to the named model, and nothing is stored.

Fallback models, the providers' rate limits and circuit breakers, and the counters apply as for turns. Instructions, memory
and tools of the gateway do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from gateway.http.concurrency import InFlight
from gateway.http.openai.api_errors import bad_request
from gateway.http.openai.model_names import ModelNames
from gateway.http.openai.request_parser import ParsedRequest
from gateway.http.openai.response_writer import ResponseWriter
from gateway.metrics.counters import Counters
from gateway.models.call import ModelCaller, ReplyStream, context_tokens
from gateway.models.fallback import FallbackChain
from gateway.models.registry import ChosenModel
from gateway.models.spending.spending_log import Payer
from plugins.api.chat import ChatRequest, Reasoning
from sessions.events.messages import UserMessage
from sessions.events.vision import attachment_visibility, placeholder_line

PURPOSE = "api"
"""The purpose that providers and counters see."""


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
    """Chat completions without a session."""

    def __init__(self, names: ModelNames, caller: ModelCaller, in_flight: InFlight, counters: Counters) -> None:
        self._names = names
        self._caller = caller
        self._in_flight = in_flight
        self._counters = counters

    async def answer(self, parsed: ParsedRequest, person: str, writer: ResponseWriter) -> None:
        """Answer a request.

        Raises:
            ModelUnknown: There is no such model.
            ApiError: The request is invalid, or the client's token is no longer valid.
            ProviderError: All models failed, perhaps after text was sent.
        """
        chosen = _with_vision(await self._names.chosen(parsed.model, person), parsed)
        chain, session = FallbackChain(chosen), _conversation(parsed, person)
        if chosen.spending is not None:
            chosen.spending.know(session, Payer(person))

        async def ask(model: ChosenModel) -> None:
            writer.begin(model.name)
            await self._ask(model, parsed, session, writer, chain)

        with self._in_flight.one():
            await self._caller.call(chain, ask, lambda _: context_tokens(parsed.context))

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

        async def show(text: str) -> None:
            if text:
                await writer.text(text)
                if writer.has_sent:
                    chain.pin()

        stops = StopSequences(parsed.stops)
        async with ReplyStream(model, request) as stream:
            async for piece in stream:
                if isinstance(piece, Reasoning):
                    await writer.reasoning(piece.text)
                    continue
                await show(stops.feed(piece.text))
                if stops.met:
                    await writer.end((), "end", None)
                    return
        reply = stream.reply
        if reply.usage is not None:
            self._counters.count_reply(PURPOSE, model.name, reply.model, reply.usage)
        await show(stops.end())
        calls = reply.calls[:1] if parsed.options.single_tool_call else reply.calls
        await writer.end(calls, reply.stop, reply.usage)


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
    renderings = attachment_visibility(parsed.context.messages, model.limits.vision, model.name)
    return next((f"{placeholder_line(each)[1:-1]}." for each in renderings if each.form != "picture"), "")


def _conversation(parsed: ParsedRequest, person: str) -> str:
    """Return an identifier of the conversation that a request continues, so that a provider can reuse its cache."""
    first = next((each.text for each in parsed.context.messages if isinstance(each, UserMessage)), "")
    prefix = "\0".join((person, parsed.context.instructions, first)).encode("utf-8", "replace")
    return f"{PURPOSE}-{blake2b(prefix, digest_size=12).hexdigest()}"
