"""The models of one session: the one that it chose, or else the configured one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from gateway.conversations.context.conversation_config import ConversationConfig
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.support.errors import GatewayError
from sessions.events.vision import VisionSupport
from sessions.store.recorder import Recorder


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
        """The model that the session chose with `/model`; None if it chose none."""
        return self._recorder.transcript.settings.get("model")

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
