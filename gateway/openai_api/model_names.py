"""The names of models at this door: `exuvia` is whichever the gateway is configured to ask, `provider:model` any other.

What the providers that are set up have is asked of their servers, seldom and not for long: programs show the list to a
person to choose from, and many know no names but a vendor's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from gateway.errors import ModelUnknown, sentence_of
from gateway.models.choosing import AUTO, ChosenModel, Models
from plugins.contracts import ChatProvider, ListsModels

DEFAULT = "exuvia"
"""What a program names that has no wish of its own."""

WITHIN = 3.0
"""Seconds in which a server has to say what it has."""

KNOWN_FOR, FAILED_FOR = 300.0, 30.0
"""Seconds for which its answer counts, and after which one is asked again that gave none."""

MOST = 1000
"""Models of one provider."""

log = structlog.get_logger("exuvia.openai_api")


class _Listed(msgspec.Struct, frozen=True):
    """What a provider has, as its server said; `until` is on the clock given, `provider` whom it was asked of."""

    provider: ChatProvider
    names: tuple[str, ...]
    until: float


class ModelNames:
    """Of one gateway. `created` is the Unix time, in seconds, that every model is said to be of: nobody asks for more; `now`
    a clock in seconds that never goes back."""

    def __init__(
        self, models: Models, providers: Mapping[str, ChatProvider], *, created: int, now: Callable[[], float]
    ) -> None:
        self._models = models
        self._providers = providers
        self._created = created
        self._now = now
        self._listed: dict[str, _Listed] = {}
        self._asking = asyncio.Lock()

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
        async with self._asking:
            able = {
                name: provider
                for name, provider in self._providers.items()
                if provider.default_model() and isinstance(provider, ListsModels)
            }
            due = {name: each for name, each in able.items() if not self._knows(name, each)}
            await asyncio.gather(*(self._ask(name, provider) for name, provider in due.items()))
            return [f"{name}:{model}" for name in able for model in self._listed[name].names]

    def _knows(self, name: str, provider: ChatProvider) -> bool:
        listed = self._listed.get(name)
        return listed is not None and listed.provider is provider and self._now() < listed.until

    async def _ask(self, name: str, provider: ChatProvider) -> None:
        assert isinstance(provider, ListsModels)
        names: tuple[str, ...] = ()
        known_for = KNOWN_FOR
        try:
            async with asyncio.timeout(WITHIN):
                names = tuple((await provider.models()).models)[:MOST]
        except (Exception, SystemExit) as error:  # whatever a stranger's provider raises: the list is only shorter
            known_for = FAILED_FOR
            log.info("models_not_listed", provider=name, reason=sentence_of(error))
        self._listed[name] = _Listed(provider, names, self._now() + known_for)


def _called(name: str, among: Sequence[str]) -> str | None:
    """The first of these `provider:model` whose model has a name."""
    return next((each for each in among if each.partition(":")[2] == name), None)
