"""Which model answers: `provider:model` names resolved to open providers, and the choice that `auto` makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gateway.errors import ModelUnknown
from plugins.contracts import ChatProvider, ModelLimits

AUTO = "auto"


class ChosenModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model ready to be asked, and why it was taken, as a sentence."""

    provider: ChatProvider
    model: str
    why: str
    window: int | None

    @property
    def name(self) -> str:
        """`provider:model`."""
        return f"{self.provider.name}:{self.model}"


class Models:
    """The open chat providers, in the order in which `auto` asks them."""

    def __init__(self, providers: Mapping[str, ChatProvider], *, configured: str, window: int | None) -> None:
        self._providers = providers
        self._configured = configured
        self._window = window

    def configured(self) -> str | None:
        """The `provider:model` that a session without a wish of its own gets now; None if none can answer."""
        try:
            return self.choose().name
        except ModelUnknown:
            return None

    def available(self) -> Sequence[str]:
        """The `provider:model` that each usable provider would take by itself."""
        return [f"{name}:{model}" for name, provider in self._providers.items() if (model := provider.default_model())]

    def choose(self, wish: str | None = None) -> ChosenModel:
        """The model for a session that asked for `wish`, or for the configured one; ModelUnknown with a sentence that
        says how to get one."""
        name = wish or self._configured
        if name == AUTO:
            return self._automatic("/model says auto" if wish else "agent.model is auto")
        provider_name, colon, model = name.partition(":")
        provider = self._providers.get(provider_name)
        if provider is None or not colon or not model:
            known = ", ".join(self._providers)
            raise ModelUnknown(f"{name!r} is not `provider:model` with one of these providers: {known}.")
        source = "it was chosen with /model" if wish else "agent.model in the configuration says so"
        return self._chosen(provider, model, f"{name}, because {source}")

    def _automatic(self, source: str) -> ChosenModel:
        for provider in self._providers.values():
            if model := provider.default_model():
                name = f"{provider.name}:{model}"
                why = f"{name}, because {source} and {provider.why()}; /model or agent.model changes it"
                return self._chosen(provider, model, why)
        raise ModelUnknown(
            "No model can answer: set OPENAI_API_KEY, or a provider in config.toml, or install the bundled model with"
            " `make run`."
        )

    def _chosen(self, provider: ChatProvider, model: str, why: str) -> ChosenModel:
        limits: ModelLimits = provider.limits(model)
        return ChosenModel(provider=provider, model=model, why=why, window=self._window or limits.window)
