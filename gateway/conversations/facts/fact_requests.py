"""Asking a model about facts: which one, how long it may take, and who answers in its place."""

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
from sessions.events.codec import carriable
from sessions.events.messages import Usage, UserMessage
from sessions.events.tokens import estimate
from sessions.state.context import Context

log = structlog.get_logger("exuvia.facts")

WITHIN = 120.0
"""Seconds that one answer may take."""


class FactRequests:
    """One for a home. `keys` is what the configuration says, `choose` which model is asked where a session used this one
    (`provider:model`), `paid` is told for what purpose which model used how much."""

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
        """The models, by name, that were found to hold no answer to a form."""

    def able(self, used: str | None) -> ChosenModel | None:
        """Who is asked without anybody having said so: None where only a small model could be, which finds nothing; one
        that is named is taken at its name. Raises GatewayError where there is no model."""
        model = self.chosen(used)
        return None if model.provider.limits(model.model).small and not self._keys().model else model

    def chosen(self, used: str | None) -> ChosenModel:
        """Who is asked: the one that the configuration names, else the one that was used. Raises GatewayError."""
        if named := self._keys().model:
            return self._choose(named)
        try:
            return self._choose(used or None)
        except GatewayError:
            return self._choose(None)  # the one that answered then is no longer there

    def why_not(self, used: str | None) -> str:
        """Why no turn is looked through in a session that uses this model, in a few words; empty where they are."""
        if not self._keys().auto_extract:
            return "memory.facts.auto_extract is false"
        try:
            return "" if self.able(used) is not None else "a small model finds none; memory.facts.model may name another"
        except GatewayError:
            return "no model can be asked"

    async def ask(
        self, model: ChosenModel, system: str, text: str, *, purpose: str, session: str, limit: int, form: ResponseFormat
    ) -> ModelAnswer:
        """Return one answer of about `limit` tokens, of this form where the service can hold it to one. Raises
        ProviderError."""
        message = UserMessage(text=carriable(text))
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
