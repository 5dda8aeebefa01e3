"""Who answers a turn: the model that was asked, and when it cannot, the next one of `agent.fallback_models`.

A model that failed steps aside until the turn ends, so that the rounds of one turn are not each delayed by it; the next turn
begins with the first model again, unless its provider's breaker is open or it said for how long it takes no requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec
import structlog

from gateway.models.registry import ChosenModel
from gateway.support.errors import SENTENCE_LIMIT, ModelUnknown, sentence_of
from plugins.support.errors import (
    BadAnswer,
    ContextOverflow,
    CredentialsRefused,
    NoSuchModel,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)

OTHERS_MAY = (Unreachable, StreamCut, RateLimited, CredentialsRefused, NoSuchModel, BadAnswer)
"""Failures of a provider that another one need not share. A request that is refused as such, or too long, is the
session's own matter."""

log = structlog.get_logger("exuvia.models")

MOST, ROOM = 230, 150
"""Characters of the provider's own sentence, and of the names."""


async def with_names(error: NoSuchModel, model: ChosenModel) -> NoSuchModel:
    """Return the error with the models that the provider lists and that answer, and with the way to choose one."""
    name = model.provider.name
    listing = await model.listings.without(name, model.model)
    what, known = sentence_of(error)[:MOST].rstrip("."), _listed(listing.chats if listing else ())
    how = f"with /model {name}:NAME, or for all conversations with agent.model"
    named = NoSuchModel(f"{what}. {f'It has {known}; choose' if known else 'Choose'} one {how}.")
    named.__cause__ = error.__cause__
    return named


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are; empty if there are none."""
    shown: list[str] = []
    for name in names:
        if sum(map(len, shown)) + len(name) > ROOM:
            break
        shown.append(name)
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if shown and more else "")


class NoneAnswered(ProviderError):
    """Several models were to answer and none could; the code is that of the first one's failure."""

    def __init__(self, sentence: str, code: str) -> None:
        super().__init__(sentence)
        self.code = code


def none_answered(failures: list[tuple[str, ProviderError]]) -> ProviderError:
    """The error when several models failed, with each one's name and reason. It is ContextOverflow if that was the reason of
    any: that one could answer a shorter conversation, and a conversation can be made shorter."""
    room = (SENTENCE_LIMIT - 30) // len(failures)
    parts = (f"{name}: {sentence_of(error).rstrip('.')}" for name, error in failures)
    sentence = "No model answered. " + "; ".join(_shortened(part, room - 2) for part in parts) + "."
    if any(isinstance(error, ContextOverflow) for _, error in failures):
        return ContextOverflow(sentence)
    return NoneAnswered(sentence, failures[0][1].code)


class FallbackChain:
    """The models that may answer one turn, in order."""

    def __init__(self, first: ChosenModel) -> None:
        self._left = [first, *first.fallbacks]
        self._failures: list[tuple[str, ProviderError]] = []

    async def answer(self, ask: Callable[[ChosenModel], Awaitable[None]], tokens: Callable[[ChosenModel], int]) -> None:
        """Have the first model that can answer do so. `ask` asks one; `tokens` says how large the conversation is for one,
        which decides about models that step in. Raises what the only model, or a refused request, raised; else what
        `none_answered` says."""
        while True:
            model = self._left[0]
            try:
                self._check(model, tokens)
                with model.breaker.judging():
                    await ask(model)
                if model.asides.answered(model.name):
                    log.info("model_is_back", model=model.name)
                return
            except NoSuchModel as error:
                named = await with_names(error, model)
                await self._choose_again(model)
                self._step_aside(model, named)
            except OTHERS_MAY as error:
                self._step_aside(model, error)
            except ContextOverflow as error:
                if not self._failures:
                    raise
                self._step_aside(model, error)

    def settle(self) -> None:
        """Somebody hears already what the model says that is asked now: nobody steps in for it any more."""
        del self._left[1:]

    def _check(self, model: ChosenModel, tokens: Callable[[ChosenModel], int]) -> None:
        """Whether it is worth asking: ContextOverflow, RateLimited or Unreachable says why not. The last one is asked even
        if it rests: nobody else is left."""
        if self._failures and model.window is not None and (size := tokens(model)) > model.window:
            raise ContextOverflow(f"it takes {model.window:,} tokens and the conversation has {size:,}")
        if len(self._left) > 1 and (rest := model.asides.rest(model.name)) is not None:
            raise RateLimited(rest[1], retry_after=rest[0])
        if not model.breaker.admits():
            state = model.breaker.view()
            when = f"is asked again in {state.wait:.0f} s" if state.wait else "is being tried by another session"
            raise Unreachable(f"{model.provider.name} failed {state.failures} times in a row and {when}: {state.why}")

    async def _choose_again(self, model: ChosenModel) -> None:
        """Where `auto` chose a model that its server does not have, ask the one next that it lists by now: such a server was
        started, or took another model, meanwhile."""
        with suppress(ModelUnknown):
            if model.instead is None or (other := model.instead()).name == model.name:
                return
            listing = await other.listings.of(other.provider.name)
            if listing is not None and listing.has(other.model):
                self._left.insert(1, msgspec.structs.replace(other, instead=None))

    def _step_aside(self, model: ChosenModel, error: ProviderError) -> None:
        """Go on to the next model; if there is none, raise what is to be said."""
        self._failures.append((model.name, error))
        if len(self._left) == 1:
            raise error if len(self._failures) == 1 else none_answered(self._failures) from error
        del self._left[0]
        if model.asides.step(model.name, error):
            log.warning("model_steps_aside", model=model.name, next=self._left[0].name, reason=sentence_of(error))


def _shortened(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"
