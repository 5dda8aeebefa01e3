"""The embedding provider `mistral` (docs.mistral.ai: API reference, embeddings)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from plugins.api.context import ProviderContext
from plugins.api.services import Purpose
from plugins.providers.hosted.accounts import VARIABLES, Account, account_of
from plugins.providers.openai.embeddings import OpenAIEmbeddings


class MistralEmbeddings(OpenAIEmbeddings):
    """Answers as OpenAI does; only its model for code makes shorter vectors."""

    name: ClassVar[str] = "mistral"
    USUAL: ClassVar[str] = "mistral-embed"
    MOST: ClassVar[int] = 256

    def account(self, context: ProviderContext) -> Account:
        """The vendor's own."""
        return account_of(context, self.name, usual="https://api.mistral.ai/v1", variable=VARIABLES["mistral"])

    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        """It knows no purposes."""
        shorter = {} if dimensions is None else {"output_dimension": dimensions}
        return {"model": model, "input": texts, **shorter}
