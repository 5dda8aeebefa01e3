"""The configuration as conversations read it: anew at each use, since it may change while the gateway runs."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import lru_cache

import msgspec

from gateway.config.keys import AgentKeys, CompactionKeys, Config, QueueMode
from gateway.config.settings import Settings
from plugins.api.compaction import FlushRules, IdentifierPolicy
from plugins.api.context import Clock
from plugins.api.memory_settings import RecallKeys
from plugins.api.pruning import PruningRules
from plugins.languages.prompts import language
from sessions.state import compaction

SMALL_MODEL_INSTRUCTIONS = "You are a helpful AI assistant named Exuvia"
"""The default instructions of a small model, in the form that the bundled one was trained with."""


class CompactionRules(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of compactions.

    `provider_side` lets a provider compact by itself, `by` and `flush_by` name the summarizer and the flush, `force_bytes`
    is the growth of the journal that triggers a flush (0: none), `writable` is True if the workspace may be written,
    `today` is the current local time.
    """

    enabled: bool
    provider_side: bool
    thresholds: compaction.Rules
    by: str
    identifier_policy: IdentifierPolicy
    identifier_instructions: str
    flush_enabled: bool
    flush_by: str
    flush_rules: FlushRules
    force_bytes: int
    writable: bool
    language: str
    today: datetime


class TurnRules(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a turn's instructions; `small_model` are those for a small model."""

    instructions: str
    small_model: str
    parameters: dict[str, str | int | float | bool | None]


class ResumeRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for interrupted turns: `mode` is auto, offer or never; `within` is the age up to which a turn is
    resumed."""

    mode: str
    within: timedelta


class ConversationConfig:
    """The configuration in force for conversations, and the local time that parts of it depend on."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self.clock = clock
        self._compaction: CompactionRules
        self._compaction_of: tuple[Config, datetime] | None = None
        """The configuration and the second that `_compaction` is of."""

    @property
    def _config(self) -> Config:
        return self._settings.current

    def local_time(self) -> datetime:
        """Return the current time in the configured time zone."""
        return self.clock.now().astimezone(self._settings.zone)

    @property
    def turn(self) -> TurnRules:
        """The rules of a turn that begins now."""
        agent = self._config.agent
        return TurnRules(
            instructions=standing_instructions(agent.instructions, agent.language, self.local_time()),
            small_model=agent.instructions or SMALL_MODEL_INSTRUCTIONS,
            parameters={} if agent.temperature is None else {"temperature": agent.temperature},
        )

    @property
    def tool_rounds(self) -> int:
        """The most model calls of one turn."""
        return self._config.agent.tool_rounds

    @property
    def resume(self) -> ResumeRules:
        """The rules for interrupted turns."""
        sessions = self._config.sessions
        return ResumeRules(mode=sessions.resume, within=timedelta(seconds=sessions.resume_within))

    @property
    def compaction(self) -> CompactionRules:
        """The rules of compaction and of the memory flush, as of this second: a turn reads them four times."""
        current, second = self._config, self.clock.now().replace(microsecond=0)
        if self._compaction_of != (current, second):
            self._compaction_of = current, second
            self._compaction = compaction_rules(current.compaction, current.agent, self.local_time())
        return self._compaction

    @property
    def compaction_model(self) -> str | None:
        """The model that flushes and summarises; None for the session's own."""
        return self._config.compaction.model

    @property
    def pruning(self) -> PruningRules:
        """The rules of pruning."""
        return self._config.pruning

    @property
    def recall(self) -> RecallKeys:
        """The keys of recall."""
        return self._config.memory.recall

    @property
    def queue(self) -> QueueMode:
        """The queue mode of sessions that chose none."""
        return self._config.sessions.queue

    @property
    def verbose(self) -> bool:
        """True if clients show more than the conversation, unless a session chose otherwise."""
        return self._config.agent.verbose

    @property
    def shows_memory(self) -> bool:
        """True if a model may see the memory."""
        return self._config.agent.workspace_access != "none"


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
    flush = keys.memory_flush
    return CompactionRules(
        enabled=keys.enabled,
        provider_side=keys.provider_side,
        thresholds=compaction.Rules(
            floor=keys.reserve_tokens_floor,
            soft=flush.soft_threshold_tokens,
            recent=keys.keep_recent_tokens,
            recent_messages=keys.keep_recent_messages,
            threshold=keys.threshold_tokens,
            ratio=keys.ratio,
            messages=keys.messages,
        ),
        by=keys.summarizer,
        identifier_policy=keys.identifier_policy,
        identifier_instructions=keys.identifier_instructions,
        flush_enabled=flush.enabled,
        flush_by=flush.by,
        flush_rules=FlushRules(system_prompt=flush.system_prompt or "", prompt=flush.prompt or ""),
        force_bytes=flush.force_bytes,
        writable=agent.workspace_access == "rw",
        language=agent.language,
        today=today,
    )
