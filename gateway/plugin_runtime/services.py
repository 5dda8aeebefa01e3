"""Services of the gateway for plugins: model requests, embeddings and logs, with time limits and accounting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Self

from gateway.models.call import ModelCaller, TextRequest, text_context
from gateway.models.registry import ChosenModel
from gateway.plugin_runtime.plugin_log import DurablePluginLog
from gateway.support.errors import GatewayError
from plugins.api.embedding import EmbeddingProvider
from plugins.api.plugin_services import ModelAnswer, PluginServices, Purpose, WorkspaceFacts, WorkspaceMemory
from plugins.support.errors import BadRequest, Unreachable
from sessions.events.messages import Usage
from sessions.store.protocols import Store

ANSWER_SECONDS = 120.0
"""Seconds that one answer of a model may take."""

VECTORS_SECONDS = 60.0
"""Seconds that embedding may take."""

TEXTS = 256
"""The most texts that are embedded at once."""


class PluginServiceFactory:
    """Creates the services of each plugin.

    `choose` returns the model that is asked, `embedding` the provider of embeddings, which is not closed while
    `vectors_in_use` is held. `store_of` returns the store of a plugin's log. Use as an async context manager, which closes
    the logs.
    """

    def __init__(
        self,
        *,
        choose: Callable[[], ChosenModel],
        caller: ModelCaller,
        embedding: Callable[[], EmbeddingProvider | None],
        vectors_in_use: Callable[[], AbstractContextManager[None]],
        store_of: Callable[[str], Store],
        now: Callable[[], datetime],
    ) -> None:
        self._choose = choose
        self._caller = caller
        self._embedding = embedding
        self._vectors_in_use = vectors_in_use
        self._store_of = store_of
        self._now = now
        self._logs: dict[str, DurablePluginLog] = {}
        self._spent: dict[str, dict[str, Usage]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for log in self._logs.values():
            await log.close()

    def of(self, plugin: str, memory: WorkspaceMemory, facts: WorkspaceFacts) -> PluginServices:
        """Return the services of one plugin."""
        ask = _Ask(self, plugin)
        return PluginServices(memory=memory, facts=facts, ask=ask, embed=self.embed, log=self._log(plugin))

    def _log(self, plugin: str) -> DurablePluginLog:
        if plugin not in self._logs:
            self._logs[plugin] = DurablePluginLog(self._store_of(plugin), self._now)
        return self._logs[plugin]

    async def answer(self, plugin: str, system: str, text: str, limit: int) -> ModelAnswer:
        """Return one answer, accounted to the plugin. Raises ProviderError."""
        purpose = f"plugin:{plugin}"
        request = TextRequest(
            context=text_context(system, text),
            purpose=purpose,
            session=f"plugin-{plugin}",
            limit=limit,
            seconds=ANSWER_SECONDS,
        )
        try:
            answer = await self._caller.answer(self._choose(), request)
        except GatewayError as error:  # plugins see only provider errors
            raise Unreachable(str(error)) from error
        if answer.usage is not None:
            spent = self._spent.setdefault(purpose, {})
            spent[answer.model] = spent.get(answer.model, Usage()) + answer.usage
        return answer

    def spent(self) -> Mapping[str, Mapping[str, Usage]]:
        """Return the tokens that plugins have used since the start, by `plugin:NAME` and model."""
        return self._spent

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """Return the embeddings of texts by the memory's provider, see `EmbeddingProvider.embed`."""
        if len(texts) > TEXTS:
            raise BadRequest(f"At most {TEXTS} texts can be embedded at once, not {len(texts)}.")
        provider = self._embedding()
        if provider is None:
            raise Unreachable("No embedding provider is available; set memory.embedding.provider.")
        with self._vectors_in_use():
            try:
                async with asyncio.timeout(VECTORS_SECONDS):
                    return await provider.embed(texts, purpose)
            except TimeoutError as error:
                raise Unreachable(f"The embedding took longer than {VECTORS_SECONDS:.0f} seconds.") from error


class _Ask:
    """The `Ask` of one plugin."""

    def __init__(self, services: PluginServiceFactory, plugin: str) -> None:
        self._services = services
        self._plugin = plugin

    async def __call__(self, *, system: str, text: str, limit: int) -> ModelAnswer:
        return await self._services.answer(self._plugin, system, text, limit)
