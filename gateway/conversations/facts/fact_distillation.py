"""The distillation of daily facts into a few lasting ones: when it is due, and when a person asks for it.

The result of a batch is recorded in one event with the ids of the batch, so a stop at any moment loses and duplicates
nothing, and the pending facts follow from the facts' log alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from gateway.config.settings import Settings
from gateway.conversations.facts.fact_requests import FactPauses, FactRequests
from gateway.models.registry import ChosenModel
from gateway.models.spending.spending_log import Payer
from gateway.support.errors import GatewayError, error_fields, sentence_of
from plugins.api.context import Clock
from plugins.api.fact_values import Fact, FactConflict, FactsError
from plugins.api.plugin_services import ModelAnswer
from plugins.facts.fact_book import FactBook
from plugins.facts.facts import Facts
from plugins.support.errors import BadRequest, ContextOverflow, ProviderError
from sessions.events.codec import replace_surrogates
from sessions.events.messages import Usage

if TYPE_CHECKING:
    from plugins.facts.distillation import TokenBudget
    from plugins.policies.languages.prompts import FactTexts

# The modules for distillation are imported on first use, not at startup.

log = structlog.get_logger("exuvia.facts")


class FactDistillation:
    """The distillation for a home."""

    def __init__(
        self,
        facts: Facts,
        requests: FactRequests,
        pauses: FactPauses,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._facts = facts
        self._requests = requests
        self._pauses = pauses
        self._settings = settings
        self._clock = clock
        self._lock = asyncio.Lock()
        self._last: dict[str, tuple[str, str]] = {}
        """By person: the session that was processed last, and the model that answered in it."""

    def on_extracted(self, owner: str, session: str, used: str) -> None:
        """Record the session of a person that was processed last and its model: the session pays for the distillation
        with that model."""
        self._last[owner] = session, used

    async def distill_due(self) -> None:
        """Distill the facts of everybody who has enough new ones or old enough ones, then remove expired ones.

        This also covers what became due while the gateway was stopped. A failure pauses the distillation of one person
        only.
        """
        if self._facts.is_empty:
            return
        try:
            for owner in self._due(await self._facts.book()):
                if not self._pauses.is_paused(_pause_name(owner)):
                    await self._try(owner)
            await self._facts.drop_expired()
        except FactsError as error:  # reported by the facts themselves
            log.warning("facts_not_distilled", reason=sentence_of(error))
        except Exception as error:
            log.error("facts_not_distilled", **error_fields(error))

    async def _try(self, owner: str) -> None:
        session, used = self._last.get(owner, ("", ""))
        try:
            model = self._requests.usable(used)
            if model is None or self._pauses.is_paused(f"model {model.name}"):
                return
            await self.distill(owner, used, session)
            self._pauses.succeed(_pause_name(owner))
        except Exception as error:
            if not isinstance(error, ProviderError | GatewayError | FactsError):
                log.error("facts_not_distilled", owner=owner, **error_fields(error))
            sentence = f"The facts of {owner or 'everybody'} could not be distilled, which will be retried: "
            pause = self._pauses.fail(_pause_name(owner), sentence + sentence_of(error))
            log.warning("facts_not_distilled", owner=owner, reason=sentence_of(error), pause=pause)

    def _due(self, book: FactBook) -> list[str]:
        from plugins.facts import distillation  # noqa: PLC0415 - not at the start

        keys = self._settings.current.memory.facts
        return distillation.owners_due(
            book, threshold=keys.distill_threshold, interval_hours=keys.distill_interval_hours, now=self._clock.now()
        )

    async def distill(self, owner: str, used: str | None, session: str) -> tuple[int, int]:
        """Distill a person's daily facts, accounted to a session, and return the numbers of facts processed and of facts
        made.

        Raises FactsError; ProviderError or GatewayError if no model could be asked.
        """
        from plugins.facts import distillation, model_answers  # noqa: PLC0415 - not at the start

        async with self._lock:
            model, processed = self._requests.chosen(used), 0
            made: list[Fact] = []
            budget = distillation.TokenBudget(
                model_answers.prompt_budget(model.window, self._texts().distillation, distillation.ANSWER)
            )
            while fresh := await self._fresh(owner):
                with contextlib.suppress(FactConflict):  # it is tried again with the facts as they are now
                    taken, entries = await self._distill_some(fresh, model, session, budget)
                    processed += taken
                    made += entries
            existing = (await self._facts.book()).facts
            return processed, sum(fact.id in existing for fact in made)

    async def _distill_some(
        self, fresh: Sequence[Fact], model: ChosenModel, session: str, budget: TokenBudget
    ) -> tuple[int, Sequence[Fact]]:
        """Distill the first facts, as many as fit, and return how many were processed and the facts made of them.

        Returns 0 if a smaller batch has to be tried. A fact that is refused alone is kept as it is; a second one in a row
        raises, since then the model is at fault.
        """
        batch = budget.batch(fresh)
        known = budget.context_for(await self._lasting(batch[0]), batch)
        try:
            answer = await self._ask(model, batch, known, session)
        except (ContextOverflow, BadRequest) as error:
            if budget.shrink([*batch, *known], for_good=isinstance(error, ContextOverflow)):
                return 0, ()
            if budget.single_refusals > 1:
                raise
            return 1, await self._keep(batch, replace_surrogates(sentence_of(error)), session=session, model=model.name)
        budget.answered()
        return len(batch), await self._take(batch, known, answer, session)

    async def _fresh(self, owner: str) -> list[Fact]:
        """Return a person's new facts of one workspace: the result belongs to that workspace."""
        fresh = [fact for fact in (await self._facts.book()).undistilled() if fact.owner == owner]
        return [fact for fact in fresh if fact.workspaces() == fresh[0].workspaces()]

    async def _lasting(self, fresh: Fact) -> list[Fact]:
        """Return the lasting facts of the same person and workspace."""
        lasting, workspaces = (await self._facts.book()).layer("longterm"), fresh.workspaces()
        return [fact for fact in lasting if fact.owner == fresh.owner and fact.workspaces() <= workspaces]

    async def _ask(self, model: ChosenModel, batch: Sequence[Fact], known: Sequence[Fact], session: str) -> ModelAnswer:
        from plugins.facts import distillation, model_answers  # noqa: PLC0415 - not at the start

        texts, owner = self._texts(), batch[0].owner
        if not session and model.spending is not None:
            model.spending.know(f"facts-{owner}", Payer(owner))
        return await self._requests.ask(
            model,
            texts.distillation,
            distillation.request(batch, known, texts),
            purpose="distillation",
            session=session or f"facts-{owner}",
            limit=distillation.ANSWER,
            response_format=model_answers.response_format(numbered=True),
        )

    async def _take(self, batch: Sequence[Fact], known: Sequence[Fact], answer: ModelAnswer, session: str) -> Sequence[Fact]:
        """Record the facts of an answer. If it is invalid, the batch itself becomes lasting. Raises FactConflict."""
        from plugins.facts import distillation  # noqa: PLC0415 - not at the start

        result = distillation.parse_distillation(answer.text, known, batch)
        if result.wrong:
            return await self._keep(batch, result.wrong, session=session, model=answer.model, usage=answer.usage)
        return await self._facts.distilled(
            batch, result.drafts, result.superseded, known=known, session=session, model=answer.model, usage=answer.usage
        )

    async def _keep(
        self, batch: Sequence[Fact], reason: str, *, session: str, model: str, usage: Usage | None = None
    ) -> Sequence[Fact]:
        """Keep facts as they are, so that none is lost to a model that cannot distill them."""
        from plugins.facts import distillation  # noqa: PLC0415 - not at the start

        log.warning("facts_kept_undistilled", reason=reason, facts=len(batch))
        drafts = distillation.unchanged(batch).drafts
        return await self._facts.distilled(batch, drafts, session=session, model=model, usage=usage, failed=reason)

    def _texts(self) -> FactTexts:
        from plugins.policies.languages.prompts import language  # noqa: PLC0415 - not at the start

        return language(self._settings.current.agent.language).facts


def _pause_name(owner: str) -> str:
    return f"person {owner}"
