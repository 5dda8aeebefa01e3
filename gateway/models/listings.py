"""The model lists of providers, requested rarely, cached and with a short timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from gateway.support.errors import sentence_of
from plugins.api.chat import ChatProvider, ListsModels
from plugins.providers.hosted.model_listing import NON_CHAT_MODEL
from plugins.support.errors import ProviderError
from plugins.support.http_errors import short_reason
from plugins.support.untrusted import reraise_cancellation

WITHIN = 3.0
"""Seconds in which a server has to list its models."""

KNOWN_FOR, FAILED_FOR = 300.0, 30.0
"""Seconds for which a list is cached, and for which a failed request is."""

MOST = 1000
"""Models that are kept of one provider."""

log = structlog.get_logger("exuvia.models")


class Listing(msgspec.Struct, frozen=True):
    """The models that a provider's server listed; empty if the request failed, with the reason in `failed` in a few
    words."""

    names: tuple[str, ...]
    failed: str = ""

    def has(self, model: str) -> bool:
        """Return True if the list has the model: under its name, with a tag, or with the date of a version."""
        return any(name == model or name.startswith((f"{model}:", f"{model}-")) for name in self.names)

    @property
    def chats(self) -> list[str]:
        """The chat models, as far as their names tell, in the list's order."""
        return [name for name in self.names if not NON_CHAT_MODEL.search(name)]


class Listings:
    """The cached lists of one gateway. `now` is a monotonic clock in seconds."""

    def __init__(self, providers: Mapping[str, ChatProvider], *, now: Callable[[], float]) -> None:
        self._providers = providers
        self._now = now
        self._known: dict[str, tuple[ListsModels, Listing, float]] = {}
        """By provider: the instance that was asked, its list, and when the entry expires."""
        self._asking = asyncio.Lock()

    async def of(self, name: str) -> Listing | None:
        """Return the list of a provider; None if it has no list or is no longer open."""
        return (await self._asked([name])).get(name)

    async def without(self, name: str, model: str) -> Listing | None:
        """Return the list of a provider that just reported a model as unknown; a cached list that names the model is
        refreshed."""
        if name in self._known and self._known[name][1].has(model):
            del self._known[name]
        return await self.of(name)

    async def all(self) -> Mapping[str, Listing]:
        """Return the lists of the configured providers, without those that have none."""
        return await self._asked([name for name, provider in self._providers.items() if provider.default_model()])

    async def _asked(self, names: list[str]) -> dict[str, Listing]:
        async with self._asking:
            able: dict[str, ListsModels] = {}
            for name in names:
                if isinstance(provider := self._providers.get(name), ListsModels):
                    able[name] = provider
            await asyncio.gather(*(self._ask(name, each) for name, each in able.items() if not self._knows(name, each)))
            return {name: self._known[name][1] for name in able}

    def _knows(self, name: str, provider: ListsModels) -> bool:
        known = self._known.get(name)
        return known is not None and known[0] is provider and self._now() < known[2]

    async def _ask(self, name: str, provider: ListsModels) -> None:
        try:
            async with asyncio.timeout(WITHIN):
                listing = Listing(tuple((await provider.models()).models)[:MOST])
        except BaseException as error:  # whatever a third-party provider raises: the list is only shorter
            reraise_cancellation(error)
            log.info("models_not_listed", provider=name, reason=sentence_of(error))
            listing = Listing((), _why(error))
        known_for = FAILED_FOR if listing.failed else KNOWN_FOR
        self._known[name] = provider, listing, self._now() + known_for


def _why(error: BaseException) -> str:
    match error:
        case ProviderError():
            return short_reason(error)
        case TimeoutError():
            return f"no answer within {WITHIN:.0f} s"
        case _:
            return "invalid response"
