"""The embedding provider `gemini`: Google's Gemini API (ai.google.dev/api/embeddings, batchEmbedContents)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.services import Purpose
from plugins.providers.gemini import errors as gemini_errors
from plugins.providers.hosted import embedding_errors
from plugins.providers.hosted.accounts import VARIABLES, Account, account_of
from plugins.providers.hosted.hosted_embeddings import HostedEmbeddings
from plugins.support.embedding.vector_checks import Vector
from plugins.support.errors import ProviderError
from plugins.support.http_errors import StatusRefused

OFFICIAL = "https://generativelanguage.googleapis.com"

SURE = 0.6
"""The share of its tokens that a text may have by our estimate: it cuts a longer one off and says nothing."""


class Content(msgspec.Struct, frozen=True):
    """One vector."""

    values: Vector


class Contents(msgspec.Struct, frozen=True):
    """An answer; the vectors stand in the order of the texts."""

    embeddings: list[Content]


class GeminiEmbeddings(HostedEmbeddings):
    """See the module. Vectors shorter than the model's own come with other lengths than 1, which is mended where all are
    checked."""

    name: ClassVar[str] = "gemini"
    USUAL: ClassVar[str] = "gemini-embedding-001"
    MOST: ClassVar[int] = 100
    Answer: ClassVar[type[msgspec.Struct]] = Contents

    def __init__(self, context: ProviderContext) -> None:
        super().__init__(context)
        # Its second generation is told the purpose in words, which the table has, and knows no such field.
        self._tells_purpose = not self._known.query

    def known_tokens(self) -> int:
        """Fewer than it reads, to be sure."""
        return int(self._known.tokens * SURE)

    def account(self, context: ProviderContext) -> Account:
        """Google's own."""
        return account_of(context, self.name, usual=OFFICIAL, variable=VARIABLES["gemini"])

    def url(self, base: str, model: str) -> str:
        """The method of a model that takes several texts."""
        return f"{base}/v1beta/models/{quote(model, safe='')}:batchEmbedContents"

    def header(self, key: str) -> dict[str, str]:
        """Never in the URL, which others log."""
        return {"x-goog-api-key": key}

    def asked_dimensions(self) -> int | None:
        """Always as many as are expected: its own default is four times as long."""
        return self._settings.dimensions or self._known.dimensions or None

    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        """A request for each text; one with several parts would be embedded as a whole."""
        more: dict[str, Any] = {} if dimensions is None else {"outputDimensionality": dimensions}
        if self._tells_purpose:
            more["taskType"] = "RETRIEVAL_QUERY" if purpose == "query" else "RETRIEVAL_DOCUMENT"
        requests = [{"model": f"models/{model}", "content": {"parts": [{"text": text}]}, **more} for text in texts]
        return {"requests": requests}

    def vectors(self, answer: Contents) -> list[Vector]:
        """In the order of the requests."""
        return [content.values for content in answer.embeddings]

    def meaning(self, refusal: StatusRefused) -> ProviderError:
        """Google's statuses say little, the details much."""
        if embedding_errors.is_too_much(refusal):
            return embedding_errors.too_much(refusal)
        return gemini_errors.meaning(refusal.status, refusal.body, model=self._model, after=refusal.retry_after)

    def worth_another_attempt(self, refusal: StatusRefused) -> bool:
        """Not where the day's quota is used up."""
        return not embedding_errors.is_too_much(refusal) and gemini_errors.worth_another_attempt(refusal)
