"""The embedding provider `mistral` (docs.mistral.ai: API reference, embeddings)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from plugins.api.context import ProviderContext
from plugins.api.plugin_services import Purpose
from plugins.providers.hosted.accounts import VARIABLES, Account, find_account
from plugins.providers.openai.embeddings import OpenAIEmbeddings


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
