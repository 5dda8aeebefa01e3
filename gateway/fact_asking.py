"""Asking a model about facts: which one, how long it may take, and who answers in its place."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from gateway.conversations.asking import listen
from gateway.errors import GatewayError, sentence_of
from gateway.models.choosing import ChosenModel
from gateway.models.fallback import Line
from plugins.contracts import AnswerForm, Wishes
from plugins.errors import BadRequest
from plugins.facts.settings import FactKeys
from plugins.services import Answered
from sessions.context import Context
from sessions.messages import Usage, UserMessage
from sessions.tokens import estimate
from sessions.wire import carriable

log = structlog.get_logger("exuvia.facts")

WITHIN = 120.0
"""Seconds that one answer may take."""


class FactAsking:
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
        self, model: ChosenModel, system: str, text: str, *, purpose: str, session: str, limit: int, form: AnswerForm
    ) -> Answered:
        """Return one answer of about `limit` tokens, of this form where the service can hold it to one. Raises
        ProviderError."""
        message = UserMessage(text=carriable(text))
        context = Context(instructions=system, tools=(), parameters={}, messages=(message,))
        answers: list[Answered] = []

        async def once(asked: ChosenModel, wishes: Wishes) -> None:
            answers.append(await listen(asked, context, purpose, session, limit, within=WITHIN, wishes=wishes))

        async def ask(asked: ChosenModel) -> None:
            if asked.name not in self._formless:
                try:
                    await once(asked, Wishes(form=form))
                    return
                except BadRequest as error:
                    log.info("form_refused", model=asked.name, reason=sentence_of(error))
            await once(asked, Wishes())
            self._formless.add(asked.name)

        await Line(model).answer(ask, lambda _: estimate(system) + estimate(text))
        if (usage := answers[-1].usage) is not None:
            self._paid(purpose, answers[-1].model, usage)
        return answers[-1]
