"""The model registry: resolves `provider:model` names to open providers, makes the choice of `auto`, and finds
fallbacks."""

from __future__ import annotations

import asyncio
import copy
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
import structlog

from gateway.config.agents import AgentKeys
from gateway.config.keys import RoleKeys
from gateway.models.breaker import BreakerView, CircuitBreaker
from gateway.models.listings import Listings
from gateway.models.spending.spending import Spending
from gateway.support.errors import ModelUnknown
from plugins.api.chat import ChatProvider, DiscoversModel, DiscoversServers
from plugins.api.models import ModelLimits
from plugins.providers.hosted.known_models import longest_prefix
from plugins.support.errors import ProviderError, RateLimited
from plugins.support.http_errors import short_reason
from plugins.support.suggestions import did_you_mean

AUTO = "auto"

DISCOVERY_INTERVAL = 30.0
"""Seconds between two searches for servers on this machine."""

log = structlog.get_logger("exuvia.models")

NO_MODEL = (
    "No model can answer: set OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY; or start Ollama, llama-server or LM"
    " Studio on this machine; or name a server in OLLAMA_HOST, OPENAI_BASE_URL or config.toml; or install the bundled"
    " model with `make run`."
)
"""The message when no model is available."""

LONGEST_PAUSE = 3600.0
"""Maximum seconds of a cooldown, so that a limit that was raised at the vendor counts without a restart."""

REMEMBERED = 256
"""Maximum number of models with a recorded failure: a person can name any model with `/model`."""


class Cooldown(msgspec.Struct, frozen=True, kw_only=True):
    """A model that failed when it was last asked. It is not asked before `until`; `why` is the reason in a few words,
    which any session may see."""

    until: float
    why: str


class Cooldowns:
    """The cooldowns of all models, by `provider:model`. `now` is a monotonic clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._models: dict[str, Cooldown] = {}

    def begin(self, name: str, error: ProviderError) -> bool:
        """Record that a model failed or was not asked; return True if it is the first time since it last answered.

        A rate limit with a time to retry begins a pause of that length.
        """
        known = self._models.pop(name, None)
        pause = min(error.retry_after or 0.0, LONGEST_PAUSE) if isinstance(error, RateLimited) else 0.0
        self._models[name] = Cooldown(until=self._now() + pause, why=short_reason(error))
        if len(self._models) > REMEMBERED:
            del self._models[next(iter(self._models))]
        return known is None

    def remaining(self, name: str) -> tuple[float, str] | None:
        """Return the seconds for which a model is not to be asked, and why; None if it may be."""
        cooldown = self._models.get(name)
        if cooldown is None or (left := cooldown.until - self._now()) <= 0:
            return None
        return left, cooldown.why

    def end(self, name: str) -> bool:
        """Clear the cooldown of a model that answered; return True if it had one."""
        return self._models.pop(name, None) is not None

    def clear_provider(self, provider: str) -> None:
        """Clear the cooldowns of a provider that was reopened, perhaps with another key."""
        self._models = {name: cooldown for name, cooldown in self._models.items() if name.partition(":")[0] != provider}


def _none(_: str) -> None:
    """Return None: no other model is known."""


class ChosenModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model ready to be asked.

    `why` explains the choice in a sentence. `fallbacks` are asked in order when the model cannot answer. `breaker` belongs
    to the provider; `cooldowns`, `listings` and `spending` are shared by all sessions, and nothing is charged without
    `spending`. `choose_again` repeats the choice if `auto` made it. `other` returns another model by its name, None if it is
    unknown.
    """

    provider: ChatProvider
    model: str
    why: str
    window: int | None
    breaker: CircuitBreaker
    cooldowns: Cooldowns
    listings: Listings
    spending: Spending | None = None
    fallbacks: tuple[ChosenModel, ...] = ()
    choose_again: Callable[[], ChosenModel] | None = None
    other: Callable[[str], ChosenModel | None] = _none

    @property
    def name(self) -> str:
        return f"{self.provider.name}:{self.model}"

    @property
    def limits(self) -> ModelLimits:
        """The limits that the provider reports now."""
        return self.provider.limits(self.model)


