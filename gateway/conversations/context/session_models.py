"""The models of one session, the one that it chose or else the configured one, and the parameters of its requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from gateway.conversations.context.conversation_config import ConversationConfig
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.support.errors import GatewayError
from sessions.events.vision import VisionSupport
from sessions.store.recorder import Recorder

MODEL, EFFORT, TEMPERATURE = "model", "effort", "temperature"
"""The session's settings for its model and the parameters of its requests."""


class SessionModels:
    """The models of one session. Within `in_use` a provider that a reload replaces stays open."""

    def __init__(
        self,
        recorder: Recorder,
        models: ModelRegistry,
        config: ConversationConfig,
        in_use: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._recorder = recorder
        self._models = models
        self._config = config
        self.in_use = in_use

    @property
    def choice(self) -> str | None:
        """The model that the session chose with `/model`; None if it chose none, or its person may not use it any more."""
        chosen = self._recorder.transcript.settings.get(MODEL)
        return chosen if chosen is not None and self.may_choose(chosen) else None

    def may_choose(self, name: str) -> bool:
        """Return True if the role of the session's person has this model."""
        return self._models.admits(name, self._config.rights_of(self._recorder.transcript.person))

    @property
    def effort(self) -> str | None:
        """The level of effort that the session chose; None if it chose none."""
        return self._recorder.transcript.settings.get(EFFORT)

    @property
    def temperature(self) -> float | None:
        """The temperature that the session chose; None if it chose none."""
        chosen = self._recorder.transcript.settings.get(TEMPERATURE)
        return None if chosen is None else float(chosen)

    def parameters(self, model: ChosenModel) -> dict[str, str | float]:
        """Return the parameters of a request: those that the session chose, as far as the model has them, else the
        configured ones."""
        chosen, configured = self.temperature, self._config.current.agent.temperature
        temperature = configured if chosen is None else chosen
        parameters: dict[str, str | float] = {} if temperature is None else {TEMPERATURE: temperature}
        if self.effort is not None and self.effort in model.limits.efforts:
            parameters[EFFORT] = self.effort
        return parameters

    def choose(self) -> ChosenModel:
        """Return the model that answers. Raises ModelUnknown."""
        return self._models.choose(self.choice)

    def choose_for_compaction(self) -> ChosenModel:
        """Return the model that flushes and summarises. Raises ModelUnknown."""
        return self._models.choose(self._config.current.compaction.model or self.choice)

    def vision(self) -> VisionSupport | None:
        """Return the vision support of the model that answers; None if there is no model."""
        try:
            return self.choose().limits.vision
        except GatewayError:
            return None
