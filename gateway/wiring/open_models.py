"""Opens the chat and embedding providers, and what chooses and asks models."""

from __future__ import annotations

import asyncio
import contextlib
import os

import msgspec

from gateway.config.keys import Config
from gateway.models.call import ModelCaller
from gateway.models.model_list_cache import load_model_lists
from gateway.models.providers import OpenProviders, open_chats, open_embeddings, provider_contexts
from gateway.models.registry import ModelRegistry
from gateway.models.spending.spending import Spending
from gateway.models.transcription import Transcriber
from gateway.status.instruments import GatewayContext
from gateway.support.errors import GatewayError
from plugins.api.chat import ChatProvider
from plugins.api.embedding import EmbeddingProvider
from plugins.host.hooks import Hooks
from plugins.http.client import Transport


class OpenModels(msgspec.Struct, frozen=True, kw_only=True):
    """The open chat and embedding providers, and the registry and the caller of models that use them."""

    providers: OpenProviders[ChatProvider]
    embeddings: OpenProviders[EmbeddingProvider]
    registry: ModelRegistry
    caller: ModelCaller
    transcriber: Transcriber
    spending: Spending

    async def open_providers(self, config: Config) -> list[str]:
        """Open and close providers as a configuration says; return the names of the chat providers that were reopened."""
        reopened = await self.providers.reconfigure(config)
        await self.embeddings.reconfigure(config)
        return reopened

    def problems(self) -> list[str]:
        """Return the problems of the providers, as sentences."""
        return [*self.providers.problems(), *self.embeddings.problems()]

    def window(self) -> int | None:
        """Return the window of the configured model, None if it is unknown or there is no model."""
        try:
            return self.registry.choose().window
        except GatewayError:
            return None


async def open_models(
    stack: contextlib.AsyncExitStack, context: GatewayContext, hooks: Hooks, transport: Transport, spending: Spending
) -> OpenModels:
    """Open the providers of the configuration on `stack`."""
    config, home, clock = context.config, context.home, context.clock
    reported = load_model_lists(home.models)
    of_providers = provider_contexts(home, config, transport, os.environ, clock=clock, reported=reported)
    providers = await stack.enter_async_context(open_chats(hooks.chat_providers(), of_providers))
    embeddings = await stack.enter_async_context(open_embeddings(hooks.embedding_providers(), of_providers))
    await asyncio.gather(providers.reconfigure(config), embeddings.reconfigure(config))
    return OpenModels(
        providers=providers,
        embeddings=embeddings,
        registry=ModelRegistry(providers, config.agent, now=clock.monotonic, spending=spending),
        caller=ModelCaller(context.counters, hold=providers.in_use),
        transcriber=Transcriber(
            providers,
            hold=providers.in_use,
            configured=lambda: context.settings.current.transcription.model,
            counters=context.counters,
            spending=spending,
        ),
        spending=spending,
    )
