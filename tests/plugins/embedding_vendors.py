"""The embedding providers, each with its fake, for tests that run with all of them.

A new provider is another entry of `VENDORS`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from plugins.api.context import ProviderAccount
from plugins.api.memory_settings import EmbeddingKeys
from plugins.api.plugin_services import Purpose
from plugins.http.client import Limits, Timeouts
from plugins.providers.gemini.embeddings import GeminiEmbeddings
from plugins.providers.hosted.hosted_embeddings import HostedEmbeddings
from plugins.providers.ollama.embeddings import OllamaEmbeddings
from plugins.providers.openai.embeddings import MistralEmbeddings, OpenAIEmbeddings, VoyageEmbeddings
from plugins.support.secrets import Secret
from plugins.testing.contexts import ManualClock
from plugins.testing.servers import openai_server
from plugins.testing.servers.embedding_server import EmbeddingServer
from tests.plugins.provider_harness import provider_context
from tests.servers import gemini_server
from tests.servers.embedding_vendors import (
    GeminiEmbeddingServer,
    MistralEmbeddingServer,
    OllamaEmbeddingServer,
    OpenAIEmbeddingServer,
    VoyageEmbeddingServer,
)


class Embedded:
    """A provider with a transport that does not wait; `slept` are the pauses in seconds that it would have made."""

    def __init__(self, provider: HostedEmbeddings, slept: list[float], clock: ManualClock) -> None:
        self.provider = provider
        self.slept = slept
        self.clock = clock

    async def embed(self, *texts: str, purpose: Purpose = "note") -> Sequence[Sequence[float]]:
        """Return the vectors. Raises what the provider raises; its pause after an error is over at the next call."""
        self.clock.move(10_000)
        return await self.provider.embed(texts or ("one", "two", "three"), purpose)


class Vendor(NamedTuple):
    """A provider and its fake; `refusal` is an error body for a status, `told` the prefix or the field that distinguishes a
    note from a query."""

    kind: type[HostedEmbeddings]
    server: type[EmbeddingServer]
    refusal: Callable[[int, str], bytes]
    told: tuple[Any, Any]

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.kind.name

    @asynccontextmanager
    async def asking(
        self,
        url: str,
        *,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        environment: dict[str, str] | None = None,
        account: ProviderAccount | None = None,
        **settings: Any,
    ) -> AsyncIterator[Embedded]:
        """Yield the provider with the server at this address and its key, unless the settings contain others."""
        keys = EmbeddingKeys(**{"provider": self.name, "base_url": url, "api_key": Secret(self.server.KEY), **settings})
        common: dict[str, Any] = {"timeouts": timeouts, "limits": limits, "environment": environment, "account": account}
        async with provider_context(keys, **common) as (context, slept), self.kind(context) as provider:
            assert isinstance(context.clock, ManualClock)
            yield Embedded(provider, slept, context.clock)

    @asynccontextmanager
    async def serving(self, *answers: Any, **options: Any) -> AsyncIterator[tuple[Embedded, EmbeddingServer]]:
        """Yield the provider and its fake, which gives these answers."""
        async with self.server(*answers).serving() as server, self.asking(server.url, **options) as client:
            yield client, server


OPENAI = Vendor(OpenAIEmbeddings, OpenAIEmbeddingServer, lambda _, words: openai_server.refusal(words, None), (None, None))
GEMINI = Vendor(GeminiEmbeddings, GeminiEmbeddingServer, gemini_server.refusal, ("RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"))
VOYAGE = Vendor(
    VoyageEmbeddings, VoyageEmbeddingServer, lambda _, words: json.dumps({"detail": words}).encode(), ("document", "query")
)
MISTRAL = Vendor(
    MistralEmbeddings,
    MistralEmbeddingServer,
    lambda status, words: json.dumps({"object": "error", "message": words, "code": str(status)}).encode(),
    (None, None),
)
OLLAMA = Vendor(
    OllamaEmbeddings,
    OllamaEmbeddingServer,
    lambda _, words: json.dumps({"error": words}).encode(),
    ("search_document:", "search_query:"),
)

VENDORS = (OPENAI, GEMINI, VOYAGE, MISTRAL, OLLAMA)
