"""Model names and `/v1/models`: `exuvia` is the configured model, `provider:model` any other.

The lists include the models of all providers that are set up, since clients show them to choose from, and many clients only
know a vendor's names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from gateway.config.keys import RoleKeys
from gateway.models.registry import AUTO, ChosenModel, ModelRegistry
from gateway.support.errors import ModelUnknown

DEFAULT = "exuvia"
"""The name of the configured model."""


class ModelNames:
    """The model names of one gateway. `rights` returns what a person may do, `created` is the Unix time in seconds that
    every model has in the list."""

    def __init__(self, models: ModelRegistry, rights: Callable[[str], RoleKeys], *, created: int) -> None:
        self._models = models
        self._rights = rights
        self._created = created

    async def chosen(self, name: str, person: str) -> ChosenModel:
        """Return the model that a person's client names.

        A name without a provider selects the first provider that has such a model, configured models first.

        Raises:
            ModelUnknown: There is no such model, or the person may not choose it.
        """
        if name in (DEFAULT, AUTO):
            return self._models.choose()
        admits = partial(self._models.admits, rights=self._rights(person))
        try:
            chosen = self._models.choose(name)
        except ModelUnknown:
            own = list(filter(admits, self._own()))
            full = _first_named(name, own) or _first_named(name, filter(admits, await self._all()))
            if full is None:
                known = ", ".join([DEFAULT, *own])
                sentence = f"There is no model {name[:100]!r}. Available: {known}, and any other `provider:model`."
                raise ModelUnknown(sentence) from None
            return self._models.choose(full)
        if not admits(chosen.name):
            raise ModelUnknown(f"The model {name[:100]!r} may not be chosen with this token.")
        return chosen

    async def listing(self, more: Sequence[str], person: str) -> dict[str, Any]:
        """Return the response to `GET /v1/models`; `more` are names of other than chat models."""
        admits = partial(self._models.admits, rights=self._rights(person))
        names = dict.fromkeys((DEFAULT, *filter(admits, [*self._own(), *await self._all()]), *more))
        return {"object": "list", "data": [self._entry(name) for name in names]}

    async def entry(self, name: str, more: Sequence[str], person: str) -> dict[str, Any]:
        """Return the response to `GET /v1/models/NAME`.

        Raises:
            ModelUnknown: There is no such model.
        """
        if name not in (DEFAULT, *more):
            name = (await self.chosen(name, person)).name
        return self._entry(name)

    def _entry(self, name: str) -> dict[str, Any]:
        owner = name.partition(":")[0]
        return {"id": name, "object": "model", "created": self._created, "owned_by": owner}

    def _own(self) -> list[str]:
        """Return the configured models, and the default model of each usable provider."""
        return list(dict.fromkeys([*self._models.used(), *self._models.available()]))

    async def _all(self) -> list[str]:
        """Return all models in the lists of the providers that are set up."""
        return [f"{name}:{model}" for name, each in (await self._models.listings.all()).items() for model in each.names]


def _first_named(name: str, among: Iterable[str]) -> str | None:
    """Return the first `provider:model` whose model has this name."""
    return next((each for each in among if each.partition(":")[2] == name), None)
