"""Fallback between models: when the model of a turn cannot answer, the next one of `agent.fallback_models` is asked.

A model that failed is not asked again in the same turn, where it would delay each request. The next turn begins with the
first model again, unless its provider's circuit breaker is open or it has said when to retry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec
import structlog

from gateway.models.registry import ChosenModel
from gateway.models.spending.budgets import BudgetSpent
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

FALLBACK_ERRORS = (Unreachable, StreamCut, RateLimited, CredentialsRefused, NoSuchModel, BadAnswer)
"""Failures after which another model is asked. A request that is invalid or too long would fail there too."""

T = TypeVar("T")

log = structlog.get_logger("exuvia.models")

REASON_CHARS, NAMES_CHARS = 230, 150
"""Characters of the provider's message, and of the model names."""


async def with_model_list(error: NoSuchModel, model: ChosenModel) -> NoSuchModel:
    """Return the error with the provider's list of chat models and the way to choose one."""
    name = model.provider.name
    listing = await model.listings.without(name, model.model)
    what, known = sentence_of(error)[:REASON_CHARS].rstrip("."), _listed(listing.chats if listing else ())
    how = f"with /model {name}:NAME, or for all conversations with agent.model"
    named = NoSuchModel(f"{what}. {f'It has {known}; choose' if known else 'Choose'} one {how}.")
    named.__cause__ = error.__cause__
    return named


def _listed(names: Sequence[str]) -> str:
    """Return the first names and the number of those left out; empty if there are none."""
    shown: list[str] = []
    for name in names:
        if sum(map(len, shown)) + len(name) > NAMES_CHARS:
            break
        shown.append(name)
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if shown and more else "")


class AllModelsFailed(ProviderError):
    """Every model of the chain failed; the code is that of the first failure."""

    def __init__(self, sentence: str, code: str) -> None:
        super().__init__(sentence)
        self.code = code


def all_failed(failures: list[tuple[str, ProviderError]]) -> ProviderError:
    """Return the error for several failed models, with the name and reason of each.

    It is ContextOverflow if any model failed with that: it could answer after a compaction.
    """
    room = (SENTENCE_LIMIT - 30) // len(failures)
    parts = (f"{name}: {sentence_of(error).rstrip('.')}" for name, error in failures)
    sentence = "No model answered. " + "; ".join(_shortened(part, room - 2) for part in parts) + "."
    if any(isinstance(error, ContextOverflow) for _, error in failures):
        return ContextOverflow(sentence)
    return AllModelsFailed(sentence, failures[0][1].code)


class FallbackChain:
    """The models that may answer one turn, in order. `pinned` is True once only the current one may continue."""

    def __init__(self, first: ChosenModel) -> None:
        self.pinned = False
        self._left = [first, *first.fallbacks]
        self._failures: list[tuple[str, ProviderError]] = []
        self._refused: set[str] = set()
        """The models that were asked instead of one that no longer fitted into a budget."""

    async def answer(self, ask: Callable[[ChosenModel], Awaitable[T]], tokens: Callable[[ChosenModel], int]) -> T:
        """Call `ask` with each model in turn until one answers, and return the result.

        `tokens` returns the estimated size of the conversation for a model; fallbacks with a smaller window are skipped.
        Raises the error of a single model or of a refused request, else that of `all_failed`.
        """
        while True:
            model = self._left[0]
            try:
                self._check(model, tokens)
                with model.breaker.track():
                    answer = await ask(model)
                if model.cooldowns.end(model.name):
                    log.info("model_is_back", model=model.name)
                return answer
            except NoSuchModel as error:
                named = await with_model_list(error, model)
                await self._choose_again(model)
                self._fall_back(model, named)
            except BudgetSpent as error:
                self._take_cheaper(model, error)
            except FALLBACK_ERRORS as error:
                self._fall_back(model, error)
            except ContextOverflow as error:
                if not self._failures:
                    raise
                self._fall_back(model, error)

    def pin(self) -> None:
        """Drop the remaining fallbacks, because the client has seen part of the current model's answer."""
        self.pinned = True
        del self._left[1:]

    def _check(self, model: ChosenModel, tokens: Callable[[ChosenModel], int]) -> None:
        """Raise ContextOverflow, RateLimited or Unreachable if a request would certainly fail. The last model is asked even
        during its cooldown."""
        if self._failures and model.window is not None and (size := tokens(model)) > model.window:
            raise ContextOverflow(f"its window has {model.window:,} tokens and the conversation {size:,}")
        if len(self._left) > 1 and (rest := model.cooldowns.remaining(model.name)) is not None:
            raise RateLimited(rest[1], retry_after=rest[0])
        if not model.breaker.allows():
            state = model.breaker.view()
            when = f"is asked again in {state.wait:.0f} s" if state.wait else "is being tried by another session"
            raise Unreachable(f"{model.provider.name} failed {state.failures} times in a row and {when}: {state.why}")

    async def _choose_again(self, model: ChosenModel) -> None:
        """If `auto` chose a model that its server no longer has, add the model that `auto` would choose now. The server may
        have been restarted or have loaded another model."""
        with suppress(ModelUnknown):
            if model.choose_again is None or (other := model.choose_again()).name == model.name:
                return
            listing = await other.listings.of(other.provider.name)
            if listing is not None and listing.has(other.model):
                self._left.insert(1, msgspec.structs.replace(other, choose_again=None))

    def _take_cheaper(self, model: ChosenModel, error: BudgetSpent) -> None:
        """Go on to the model that the budget names for this case; if there is none, raise the error."""
        cheaper = model.other(error.instead) if error.instead and not self.pinned else None
        if cheaper is None or error.instead in self._refused or cheaper.name == model.name:
            raise error
        self._refused.add(error.instead)
        log.info("cheaper_model", model=cheaper.name, instead_of=model.name)
        self._left[0] = cheaper

    def _fall_back(self, model: ChosenModel, error: ProviderError) -> None:
        """Go on to the next model; if there is none, raise the final error."""
        self._failures.append((model.name, error))
        if len(self._left) == 1:
            raise error if len(self._failures) == 1 else all_failed(self._failures) from error
        del self._left[0]
        if model.cooldowns.begin(model.name, error):
            log.warning("model_steps_aside", model=model.name, next=self._left[0].name, reason=sentence_of(error))


def _shortened(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"
