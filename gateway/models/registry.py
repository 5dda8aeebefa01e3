"""Which models answer: `provider:model` names resolved to open providers, the choice of `auto`, and who steps in."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
import structlog

from gateway.models.breaker import BreakerView, CircuitBreaker
from gateway.models.listings import Listings
from gateway.support.errors import ModelUnknown
from plugins.api.chat import ChatProvider, DiscoversModel, DiscoversServers
from plugins.api.models import ModelLimits
from plugins.providers.hosted.model_limits import longest
from plugins.support.errors import ProviderError, RateLimited
from plugins.support.http_errors import in_short
from plugins.support.suggestions import did_you_mean

AUTO = "auto"

LOOK_AGAIN = 30.0
"""Seconds between two looks at the servers of this machine: so long a person waits who has just started one."""

log = structlog.get_logger("exuvia.models")

WAYS = (
    "No model can answer: set OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY; or start Ollama, llama-server or LM"
    " Studio on this machine; or name a server in OLLAMA_HOST, OPENAI_BASE_URL or config.toml; or install the bundled"
    " model with `make run`."
)
"""What a person can do who has no model at all."""

LONGEST_PAUSE = 3600.0
"""Seconds for which a model is left alone at most: whoever raises a limit at the vendor need not restart the gateway."""

REMEMBERED = 256
"""Models that are remembered: people may name any with `/model`."""


class Cooldown(msgspec.Struct, frozen=True, kw_only=True):
    """A model that could not answer when it was asked last: it is left alone until `until`; `why` says in a word or two
    what was wrong, to whichever session asks next."""

    until: float
    why: str


class Cooldowns:
    """Of all models, by `provider:model`. `now` is a clock in seconds that never goes back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._aside: dict[str, Cooldown] = {}

    def step(self, name: str, error: ProviderError) -> bool:
        """A model could not answer, or was not asked, for this reason; True if it is the first time since it answered. One
        that said when it takes requests again is left alone until then."""
        known = self._aside.pop(name, None)
        pause = min(error.retry_after or 0.0, LONGEST_PAUSE) if isinstance(error, RateLimited) else 0.0
        self._aside[name] = Cooldown(until=self._now() + pause, why=in_short(error))
        if len(self._aside) > REMEMBERED:
            del self._aside[next(iter(self._aside))]
        return known is None

    def rest(self, name: str) -> tuple[float, str] | None:
        """How many seconds a model is still to be left alone, and why; None if it may be asked."""
        aside = self._aside.get(name)
        if aside is None or (left := aside.until - self._now()) <= 0:
            return None
        return left, aside.why

    def answered(self, name: str) -> bool:
        """A model answered; True if it had stepped aside before."""
        return self._aside.pop(name, None) is not None

    def forget(self, provider: str) -> None:
        """A provider was opened anew, perhaps with another key."""
        self._aside = {name: aside for name, aside in self._aside.items() if name.partition(":")[0] != provider}


class ChosenModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model ready to be asked, and why it was taken, as a sentence. `fallbacks` are all that stand behind it, in
    order, and answer when it cannot; `breaker` is its provider's, `asides` and `listings` everybody's, shared by all
    sessions. `instead` chooses again where `auto` chose it."""

    provider: ChatProvider
    model: str
    why: str
    window: int | None
    breaker: CircuitBreaker
    asides: Cooldowns
    listings: Listings
    fallbacks: tuple[ChosenModel, ...] = ()
    instead: Callable[[], ChosenModel] | None = None

    @property
    def name(self) -> str:
        """`provider:model`."""
        return f"{self.provider.name}:{self.model}"


class ModelRegistry:
    """The open chat providers, in the order in which `auto` asks them. `window` is `agent.context_window`, `windows`
    `agent.context_windows`, `fallbacks` `agent.fallback_models`, `now` a clock in seconds that never goes back."""

    def __init__(
        self,
        providers: Mapping[str, ChatProvider],
        *,
        configured: str,
        window: int | None,
        windows: Mapping[str, int] | None = None,
        fallbacks: Sequence[str] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._providers = providers
        self._now = now
        self._breakers: dict[str, tuple[ChatProvider, CircuitBreaker]] = {}
        self._asides = Cooldowns(now)
        self.listings = Listings(providers, now=now)
        self.reconfigure(configured=configured, window=window, windows=windows, fallbacks=fallbacks)

    def reconfigure(
        self,
        *,
        configured: str,
        window: int | None,
        windows: Mapping[str, int] | None = None,
        fallbacks: Sequence[str] = (),
    ) -> None:
        """Choose by other keys of `[agent]` from now on."""
        self._configured = configured
        self._window = window
        self._windows = windows or {}
        self._fallbacks = tuple(fallbacks)

    def configured(self) -> str | None:
        """The `provider:model` that a session without a wish of its own gets now; None if none can answer."""
        try:
            return self.choose().name
        except ModelUnknown:
            return None

    async def look_around(self) -> None:
        """If `auto` is to choose: have the provider that was set up find out which models its server has or, where none was,
        look for servers on this machine, all at once. Nothing of a conversation is sent."""
        if self._configured != AUTO:
            return
        before = self.configured()
        set_up = next((provider for provider in self._before_nearby() if provider.default_model()), None)
        if set_up is not None:
            looks = [set_up.discover()] if isinstance(set_up, DiscoversModel) else []
        else:
            looks = [
                provider.discover_server() for provider in self._providers.values() if isinstance(provider, DiscoversServers)
            ]
        await asyncio.gather(*looks, return_exceptions=True)  # one that fails has found nothing
        if (now := self.configured()) != before:
            log.info("model_chosen", model=self.choose().why if now else WAYS)

    async def keep_looking(self) -> None:
        """Look around now and every `LOOK_AGAIN` seconds, until cancelled: servers are started and stopped."""
        while True:
            await self.look_around()
            await asyncio.sleep(LOOK_AGAIN)

    def _before_nearby(self) -> Iterator[ChatProvider]:
        """The providers that `auto` asks before the first that looks nearby."""
        return itertools.takewhile(lambda provider: not isinstance(provider, DiscoversServers), self._providers.values())

    def available(self) -> Sequence[str]:
        """The `provider:model` that each usable provider would take by itself."""
        return [f"{name}:{model}" for name, provider in self._providers.items() if (model := provider.default_model())]

    def breakers(self) -> Mapping[str, BreakerView]:
        """How it stands with each provider that was asked or may have been, by name."""
        return {name: breaker.view() for name, (_, breaker) in self._breakers.items() if name in self._providers}

    def choose(self, wish: str | None = None) -> ChosenModel:
        """The model for a session that asked for `wish`, or for the configured one, with those that step in for it;
        ModelUnknown with a sentence that says how to get one."""
        name = wish or self._configured
        if name == AUTO:
            chosen = self._automatic("/model says auto" if wish else "agent.model is auto")
        else:
            source = "it was chosen with /model" if wish else "agent.model in the configuration says so"
            chosen = self._named(name, f"{name}, because {source}", self._window)
        behind: tuple[ChosenModel, ...] = ()
        for each in reversed([name for name in self._fallbacks if name != chosen.name]):
            if (fallback := self._fallback(each)) is not None:
                behind = (msgspec.structs.replace(fallback, fallbacks=behind), *behind)
        return msgspec.structs.replace(chosen, fallbacks=behind)

    def limits(self, provider: str, model: str) -> ModelLimits:
        """What is in force for a model of an open provider, and from where; `agent.context_window` is about the model that
        is configured and no other."""
        configured = self.configured() == f"{provider}:{model}"
        return self._limits(self._providers[provider], model, self._window if configured else None)

    def used(self) -> list[str]:
        """The `provider:model` that answers by the configuration, and those that step in; none if none can answer."""
        try:
            chosen = self.choose()
        except ModelUnknown:
            return []
        return [chosen.name, *(each.name for each in chosen.fallbacks)]

    def misnamed(self) -> list[str]:
        """A sentence for each entry of `agent.fallback_models` that names no model; it is passed over."""
        return [
            f"agent.fallback_models names {name!r}, which no provider has"
            for name in self._fallbacks
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
        """A model that steps in; None for a name that is none: a mistake there must not keep the first model from
        answering. `agent.context_window` is about the first model and no other."""
        try:
            return self._named(name, f"{name}, because agent.fallback_models names it", None)
        except ModelUnknown:
            return None

    def _automatic(self, source: str) -> ChosenModel:
        for provider in self._providers.values():
            if model := provider.default_model():
                name = f"{provider.name}:{model}"
                why = f"{name}, because {source} and {provider.explain_default()}; /model or agent.model changes it"
                chosen = self._chosen(provider, model, why, self._window)
                return msgspec.structs.replace(chosen, instead=partial(self._automatic, source))
        raise ModelUnknown(WAYS)

    def _chosen(self, provider: ChatProvider, model: str, why: str, window: int | None) -> ChosenModel:
        window = self._limits(provider, model, window).window
        return ChosenModel(
            provider=provider,
            model=model,
            why=why,
            window=window,
            breaker=self._breaker(provider),
            asides=self._asides,
            listings=self.listings,
        )

    def _limits(self, provider: ChatProvider, model: str, window: int | None) -> ModelLimits:
        """What the provider knows of a model, under what the configuration says."""
        known = provider.limits(model)
        window = window or longest(self._windows, f"{provider.name}:{model}")
        return known if window is None else msgspec.structs.replace(known, window=window, window_from="configuration")

    def _breaker(self, provider: ChatProvider) -> CircuitBreaker:
        """The provider's; a new one for a provider that was opened anew, perhaps at another address."""
        known = self._breakers.get(provider.name)
        if known is None or known[0] is not provider:
            known = self._breakers[provider.name] = provider, CircuitBreaker(self._now)
            self._asides.forget(provider.name)
        return known[1]
