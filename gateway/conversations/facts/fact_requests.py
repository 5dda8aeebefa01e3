"""Model requests about facts: the choice of the model, a time limit, fallback, and the pauses after failures."""

from __future__ import annotations

import msgspec
import structlog

from gateway.config.settings import Settings
from gateway.models.call import ModelCaller, TextRequest, text_answer, text_context
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.support.errors import GatewayError, sentence_of
from plugins.api.chat import RequestOptions, ResponseFormat
from plugins.api.context import Clock
from plugins.api.memory_settings import FactKeys
from plugins.api.plugin_services import ModelAnswer
from plugins.support.errors import BadRequest

log = structlog.get_logger("exuvia.facts")

WITHIN = 120.0
"""Seconds that one answer may take."""

FIRST_PAUSE, LONGEST_PAUSE = 300.0, 6 * 3600.0
"""Seconds of the first pause and of the longest; each further consecutive failure doubles the pause."""

SHOWN, STALE = 3, 3600.0
"""Maximum number of problems that are shown, and the seconds after a pause for which each is shown."""


class FactRequests:
    """The requests for a home."""

    def __init__(self, settings: Settings, models: ModelRegistry, caller: ModelCaller) -> None:
        self._settings = settings
        self._models = models
        self._caller = caller
        self._without_format: set[str] = set()
        """The models, by name, that do not support a response format."""

    @property
    def _keys(self) -> FactKeys:
        return self._settings.current.memory.facts

    def usable(self, used: str | None) -> ChosenModel | None:
        """Return the model for automatic requests; None if only a small model is available, which finds no facts.

        A configured model is used whatever its size. Raises GatewayError if there is no model.
        """
        model = self.chosen(used)
        return None if model.limits.small and not self._keys.model else model

    def chosen(self, used: str | None) -> ChosenModel:
        """Return the configured model, else the one that the session used. Raises GatewayError."""
        if named := self._keys.model:
            return self._models.choose(named)
        try:
            return self._models.choose(used or None)
        except GatewayError:
            return self._models.choose(None)  # the model used then no longer exists

    def why_not(self, used: str | None) -> str:
        """Return why facts are not extracted in a session that uses this model, in a few words; empty if they are."""
        if not self._keys.auto_extract:
            return "memory.facts.auto_extract is false"
        try:
            return "" if self.usable(used) is not None else "the model is too small; set memory.facts.model"
        except GatewayError:
            return "no model can be asked"

    async def ask(
        self,
        model: ChosenModel,
        system: str,
        text: str,
        *,
        purpose: str,
        session: str,
        limit: int,
        response_format: ResponseFormat,
    ) -> ModelAnswer:
        """Return one answer of about `limit` tokens, in the response format if the model supports one. Raises
        ProviderError."""
        request = TextRequest(
            context=text_context(system, text), purpose=purpose, session=session, limit=limit, seconds=WITHIN
        )

        async def ask(asked: ChosenModel, request: TextRequest) -> ModelAnswer:
            if asked.name not in self._without_format:
                formatted = msgspec.structs.replace(request, options=RequestOptions(response_format=response_format))
                try:
                    return await text_answer(asked, formatted)
                except BadRequest as error:
                    log.info("form_refused", model=asked.name, reason=sentence_of(error))
            answer = await text_answer(asked, request)
            self._without_format.add(asked.name)
            return answer

        return await self._caller.answer(model, request, ask)


class FactPauses:
    """Pauses by the name of what failed (`session …`, `model …`, `person …`), each with a sentence for people."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[int, float, str]] = {}
        """The number of consecutive failures, the end of the pause, and the sentence."""

    def fail(self, name: str, sentence: str, *, least: float = 0.0) -> float:
        """Begin a pause of at least `least` seconds, and return its length."""
        failures, _, _ = self._failed.get(name, (0, 0.0, ""))
        pause: float = max(least, min(FIRST_PAUSE * 2**failures, LONGEST_PAUSE))
        self._failed[name] = min(failures + 1, 16), self._clock.monotonic() + pause, sentence
        return pause

    def succeed(self, name: str) -> None:
        self._failed.pop(name, None)

    def end(self, name: str) -> float:
        """Return the monotonic time at which the pause of this name ends; 0 if it has none."""
        return self._failed[name][1] if name in self._failed else 0.0

    def is_paused(self, name: str) -> bool:
        return self.end(name) > self._clock.monotonic()

    def sentences(self) -> list[str]:
        """Return the current problems, the newest first."""
        since = self._clock.monotonic() - STALE
        newest = sorted((failed for failed in self._failed.values() if failed[1] > since), key=lambda failed: -failed[1])
        return list(dict.fromkeys(sentence for _, _, sentence in newest))[:SHOWN]
