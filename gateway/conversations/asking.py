"""Asking a model something beside the conversation: one text-only request, shown to nobody, told in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from gateway.errors import sentence_of
from gateway.models.choosing import ChosenModel
from gateway.models.fallback import Line
from gateway.models.sound_replies import sound
from plugins.contracts import ChatRequest, Reply, Wishes
from plugins.errors import BadAnswer, ProviderError, StreamCut, Unreachable
from plugins.services import Answered
from plugins.strangers import ANYTHING
from sessions.context import Context, Gauge
from sessions.events import RequestSent
from sessions.messages import UserMessage
from sessions.recorder import Recorder
from sessions.wire import carriable

ANSWER_WITHIN = 180.0
"""Seconds that one answer may take as a whole."""

CHARACTERS = 8
"""Characters for each token wished, beyond which an answer is not listened to any more."""

NO_WISHES = Wishes()


class Asking:
    """An `Ask` of one session, for one `purpose`; `choose` says which model, and who answers when it cannot. Raises
    ProviderError, whatever a provider does."""

    def __init__(self, recorder: Recorder, choose: Callable[[], ChosenModel], purpose: str, turn: int | None) -> None:
        self._recorder = recorder
        self._choose = choose
        self._purpose = purpose
        self._turn = turn

    async def __call__(self, *, system: str, text: str, limit: int) -> Answered:
        message = UserMessage(text=carriable(text))
        context = Context(instructions=carriable(system), tools=(), parameters={}, messages=(message,))
        measured = Gauge().measure(context)
        answers: list[Answered] = []

        def size(model: ChosenModel) -> int:
            return round(self._recorder.transcript.counts.calibration(model.name).tokens(measured.units))

        async def ask(model: ChosenModel) -> None:
            sent = RequestSent(purpose=self._purpose, sha256=measured.sha256, messages=1, tokens=size(model))
            self._recorder.note(sent, turn=self._turn)
            session = self._recorder.transcript.session
            answers.append(await listen(model, context, self._purpose, session, limit, within=ANSWER_WITHIN))

        await Line(self._choose()).answer(ask, size)
        return answers[-1]


async def listen(
    model: ChosenModel,
    context: Context,
    purpose: str,
    session: str,
    limit: int,
    *,
    within: float,
    wishes: Wishes = NO_WISHES,
) -> Answered:
    """Return one answer of a model, of about `limit` tokens; what is much longer is not listened to to its end. Raises
    ProviderError, which is Unreachable if the answer takes more than `within` seconds: another model may be faster."""
    request = ChatRequest(
        model=model.model,
        context=context,
        purpose=purpose,
        session=session,
        window=model.window,
        others=bool(model.fallbacks),
        wishes=wishes,
    )
    try:
        async with asyncio.timeout(within):
            return await _heard(model, request, 2000 + CHARACTERS * limit)
    except TimeoutError as error:
        raise Unreachable(f"{model.name} did not answer within {within:.0f} seconds.") from error


async def _heard(model: ChosenModel, request: ChatRequest, most: int) -> Answered:
    heard = ""
    try:
        async with aclosing(model.provider.stream(request)) as stream:  # type: ignore[type-var]
            async for part in stream:
                if isinstance(part, Reply):
                    reply = sound(part)
                    return Answered(text=carriable(reply.text), model=model.name, usage=reply.usage)
                heard += part.text
                if len(heard) > most:
                    return Answered(text=carriable(heard), model=model.name)
    except ProviderError:
        raise
    except ANYTHING as error:
        raise BadAnswer(f"The provider {model.provider.name} failed: {sentence_of(error)}") from error
    raise StreamCut(f"The answer of {model.name} ended before its end.")
