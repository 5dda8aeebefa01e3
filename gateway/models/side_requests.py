"""Requests to a model outside the conversation: one text-only request, not shown to anybody, recorded in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from gateway.models.fallback import FallbackChain
from gateway.models.registry import ChosenModel
from gateway.models.sound_replies import sound
from gateway.support.errors import sentence_of
from plugins.api.chat import ChatRequest, Reply, RequestOptions
from plugins.api.services import ModelAnswer
from plugins.support.errors import BadAnswer, ProviderError, StreamCut, Unreachable
from plugins.support.untrusted import reraise_cancellation
from sessions.events.codec import replace_surrogates
from sessions.events.events import RequestSent
from sessions.events.messages import UserMessage
from sessions.state.context import Context, Gauge
from sessions.store.recorder import Recorder

ANSWER_WITHIN = 180.0
"""Seconds that one answer may take in total."""

CHARACTERS = 8
"""Characters for each requested token after which an answer is cut off."""

NO_WISHES = RequestOptions()


class SideRequests:
    """The `Ask` of one session, for one `purpose`. `choose` returns the model with its fallbacks. Raises only
    ProviderError."""

    def __init__(self, recorder: Recorder, choose: Callable[[], ChosenModel], purpose: str, turn: int | None) -> None:
        self._recorder = recorder
        self._choose = choose
        self._purpose = purpose
        self._turn = turn

    async def __call__(self, *, system: str, text: str, limit: int) -> ModelAnswer:
        message = UserMessage(text=replace_surrogates(text))
        context = Context(instructions=replace_surrogates(system), tools=(), parameters={}, messages=(message,))
        measured = Gauge().measure(context)
        answers: list[ModelAnswer] = []

        def size(model: ChosenModel) -> int:
            return round(self._recorder.transcript.counts.calibration(model.name).tokens(measured.units))

        async def ask(model: ChosenModel) -> None:
            sent = RequestSent(purpose=self._purpose, sha256=measured.sha256, messages=1, tokens=size(model))
            self._recorder.append(sent, turn=self._turn)
            session = self._recorder.transcript.session
            answers.append(await listen(model, context, self._purpose, session, limit, within=ANSWER_WITHIN))

        await FallbackChain(self._choose()).answer(ask, size)
        return answers[-1]


async def listen(
    model: ChosenModel,
    context: Context,
    purpose: str,
    session: str,
    limit: int,
    *,
    within: float,
    wishes: RequestOptions = NO_WISHES,
) -> ModelAnswer:
    """Return one answer of a model of about `limit` tokens; an answer that is much longer is cut off.

    Raises ProviderError; Unreachable if the answer takes more than `within` seconds, since another model may be faster.
    """
    request = ChatRequest(
        model=model.model,
        context=context,
        purpose=purpose,
        session=session,
        window=model.window,
        has_fallback=bool(model.fallbacks),
        options=wishes,
    )
    try:
        async with asyncio.timeout(within):
            return await _heard(model, request, 2000 + CHARACTERS * limit)
    except TimeoutError as error:
        raise Unreachable(f"{model.name} did not answer within {within:.0f} seconds.") from error


async def _heard(model: ChosenModel, request: ChatRequest, most: int) -> ModelAnswer:
    heard = ""
    try:
        async with aclosing(model.provider.stream(request)) as stream:  # type: ignore[type-var]
            async for part in stream:
                if isinstance(part, Reply):
                    reply = sound(part)
                    return ModelAnswer(text=replace_surrogates(reply.text), model=model.name, usage=reply.usage)
                heard += part.text
                if len(heard) > most:
                    return ModelAnswer(text=replace_surrogates(heard), model=model.name)
    except ProviderError:
        raise
    except BaseException as error:
        reraise_cancellation(error)
        raise BadAnswer(f"The provider {model.provider.name} failed: {sentence_of(error)}") from error
    raise StreamCut(f"The answer of {model.name} was interrupted.")
