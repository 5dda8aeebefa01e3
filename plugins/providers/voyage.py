"""The embedding provider `voyage` (docs.voyageai.com: API reference, text embeddings)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from plugins.api.context import ProviderContext
from plugins.api.services import Purpose
from plugins.providers.hosted.accounts import VARIABLES, Account, account_of
from plugins.providers.openai.embeddings import OpenAIEmbeddings


class VoyageEmbeddings(OpenAIEmbeddings):
    """Answers as OpenAI does, and is asked otherwise."""

    name: ClassVar[str] = "voyage"
    USUAL: ClassVar[str] = "voyage-4-large"
    MOST: ClassVar[int] = 1000

    def account(self, context: ProviderContext) -> Account:
        """The vendor's own."""
        return account_of(context, self.name, usual="https://api.voyageai.com/v1", variable=VARIABLES["voyage"])

    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        """With `truncation` it would embed the beginning of a long text and say nothing."""
        kind = "query" if purpose == "query" else "document"
        shorter = {} if dimensions is None else {"output_dimension": dimensions}
        return {"model": model, "input": texts, "input_type": kind, "truncation": False, **shorter}
