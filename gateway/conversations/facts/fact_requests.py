"""Model requests about facts: the choice of the model, a time limit, and fallback."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from gateway.models.fallback import FallbackChain
from gateway.models.registry import ChosenModel
from gateway.models.side_requests import listen
from gateway.support.errors import GatewayError, sentence_of
from plugins.api.chat import RequestOptions, ResponseFormat
from plugins.api.facts.fact_settings import FactKeys
from plugins.api.services import ModelAnswer
from plugins.support.errors import BadRequest
from sessions.events.codec import replace_surrogates
from sessions.events.messages import Usage, UserMessage
from sessions.events.tokens import estimate
from sessions.state.context import Context

log = structlog.get_logger("exuvia.facts")

WITHIN = 120.0
"""Seconds that one answer may take."""


class FactRequests:
    """The requests for a home.

    `keys` returns the configuration, `choose` returns the model for a session that used a given one (`provider:model`), and
    `paid` is called with the purpose, the model and its usage.
    """

    def __init__(
        self,
        keys: Callable[[], FactKeys],
        choose: Callable[[str | None], ChosenModel],
        paid: Callable[[str, str, Usage], None],
    ) -> None:
        self._keys = keys
        self._choose = choose
        self._paid = paid
        self._formless: set[str] = set()
        """The models, by name, that do not support a response format."""

    def able(self, used: str | None) -> ChosenModel | None:
        """Return the model for automatic requests; None if only a small model is available, which finds no facts.

        A configured model is used whatever its size. Raises GatewayError if there is no model.
        """
        model = self.chosen(used)
        return None if model.provider.limits(model.model).small and not self._keys().model else model

    def chosen(self, used: str | None) -> ChosenModel:
        """Return the configured model, else the one that the session used. Raises GatewayError."""
        if named := self._keys().model:
            return self._choose(named)
        try:
            return self._choose(used or None)
        except GatewayError:
            return self._choose(None)  # the model used then no longer exists

    def why_not(self, used: str | None) -> str:
        """Return why facts are not extracted in a session that uses this model, in a few words; empty if they are."""
        if not self._keys().auto_extract:
            return "memory.facts.auto_extract is false"
        try:
            return "" if self.able(used) is not None else "the model is too small; set memory.facts.model"
        except GatewayError:
            return "no model can be asked"

    async def ask(
        self, model: ChosenModel, system: str, text: str, *, purpose: str, session: str, limit: int, form: ResponseFormat
    ) -> ModelAnswer:
        """Return one answer of about `limit` tokens, in the response format if the model supports one. Raises
        ProviderError."""
        message = UserMessage(text=replace_surrogates(text))
        context = Context(instructions=system, tools=(), parameters={}, messages=(message,))
        answers: list[ModelAnswer] = []

        async def once(asked: ChosenModel, wishes: RequestOptions) -> None:
            answers.append(await listen(asked, context, purpose, session, limit, within=WITHIN, wishes=wishes))

        async def ask(asked: ChosenModel) -> None:
            if asked.name not in self._formless:
                try:
                    await once(asked, RequestOptions(response_format=form))
                    return
                except BadRequest as error:
                    log.info("form_refused", model=asked.name, reason=sentence_of(error))
            await once(asked, RequestOptions())
            self._formless.add(asked.name)

        await FallbackChain(model).answer(ask, lambda _: estimate(system) + estimate(text))
        if (usage := answers[-1].usage) is not None:
            self._paid(purpose, answers[-1].model, usage)
        return answers[-1]
