"""Making of daily facts few that stay: when it is due, and when a person asks for it.

What was made of a batch stands in one event with the batch's ids: a stop at any moment loses and doubles nothing, and what
waits is seen from the facts' log alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from gateway.fact_asking import FactAsking
from gateway.models.choosing import ChosenModel
from plugins.contracts import Clock
from plugins.facts.book import Book
from plugins.facts.facts import Facts
from plugins.facts.settings import FactKeys
from plugins.facts.values import Fact
from plugins.summaries import Answered

# What facts are distilled with is imported when the first are: the start needs none of it.

log = structlog.get_logger("exuvia.facts")


class FactDistilling:
    """One for a home; `tongue` is the language that a model is told in."""

    def __init__(
        self,
        facts: Facts,
        asking: FactAsking,
        *,
        keys: Callable[[], FactKeys],
        tongue: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._facts = facts
        self._asking = asking
        self._keys = keys
        self._tongue = tongue
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._last: dict[str, tuple[str, str]] = {}
        """Of each person: the session that was looked through last, and the model that answered there."""

    def heard(self, owner: str, session: str, used: str) -> None:
        """A session of this person was looked through, in which this model answers: it is asked, and the session pays."""
        self._last[owner] = session, used

    async def distill_what_is_due(self) -> None:
        """Distil the facts of everybody who has enough new ones, or old enough ones. Raises what `distill` does."""
        if self._facts.none or not self._keys().auto_extract:
            return
        for owner in self._due(await self._facts.book()):
            session, used = self._last.get(owner, ("", ""))
            if self._asking.able(used) is not None:
                await self.distill(owner, used, session)

    def _due(self, book: Book) -> list[str]:
        from plugins.facts import distilling  # noqa: PLC0415 - not at the start

        keys = self._keys()
        return distilling.due(
            book,
            threshold=keys.distill_threshold,
            interval_hours=keys.distill_interval_hours,
            now=self._clock.now(),
        )

    async def distill(self, owner: str, used: str | None, session: str) -> tuple[int, int]:
        """Make of this person's daily facts few that stay, at the cost of a session; returns how many were looked through
        and how many were made. Raises FactsError, and ProviderError or GatewayError where no model could be asked."""
        from plugins.facts import distilling  # noqa: PLC0415 - not at the start

        async with self._one_at_a_time:
            model, looked, made = self._asking.chosen(used), 0, 0
            while batch := next(distilling.batches(await self._fresh(owner)), None):
                known = distilling.nearest(await self._kept(batch[0]), batch)
                answer = await self._ask(model, batch, known, session)
                if await self._have_left([*batch, *known]):
                    continue  # somebody forgot one meanwhile: it must not come back in other words
                made += await self._take(batch, known, answer, session)
                looked += len(batch)
            return looked, made

    async def _fresh(self, owner: str) -> list[Fact]:
        """The new facts of this person in one workspace, whichever is in use now: what is made of them stays there."""
        fresh = [fact for fact in (await self._facts.book()).undistilled() if fact.owner == owner]
        return [fact for fact in fresh if fact.workspaces() == fresh[0].workspaces()]

    async def _kept(self, fresh: Fact) -> list[Fact]:
        """The facts that stay where this one is."""
        kept, there = (await self._facts.book()).layer("longterm"), fresh.workspaces()
        return [fact for fact in kept if fact.owner == fresh.owner and fact.workspaces() <= there]

    async def _have_left(self, facts: Sequence[Fact]) -> bool:
        there = (await self._facts.book()).facts
        return any(fact.id not in there for fact in facts)

    async def _ask(self, model: ChosenModel, batch: Sequence[Fact], known: Sequence[Fact], session: str) -> Answered:
        from plugins.facts import answers, distilling  # noqa: PLC0415 - not at the start
        from plugins.languages.language import language  # noqa: PLC0415 - not at the start

        spoken = language(self._tongue()).facts
        return await self._asking.ask(
            model,
            spoken.distillation,
            distilling.request(batch, known, spoken),
            purpose="distillation",
            session=session or "facts",
            limit=distilling.ANSWER,
            form=answers.form(numbered=True),
        )

    async def _take(self, batch: Sequence[Fact], known: Sequence[Fact], answer: Answered, session: str) -> int:
        """What an answer made of a batch. Where it made nothing that counts, the facts themselves stay for long: nothing
        that was found is lost to a model that cannot write JSON."""
        from plugins.facts import distilling  # noqa: PLC0415 - not at the start

        result = distilling.distilled(answer.text, known, batch)
        if result.wrong:
            log.warning("distillation_answer_not_taken", reason=result.wrong, facts=len(batch))
            result = distilling.as_they_are(batch)
        entries = await self._facts.distilled(
            batch, result.drafts, result.superseded, session=session, model=answer.model, usage=answer.usage
        )
        return len(entries)