class ModelRegistry:
    """The open chat providers, in the order in which `auto` tries them. `now` is a monotonic clock in seconds; `spending`
    charges the requests, None if nobody does."""

    def __init__(
        self,
        providers: Mapping[str, ChatProvider],
        agent: AgentKeys,
        *,
        now: Callable[[], float] = time.monotonic,
        spending: Spending | None = None,
    ) -> None:
        self._spending = spending
        self._providers = providers
        self._main = agent
        self._keys: Callable[[], AgentKeys] | None = None
        self._section = "agent"
        """The table of the configuration that `_agent` is of."""
        self._now = now
        self._breakers: dict[str, tuple[ChatProvider, CircuitBreaker]] = {}
        self._cooldowns = Cooldowns(now)
        self.listings = Listings(providers, now=now)

    def reconfigure(self, agent: AgentKeys) -> None:
        """Replace the configuration."""
        self._main = agent

    def of_agent(self, name: str, keys: Callable[[], AgentKeys]) -> ModelRegistry:
        """Return the registry of another agent, with the same providers, breakers and cooldowns.

        Args:
            name: The agent.
            keys: Returns the agent's configuration in force. Raises ModelUnknown if the agent does not exist any more.
        """
        registry = copy.copy(self)
        registry._keys, registry._section = keys, f"agents.{name}"
        return registry

    @property
    def _agent(self) -> AgentKeys:
        return self._main if self._keys is None else self._keys()

    def configured(self) -> str | None:
        """Return the `provider:model` for sessions without a choice of their own; None if no model is available."""
        try:
            return self.choose().name
        except ModelUnknown:
            return None

    async def discover_models(self) -> None:
        """If the model is `auto`, ask the configured provider for its models or, if none is configured, search for servers
        on this machine, all at once.

        No part of a conversation is sent.
        """
        if self._agent.model != AUTO:
            return
        before = self.configured()
        ready = next((provider for provider in self._before_discovery() if provider.default_model()), None)
        if ready is not None:
            searches = [ready.discover()] if isinstance(ready, DiscoversModel) else []
        else:
            searches = [
                provider.discover_server() for provider in self._providers.values() if isinstance(provider, DiscoversServers)
            ]
        await asyncio.gather(*searches, return_exceptions=True)  # a failed search is one that found nothing
        if (now := self.configured()) != before:
            log.info("model_chosen", model=self.choose().why if now else NO_MODEL)

    async def discover_periodically(self) -> None:
        """Discover now and every `DISCOVERY_INTERVAL` seconds until cancelled: servers start and stop."""
        while True:
            await self.discover_models()
            await asyncio.sleep(DISCOVERY_INTERVAL)

    def _before_discovery(self) -> Iterator[ChatProvider]:
        """Yield the providers that `auto` tries before the first that searches this machine."""
        return itertools.takewhile(lambda provider: not isinstance(provider, DiscoversServers), self._providers.values())

    def available(self) -> Sequence[str]:
        """Return the default `provider:model` of each usable provider."""
        return [f"{name}:{model}" for name, provider in self._providers.items() if (model := provider.default_model())]

    def breakers(self) -> Mapping[str, BreakerView]:
        """Return the breaker state of each provider that was asked, by name."""
        return {name: breaker.view() for name, (_, breaker) in self._breakers.items() if name in self._providers}

    def choose(self, choice: str | None = None) -> ChosenModel:
        """Return the model for a session, with its fallbacks.

        `choice` is the session's own choice, by default the configured model. Raises ModelUnknown with instructions to get a
        model.
        """
        name = choice or self._agent.model
        if name == AUTO:
            chosen = self._automatic("/model says auto" if choice else f"{self._section}.model is auto")
        else:
            source = "it was chosen with /model" if choice else f"{self._section}.model is set to it"
            chosen = self._named(name, f"{name}, because {source}", self._agent.context_window)
        fallbacks: tuple[ChosenModel, ...] = ()
        for each in reversed([name for name in self._agent.fallback_models if name != chosen.name]):
            if (fallback := self._fallback(each)) is not None:
                fallbacks = (msgspec.structs.replace(fallback, fallbacks=fallbacks), *fallbacks)
        return msgspec.structs.replace(chosen, fallbacks=fallbacks)

    def limits(self, provider: str, model: str) -> ModelLimits:
        """Return the limits in force for a model and their origin; `agent.context_window` applies only to the configured
        model."""
        configured = self.configured() == f"{provider}:{model}"
        return self._limits(self._providers[provider], model, self._agent.context_window if configured else None)

    def provider(self, name: str) -> ChatProvider:
        """Return an open provider. Raises KeyError."""
        return self._providers[name]

    def admits(self, name: str, rights: RoleKeys) -> bool:
        """Return True if a person with these rights may choose this model; everybody may choose the configured ones."""
        return rights.has_model(name) or name in self.used()

    def used(self) -> list[str]:
        """Return the configured `provider:model` and its fallbacks; empty if no model is available."""
        try:
            chosen = self.choose()
        except ModelUnknown:
            return []
        return [chosen.name, *(each.name for each in chosen.fallbacks)]

    def unknown_fallbacks(self) -> list[str]:
        """Return a sentence for each entry of `agent.fallback_models` that names no known model; such an entry is
        ignored."""
        return [
            f"{self._section}.fallback_models names {name!r}, which no provider has"
            for name in self._agent.fallback_models
            if self._fallback(name) is None
        ]

    def _named(self, name: str, why: str, window: int | None) -> ChosenModel:
        provider_name, colon, model = name.partition(":")
        provider = self._providers.get(provider_name)
        if provider is None or not colon or not model:
            known = ", ".join(self._providers)
            meant = did_you_mean(name, [f"{each}:{model}" for each in self._providers], mark="`") if model else ""
            raise ModelUnknown(f"{name!r} is not `provider:model` with one of these providers: {known}{meant or '.'}")
        return self._chosen(provider, model, why, window)

    def _fallback(self, name: str) -> ChosenModel | None:
        """Return a fallback; None for an unknown name, which must not keep the first model from answering.
        `agent.context_window` does not apply to it."""
        try:
            return self._named(name, f"{name}, because {self._section}.fallback_models names it", None)
        except ModelUnknown:
            return None

    def _automatic(self, source: str) -> ChosenModel:
        for provider in self._providers.values():
            if model := provider.default_model():
                name = f"{provider.name}:{model}"
                why = (
                    f"{name}, because {source} and {provider.explain_default()}; /model or {self._section}.model changes it"
                )
                chosen = self._chosen(provider, model, why, self._agent.context_window)
                return msgspec.structs.replace(chosen, choose_again=partial(self._automatic, source))
        raise ModelUnknown(NO_MODEL)

    def _chosen(self, provider: ChatProvider, model: str, why: str, window: int | None) -> ChosenModel:
        window = self._limits(provider, model, window).window
        return ChosenModel(
            provider=provider,
            model=model,
            why=why,
            window=window,
            breaker=self._breaker(provider),
            cooldowns=self._cooldowns,
            listings=self.listings,
            spending=self._spending,
            other=self._fallback,
        )

    def _limits(self, provider: ChatProvider, model: str, window: int | None) -> ModelLimits:
        """Return the limits that the provider reports, overridden by the configuration."""
        known = provider.limits(model)
        window = window or longest_prefix(self._agent.context_windows, f"{provider.name}:{model}")
        return known if window is None else msgspec.structs.replace(known, window=window, window_from="configuration")

    def _breaker(self, provider: ChatProvider) -> CircuitBreaker:
        """Return the provider's breaker; a new one for a provider that was reopened, perhaps at another address."""
        known = self._breakers.get(provider.name)
        if known is None or known[0] is not provider:
            known = self._breakers[provider.name] = provider, CircuitBreaker(self._now)
            self._cooldowns.clear_provider(provider.name)
        return known[1]
