"""The names of models at this door: `exuvia` is whichever the gateway is configured to ask, `provider:model` any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.errors import ModelUnknown
from gateway.models.choosing import AUTO, ChosenModel, Models

DEFAULT = "exuvia"
"""What a program names that has no wish of its own."""


class ModelNames:
    """Of one gateway. `created` is the Unix time, in seconds, that every model is said to be of: nobody asks for more."""

    def __init__(self, models: Models, created: int) -> None:
        self._models = models
        self._created = created

    def chosen(self, name: str) -> ChosenModel:
        """The model that a client names. Programs often know none but OpenAI's own names: one without a provider is taken
        where a model of this gateway is called so. Raises ModelUnknown."""
        if name in (DEFAULT, AUTO):
            return self._models.choose()
        try:
            return self._models.choose(name)
        except ModelUnknown:
            full = next((each for each in self._own() if each.partition(":")[2] == name), None)
            if full is None:
                known = ", ".join([DEFAULT, *self._own()])
                sentence = f"There is no model {name[:200]!r} here. There are {known}, and any other `provider:model`."
                raise ModelUnknown(sentence) from None
            return self._models.choose(full)

    def listing(self, more: Sequence[str]) -> dict[str, Any]:
        """What `GET /v1/models` answers; `more` are names that are no chat models."""
        return {"object": "list", "data": [self._entry(name) for name in dict.fromkeys((DEFAULT, *self._own(), *more))]}

    def entry(self, name: str, more: Sequence[str]) -> dict[str, Any]:
        """What `GET /v1/models/NAME` answers. Raises ModelUnknown."""
        if name not in (DEFAULT, *more):
            name = self.chosen(name).name
        return self._entry(name)

    def _entry(self, name: str) -> dict[str, Any]:
        owner = name.partition(":")[0]
        return {"id": name, "object": "model", "created": self._created, "owned_by": owner}

    def _own(self) -> list[str]:
        """Those that are configured, and what each usable provider would take by itself."""
        return list(dict.fromkeys([*self._models.used(), *self._models.available()]))
