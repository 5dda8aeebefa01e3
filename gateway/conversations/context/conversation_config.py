"""The configuration as conversations read it: anew at each use, since it may change while the gateway runs."""

from __future__ import annotations

from datetime import date, datetime
from functools import lru_cache

import msgspec

from gateway.config.agents import AgentKeys
from gateway.config.keys import CompactionKeys, Config, RoleKeys
from gateway.config.settings import Settings
from plugins.api.context import Clock
from plugins.api.memory.scope import Scope
from plugins.policies.languages.prompts import language
from sessions.state import compaction

SMALL_MODEL_INSTRUCTIONS = "You are a helpful AI assistant named Exuvia"
"""The default instructions of a small model, in the form that the bundled one was trained with."""


class CompactionRules(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of compactions, and other values that they depend on. `writable` is True if the workspace may be
    written, `today` is the current local time."""

    keys: CompactionKeys
    thresholds: compaction.Rules
    writable: bool
    language: str
    today: datetime


class ConversationConfig:
    """The configuration in force for conversations, and the local time that parts of it depend on."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self.clock = clock
        self._compaction: CompactionRules
        self._compaction_of: tuple[Config, datetime] | None = None
        """The configuration and the second that `_compaction` is of."""

    @property
    def current(self) -> Config:
        """The configuration in force."""
        return self._settings.current

    def rights_of(self, person: str) -> RoleKeys:
        """Return what a person may do."""
        return self._settings.rights_of(person)

    def scope_of(self, person: str, *, group: bool) -> Scope:
        """Return what the memory shows a person in a chat."""
        return Scope.of_person(person, group=group, notes=self.rights_of(person).notes)

    def local_time(self) -> datetime:
        return self.clock.now().astimezone(self._settings.zone)

    def instructions(self, *, small: bool) -> str:
        """Return the instructions of a turn that begins now, for a small model or any other."""
        agent = self.current.agent
        if small:
            return agent.instructions or SMALL_MODEL_INSTRUCTIONS
        return standing_instructions(agent.instructions, agent.language, self.local_time())

    @property
    def shows_memory(self) -> bool:
        """True if a model may see the memory."""
        return self.current.agent.workspace_access != "none"

    @property
    def compaction(self) -> CompactionRules:
        """The rules of compaction and of the memory flush, as of this second: a turn reads them four times."""
        current, second = self.current, self.clock.now().replace(microsecond=0)
        if self._compaction_of != (current, second):
            self._compaction_of = current, second
            self._compaction = compaction_rules(current.compaction, current.agent, self.local_time())
        return self._compaction


def standing_instructions(configured: str | None, code: str, now: datetime) -> str:
    """Return the configured text, or the shipped one of a language, followed by the date of `now` in its time zone.

    The hour is left out: the text would differ in every request, and no provider's cache would match it.
    """
    return _of_day(configured, code, now.date(), now.tzname() or f"{now:%z}")


@lru_cache(8)
def _of_day(configured: str | None, code: str, day: date, zone: str) -> str:
    texts = language(code)
    today = texts.today
    for name, value in {"{weekday}": f"{day:%A}", "{date}": f"{day:%Y-%m-%d}", "{zone}": zone}.items():
        today = today.replace(name, value)
    return f"{(configured or texts.instructions).rstrip()}\n\n{today}\n"


def compaction_rules(keys: CompactionKeys, agent: AgentKeys, today: datetime) -> CompactionRules:
    """Return the rules of a configuration."""
    thresholds = compaction.Rules(
        floor=keys.reserve_tokens_floor,
        soft=keys.memory_flush.soft_threshold_tokens,
        recent=keys.keep_recent_tokens,
        recent_messages=keys.keep_recent_messages,
        threshold=keys.threshold_tokens,
        ratio=keys.ratio,
        messages=keys.messages,
    )
    writable = agent.workspace_access == "rw"
    return CompactionRules(keys=keys, thresholds=thresholds, writable=writable, language=agent.language, today=today)
