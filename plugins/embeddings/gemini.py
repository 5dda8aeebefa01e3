"""The embedding provider `gemini`: Google's Gemini API (ai.google.dev/api/embeddings, batchEmbedContents)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from plugins.chat import gemini_errors
from plugins.contracts import House
from plugins.embeddings import refused
from plugins.embeddings.accounts import VARIABLES, Account, account_of
from plugins.embeddings.hosted import HostedEmbeddings
from plugins.embeddings.vectors import Vector
from plugins.errors import ProviderError
from plugins.refusals import StatusRefused
from plugins.services import Purpose

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

    def __init__(self, house: House) -> None:
        super().__init__(house)
        # Its second generation is told the purpose in words, which the table has, and knows no such field.
        self._tells_purpose = not self._known.query

    def known_tokens(self) -> int:
        """Fewer than it reads, to be sure."""
        return int(self._known.tokens * SURE)

    def account(self, house: House) -> Account:
        """Google's own."""
        return account_of(house, self.name, usual=OFFICIAL, variable=VARIABLES["gemini"])

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
        if refused.is_too_much(refusal):
            return refused.too_much(refusal)
        return gemini_errors.meaning(refusal.status, refusal.body, model=self._model, after=refusal.retry_after)

    def worth_another_attempt(self, refusal: StatusRefused) -> bool:
        """Not where the day's quota is used up."""
        return not refused.is_too_much(refusal) and gemini_errors.worth_another_attempt(refusal)
