"""The embedding provider `voyage` (docs.voyageai.com: API reference, text embeddings)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from plugins.api.context import ProviderContext
from plugins.api.plugin_services import Purpose
from plugins.providers.hosted.accounts import VARIABLES, Account, find_account
from plugins.providers.openai.embeddings import OpenAIEmbeddings


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
