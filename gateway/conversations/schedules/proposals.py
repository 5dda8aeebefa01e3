"""Times in a person's own words, such as "every weekday at nine": the model proposes a rule, which the person confirms."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from gateway.conversations.schedules.recurrence import Rule, zone_named
from gateway.conversations.schedules.schedules import ScheduleRefused, ScheduleSet
from gateway.models.call import ModelCaller, TextRequest, text_context
from gateway.models.registry import ModelRegistry
from gateway.support.errors import GatewayError
from plugins.support.errors import ProviderError
from plugins.support.fencing import quoted
from sessions.store.catalog import Name

WITHIN = 20.0
"""Seconds that the model has."""

OUTPUT_TOKENS = 1000
"""The limit of its answer, which repeats the text."""

WORDS = 2000
"""Characters of the longest text that the model is asked about."""

KEPT, KEPT_SECONDS = 100, 3600.0
"""Proposals that wait for their confirmation at most, and for how long."""

_INSTRUCTIONS = """\
A person wants to be reminded, or to give a task for later, and names a time in their own words. Answer with one line of
JSON and nothing else: {"time": TIME, "text": TEXT}. TEXT is what remains without the time, in their words. TIME is one of
these: "10m" or "2h30m" from now; "18:00"; "tomorrow 9:00"; "2026-12-24 18:00"; "every 2h"; or a cron line such as
"0 9 * * 1-5" for every weekday at nine. If they name no time, or it cannot be written like that, answer {}."""


class _Answer(msgspec.Struct, frozen=True):
    time: str = ""
    text: str = ""


class _Proposal(msgspec.Struct, frozen=True):
    wanted: ScheduleSet
    until: float


class RuleProposals:
    """Asks the model, and keeps its proposals until they are confirmed, as long as the gateway runs.

    Args:
        models: The models.
        caller: Calls them.
        monotonic: Returns a time that is never set back, in seconds.
    """

    def __init__(self, models: ModelRegistry, caller: ModelCaller, monotonic: Callable[[], float]) -> None:
        self._models = models
        self._caller = caller
        self._monotonic = monotonic
        self._kept: dict[Name, _Proposal] = {}

    async def rule_of(self, text: str, now: datetime, zone: str, session: str) -> tuple[Rule, str] | None:
        """Return the rule that a model finds in a text, and the rest of the text; None if it finds none."""
        from gateway.conversations.schedules.parsing import parse_rule  # noqa: PLC0415 - only where somebody schedules

        if not text.strip() or len(text) > WORDS:
            return None
        local = now.astimezone(zone_named(zone))
        asked = f"It is {local:%A, %Y-%m-%d %H:%M}, time zone {zone or local.tzname()}.\n{quoted(text, 'person')}"
        request = TextRequest(
            context=text_context(_INSTRUCTIONS, asked),
            purpose="schedule",
            session=session,
            limit=OUTPUT_TOKENS,
            seconds=WITHIN,
        )
        try:
            answer = await self._caller.answer(self._models.choose(), request)
            found = msgspec.json.decode(_json_in(answer.text), type=_Answer)
            rule, rest = parse_rule(found.time, now, zone)
        except (GatewayError, ProviderError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        return None if rest or not found.text.strip() else (rule, found.text.strip())

    def keep(self, wanted: ScheduleSet) -> None:
        """Keep a proposal, in the place of the last one in the same conversation of the same person."""
        name = wanted.person, wanted.key
        self._kept.pop(name, None)
        self._kept[name] = _Proposal(wanted, self._monotonic() + KEPT_SECONDS)
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    def take(self, person: str, key: str) -> ScheduleSet:
        """Return the proposal in a person's conversation, and forget it. Raises ScheduleRefused."""
        kept = self._kept.pop((person, key), None)
        if kept is None or kept.until < self._monotonic():
            raise ScheduleRefused("There is nothing to confirm; write the time and the text.")
        return kept.wanted


def _json_in(text: str) -> str:
    """Return the part of an answer from the first brace to the last, because models put fences around JSON."""
    return text[max(0, text.find("{")) : text.rfind("}") + 1]
