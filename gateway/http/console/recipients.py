"""JSON endpoint for where texts are stored and which models receive them.

GET /api/recipients   each model that receives texts of a new session, with its purpose and address
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import msgspec
from aiohttp import web

from gateway.auth.people import Admission
from gateway.config.keys import Config
from gateway.http.responses import answer
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.support.errors import ModelUnknown
from plugins.api.chat import HasAddress
from plugins.memory.memory import Memory
from plugins.support.workspace import OWNER

Purpose: TypeAlias = Literal["answers", "fallback", "summaries", "facts", "vectors"]


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """A model that receives texts: `name` is `provider:model`. `address` is that of its provider: empty if the texts do not
    leave the gateway's process, None if a plugin's provider does not say."""

    name: str
    purpose: Purpose
    address: str | None


class Recipients:
    """The recipients of one gateway. `config` returns the configuration in force, `home` the folder of all data."""

    def __init__(self, models: ModelRegistry, memory: Memory, config: Callable[[], Config], home: Callable[[], str]) -> None:
        self._models = models
        self._memory = memory
        self._config = config
        self._home = home

    async def recipients(self, _: web.Request, admission: Admission) -> web.StreamResponse:
        """Return all recipients, and the folder for the owner."""
        folder = self._home() if admission.person.id == OWNER else None
        return answer(200, {"folder": folder, "recipients": list(self._all())})

    def _all(self) -> Iterator[Recipient]:
        config = self._config()
        if (chosen := self._chosen(None)) is not None:
            yield _recipient(chosen, "answers")
            yield from (_recipient(each, "fallback") for each in chosen.fallbacks)
        if config.compaction.enabled and config.compaction.model and (model := self._chosen(config.compaction.model)):
            yield _recipient(model, "summaries")
        facts = config.memory.facts
        if facts.auto_extract and facts.model and (model := self._chosen(facts.model)):
            yield _recipient(model, "facts")
        if (provider := self._memory.provider()) is not None and (name := provider.model()):
            address = provider.address(name) if isinstance(provider, HasAddress) else None
            yield Recipient(name=f"{provider.name}:{name}", purpose="vectors", address=address)

    def _chosen(self, name: str | None) -> ChosenModel | None:
        try:
            return self._models.choose(name)
        except ModelUnknown:
            return None


def _recipient(model: ChosenModel, purpose: Purpose) -> Recipient:
    address = model.provider.address(model.model) if isinstance(model.provider, HasAddress) else None
    return Recipient(name=model.name, purpose=purpose, address=address)
