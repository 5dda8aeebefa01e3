"""The embedding provider `ollama`: a server with open models, on this machine or another (docs.ollama.com/api/embed).

It is never chosen by itself: what happens to run somewhere is no account that somebody set up for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.services import Purpose
from plugins.providers.hosted import embedding_errors
from plugins.providers.hosted.accounts import Account, account_of
from plugins.providers.hosted.hosted_embeddings import HostedEmbeddings
from plugins.providers.ollama import errors as ollama_errors
from plugins.providers.ollama.address import CLOUD, server_address
from plugins.support.embedding.vector_checks import Vector
from plugins.support.errors import BadRequest, ProviderError
from plugins.support.http_errors import StatusRefused, error_message

_NO_NUMBER = b"unsupported value"
"""What it says where a vector holds what is no number."""


class Embeddings(msgspec.Struct, frozen=True):
    """An answer; the vectors stand in the order of the texts."""

    embeddings: list[Vector]


class OllamaEmbeddings(HostedEmbeddings):
    """See the module."""

    name: ClassVar[str] = "ollama"
    USUAL: ClassVar[str] = "nomic-embed-text"
    MOST: ClassVar[int] = 64
    PATIENT: ClassVar[float] = 20.0  # it may have to load the model
    Answer: ClassVar[type[msgspec.Struct]] = Embeddings

    def account(self, context: ProviderContext) -> Account:
        """The server that OLLAMA_HOST names, else this machine's. Only the vendor's cloud asks for a key."""
        return account_of(
            context,
            self.name,
            usual=context.environment.get("OLLAMA_HOST", ""),
            variable="OLLAMA_API_KEY",
            official=f"https://{CLOUD}",
            spelled=server_address,
        )

    def usable(self) -> bool:
        """Only where it is named."""
        return self.named and super().usable()

    def url(self, base: str, model: str) -> str:
        """One for all models."""
        return f"{base}/api/embed"

    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        """With `truncate` it would embed the beginning of a long text and say nothing."""
        shorter = {} if dimensions is None else {"dimensions": dimensions}
        return {"model": model, "input": texts, "truncate": False, **shorter}

    def vectors(self, answer: Embeddings) -> list[Vector]:
        """In the order of the texts."""
        return answer.embeddings

    def meaning(self, refusal: StatusRefused) -> ProviderError:
        """Its words, and those of the engine below."""
        if _is_too_much(refusal):
            return embedding_errors.too_much(refusal)
        if _NO_NUMBER in refusal.body:
            return BadRequest(f"The model makes no vector of this text: {error_message(refusal.body)}")
        return ollama_errors.meaning(refusal.status, refusal.body, model=self._model, after=refusal.retry_after)

    def worth_another_attempt(self, refusal: StatusRefused) -> bool:
        """Not where it has too little memory, the words are too many, or the model makes nothing of them."""
        hopeless = _is_too_much(refusal) or _NO_NUMBER in refusal.body
        return not hopeless and ollama_errors.worth_another_attempt(refusal)


def _is_too_much(refusal: StatusRefused) -> bool:
    return embedding_errors.is_too_much(refusal) or ollama_errors.is_overflow(refusal.body)
