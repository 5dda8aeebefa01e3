"""The embedding provider `gemini`: Google's Gemini API (ai.google.dev/api/embeddings, batchEmbedContents)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.plugin_services import Purpose
from plugins.providers.gemini import errors as gemini_errors
from plugins.providers.hosted.accounts import VARIABLES, Account, find_account
from plugins.providers.hosted.hosted_embeddings import HostedEmbeddings
from plugins.providers.hosted.hosted_provider import VendorErrors
from plugins.support.vector_checks import Vector

OFFICIAL = "https://generativelanguage.googleapis.com"

TOKEN_MARGIN = 0.6
"""The share of the known limit that a text may reach by our estimate: longer texts are truncated without an error."""


class Content(msgspec.Struct, frozen=True):
    """One vector."""

    values: Vector


class Contents(msgspec.Struct, frozen=True):
    """A response; the vectors are in the order of the texts."""

    embeddings: list[Content]


class GeminiEmbeddings(HostedEmbeddings):
    """The `EmbeddingProvider` for Google's Gemini API. Shortened vectors are not of length 1; the caller normalizes them."""

    name: ClassVar[str] = "gemini"
    errors: ClassVar[VendorErrors] = gemini_errors
    DEFAULT_MODEL: ClassVar[str] = "gemini-embedding-001"
    MAX_BATCH: ClassVar[int] = 100
    Response: ClassVar[type[msgspec.Struct]] = Contents

    def __init__(self, context: ProviderContext) -> None:
        super().__init__(context)
        # The second generation takes the purpose as a prefix, which is in the table, and not as a field.
        self._has_task_type = not self._known.query

    def known_tokens(self) -> int:
        return int(self._known.tokens * TOKEN_MARGIN)

    def account(self, context: ProviderContext) -> Account:
        return find_account(context, self.name, default=OFFICIAL, variable=VARIABLES["gemini"])

    def url(self, base: str, model: str) -> str:
        return f"{base}/v1beta/models/{quote(model, safe='')}:batchEmbedContents"

    def header(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}  # not in the URL, which others log

    def requested_dimensions(self) -> int | None:
        """Return the expected number: the model's default is four times as long."""
        return self._settings.dimensions or self._known.dimensions or None

    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        """Return one request per text; a request with several parts would be embedded as a whole."""
        options: dict[str, Any] = {} if dimensions is None else {"outputDimensionality": dimensions}
        if self._has_task_type:
            options["taskType"] = "RETRIEVAL_QUERY" if purpose == "query" else "RETRIEVAL_DOCUMENT"
        requests = [{"model": f"models/{model}", "content": {"parts": [{"text": text}]}, **options} for text in texts]
        return {"requests": requests}

    def vectors(self, response: Contents) -> list[Vector]:
        return [content.values for content in response.embeddings]
