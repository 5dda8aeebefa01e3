"""The embedding providers `openai`, `voyage` and `mistral`, whose responses have the same format.

Sources: the API references of OpenAI (create embeddings), of Voyage (docs.voyageai.com, text embeddings) and of Mistral
(docs.mistral.ai, embeddings).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.plugin_services import Purpose
from plugins.providers.hosted.accounts import VARIABLES, Account, find_account
from plugins.providers.hosted.hosted_embeddings import HostedEmbeddings
from plugins.support.vector_checks import Vector, in_order

OFFICIAL = "https://api.openai.com/v1"

MOST_TOKENS = 10**9
"""The most tokens that a response is believed to have counted."""


class Entry(msgspec.Struct, frozen=True):
    """One vector and the index of its text."""

    embedding: Vector
    index: int | None = None


class Entries(msgspec.Struct, frozen=True):
    """A response. Compatible servers may count no tokens."""

    data: list[Entry]
    usage: Any = None


class OpenAIEmbeddings(HostedEmbeddings):
    """The `EmbeddingProvider` for OpenAI and compatible servers."""

    name: ClassVar[str] = "openai"
    DEFAULT_MODEL: ClassVar[str] = "text-embedding-3-small"
    MAX_BATCH: ClassVar[int] = 2048
    Response: ClassVar[type[msgspec.Struct]] = Entries

    def account(self, context: ProviderContext) -> Account:
        """Return the account that OpenAI's own clients would use."""
        default = context.environment.get("OPENAI_BASE_URL") or OFFICIAL
        return find_account(context, self.name, default=default, variable=VARIABLES["openai"], official=OFFICIAL)

    def url(self, base: str, model: str) -> str:
        return f"{base}/embeddings"

    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        """Return the body. Other servers do not know `dimensions`, so they are sent only if configured."""
        options = {} if dimensions is None else {"dimensions": dimensions}
        return {"model": model, "input": texts, **options}

    def tokens(self, response: Entries) -> int | None:
        counted = response.usage.get("total_tokens") if isinstance(response.usage, dict) else None
        return counted if isinstance(counted, int) and 0 <= counted <= MOST_TOKENS else None

    def vectors(self, response: Entries) -> list[Vector]:
        """Return the vectors by their index, which may be out of order."""
        return in_order([entry.embedding for entry in response.data], [entry.index for entry in response.data])


class VoyageEmbeddings(OpenAIEmbeddings):
    """The `EmbeddingProvider` for Voyage AI, whose responses have OpenAI's format."""

    name: ClassVar[str] = "voyage"
    DEFAULT_MODEL: ClassVar[str] = "voyage-4-large"
    MAX_BATCH: ClassVar[int] = 1000

    def account(self, context: ProviderContext) -> Account:
        return find_account(context, self.name, default="https://api.voyageai.com/v1", variable=VARIABLES["voyage"])

    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        """Return the body. With `truncation` a long text would be cut without an error."""
        kind = "query" if purpose == "query" else "document"
        options = {} if dimensions is None else {"output_dimension": dimensions}
        return {"model": model, "input": texts, "input_type": kind, "truncation": False, **options}


class MistralEmbeddings(OpenAIEmbeddings):
    """The `EmbeddingProvider` for Mistral. Only its model for code supports shorter vectors."""

    name: ClassVar[str] = "mistral"
    DEFAULT_MODEL: ClassVar[str] = "mistral-embed"
    MAX_BATCH: ClassVar[int] = 256

    def account(self, context: ProviderContext) -> Account:
        return find_account(context, self.name, default="https://api.mistral.ai/v1", variable=VARIABLES["mistral"])

    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        options = {} if dimensions is None else {"output_dimension": dimensions}
        return {"model": model, "input": texts, **options}
