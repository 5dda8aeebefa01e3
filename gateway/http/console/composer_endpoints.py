"""JSON endpoints for what a message can be sent to and contain.

GET /api/models      the models that can answer, with their windows, prices, levels of effort and temperatures
GET /api/prompts     the prompt templates of the workspace
GET /api/files?q=…   files that the person may read and whose paths contain the query
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import msgspec
from aiohttp import web

from gateway.auth.people import Admission
from gateway.http.console.workspace_files import Prompt, WorkspaceFile, find_files, read_prompts
from gateway.http.responses import answer
from gateway.models.listings import Listing
from gateway.models.registry import ModelRegistry
from gateway.models.spending.prices import Price, price_of
from gateway.models.transcription import Transcriber
from gateway.status.instruments import GatewayContext
from plugins.support.workspace import NotesAccess

LONGEST_QUERY = 200
"""The maximum length of a query in characters."""


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

    def __init__(self, models: ModelRegistry, transcriber: Transcriber, context: GatewayContext) -> None:
        self._models = models
        self._transcriber = transcriber
        self._context = context

    async def models(self, _: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the models of all configured providers that the person may choose, and the providers whose lists could not
        be fetched. A list is requested at most every few minutes."""
        listings = await self._models.listings.all()
        failures = [{"provider": name, "reason": each.failed} for name, each in listings.items() if each.failed]
        rights = self._context.settings.rights_of(admission.person.id)
        names = [name for name in dict.fromkeys(self._names(listings)) if self._models.admits(name, rights)]
        models = [self._model(*name.split(":", 1)) for name in names]
        told = {"default": self._models.configured(), "models": models, "failures": failures}
        transcription = self._transcriber.model()
        return answer(200, told if transcription is None else {**told, "transcription": transcription})

    async def prompts(self, _: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the person's templates and everybody's."""
        prompts: list[Prompt] = []
        if self._shows_files:
            prompts = await asyncio.to_thread(
                read_prompts, self._context.workspace, admission.person.id, self._notes(admission)
            )
        return answer(200, {"prompts": prompts})

    async def files(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return files for a message to name."""
        query = request.query.get("q", "")[:LONGEST_QUERY]
        files: list[WorkspaceFile] = []
        if self._shows_files:
            files = await asyncio.to_thread(
                find_files, self._context.workspace, admission.person.id, query, self._notes(admission)
            )
        return answer(200, {"files": files})

    def _notes(self, admission: Admission) -> NotesAccess:
        return self._context.settings.rights_of(admission.person.id).notes

    @property
    def _shows_files(self) -> bool:
        """True if the model, which is to read what a message names, may read files."""
        return self._context.config.agent.workspace_access != "none"

    def _names(self, listings: Mapping[str, Listing]) -> Iterator[str]:
        """Yield the default model of each provider, the configured ones, and those that are listed."""
        yield from self._models.available()
        yield from self._models.used()
        for provider, listing in listings.items():
            yield from (f"{provider}:{model}" for model in sorted(listing.chats))

    def _model(self, provider: str, model: str) -> Model:
        limits, config = self._models.limits(provider, model), self._context.config
        return Model(
            id=f"{provider}:{model}",
            provider=provider,
            vision=limits.vision is not None,
            window=limits.window,
            output=limits.output,
            price=price_of(self._models.provider(provider), model, config.prices, config.usage.currency),
            efforts=limits.efforts,
            temperature=limits.temperature,
        )
