"""JSON endpoints for what a message can be sent to and contain.

GET /api/models   the models that can answer, with their windows, prices, levels of effort and temperatures
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from aiohttp import web

from gateway.auth.people import Admission
from gateway.http.responses import answer
from gateway.models.listings import Listing
from gateway.models.prices import Price, price_of
from gateway.models.registry import ModelRegistry
from gateway.status.instruments import GatewayContext


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model that can answer. `window` and `output` are in tokens; what is unknown or missing is left out. `vision` is True
    if it accepts images."""

    id: str
    provider: str
    vision: bool
    window: int | None = None
    output: int | None = None
    price: Price | None = None
    efforts: tuple[str, ...] = ()
    temperature: tuple[float, float] | None = None


class ComposerEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, models: ModelRegistry, context: GatewayContext) -> None:
        self._models = models
        self._context = context

    async def models(self, _: web.Request, __: Admission) -> web.StreamResponse:
        """Return the models of all configured providers, and those whose lists could not be fetched. A list is requested
        at most every few minutes."""
        listings = await self._models.listings.all()
        failures = [{"provider": name, "reason": each.failed} for name, each in listings.items() if each.failed]
        models = [self._model(*name.split(":", 1)) for name in dict.fromkeys(self._names(listings))]
        return answer(200, {"default": self._models.configured(), "models": models, "failures": failures})

    def _names(self, listings: Mapping[str, Listing]) -> Iterator[str]:
        """Yield the default model of each provider, the configured ones, and those that are listed."""
        yield from self._models.available()
        yield from self._models.used()
        for provider, listing in listings.items():
            yield from (f"{provider}:{model}" for model in sorted(listing.chats))

    def _model(self, provider: str, model: str) -> Model:
        limits = self._models.limits(provider, model)
        return Model(
            id=f"{provider}:{model}",
            provider=provider,
            vision=limits.vision is not None,
            window=limits.window,
            output=limits.output,
            price=price_of(self._models.provider(provider), model, self._context.config.prices),
            efforts=limits.efforts,
            temperature=limits.temperature,
        )
