"""The names of models at this door: `exuvia` is whichever the gateway is configured to ask, `provider:model` any other.

What the providers that are set up have stands in their servers' lists: programs show them to a person to choose from, and
many know no names but a vendor's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.models.listings import Listings
from gateway.models.registry import AUTO, ChosenModel, ModelRegistry
from gateway.support.errors import ModelUnknown

DEFAULT = "exuvia"
"""What a program names that has no wish of its own."""


class ModelNames:
    """Of one gateway. `created` is the Unix time, in seconds, that every model is said to be of: nobody asks for more."""

    def __init__(self, models: ModelRegistry, listings: Listings, *, created: int) -> None:
        self._models = models
        self._listings = listings
        self._created = created

    async def chosen(self, name: str) -> ChosenModel:
        """The model that a client names. One without a provider is taken where a provider has a model called so, the
        configured ones before the others. Raises ModelUnknown."""
        if name in (DEFAULT, AUTO):
            return self._models.choose()
        try:
            return self._models.choose(name)
        except ModelUnknown:
            own = self._own()
            full = _called(name, own) or _called(name, await self._all())
            if full is None:
                known = ", ".join([DEFAULT, *own])
                sentence = f"There is no model {name[:100]!r} here. There are {known}, and any other `provider:model`."
                raise ModelUnknown(sentence) from None
            return self._models.choose(full)

    async def listing(self, more: Sequence[str]) -> dict[str, Any]:
        """What `GET /v1/models` answers; `more` are names that are no chat models."""
        names = dict.fromkeys((DEFAULT, *self._own(), *await self._all(), *more))
        return {"object": "list", "data": [self._entry(name) for name in names]}

    async def entry(self, name: str, more: Sequence[str]) -> dict[str, Any]:
        """What `GET /v1/models/NAME` answers. Raises ModelUnknown."""
        if name not in (DEFAULT, *more):
            name = (await self.chosen(name)).name
        return self._entry(name)

    def _entry(self, name: str) -> dict[str, Any]:
        owner = name.partition(":")[0]
        return {"id": name, "object": "model", "created": self._created, "owned_by": owner}

    def _own(self) -> list[str]:
        """Those that are configured, and what each usable provider would take by itself."""
        return list(dict.fromkeys([*self._models.used(), *self._models.available()]))

    async def _all(self) -> list[str]:
        """What the servers have of the providers that are set up, as far as they say so."""
        return [f"{name}:{model}" for name, each in (await self._listings.all()).items() for model in each.names]


def _called(name: str, among: Sequence[str]) -> str | None:
    """The first of these `provider:model` whose model has a name."""
    return next((each for each in among if each.partition(":")[2] == name), None)
