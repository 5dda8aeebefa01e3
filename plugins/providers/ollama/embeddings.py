"""The embedding provider `ollama`: a server with open-weight models, on this machine or another (docs.ollama.com/api/embed).

It is never chosen automatically: a server that happens to run was not set up for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.plugin_services import Purpose
from plugins.providers.hosted.accounts import Account, find_account
from plugins.providers.hosted.hosted_embeddings import HostedEmbeddings
from plugins.providers.hosted.hosted_provider import VendorErrors
from plugins.providers.ollama import errors as ollama_errors
from plugins.providers.ollama.address import CLOUD, server_address
from plugins.support.errors import BadRequest, ProviderError
from plugins.support.http_errors import StatusRefused, error_message
from plugins.support.vector_checks import Vector

_INVALID_NUMBER = b"unsupported value"
"""The words of the server if a vector contains a value that is not a number."""


class Embeddings(msgspec.Struct, frozen=True):
    """A response; the vectors are in the order of the texts."""

    embeddings: list[Vector]


class OllamaEmbeddings(HostedEmbeddings):
    """The `EmbeddingProvider` for Ollama."""

    name: ClassVar[str] = "ollama"
    errors: ClassVar[VendorErrors] = ollama_errors
    DEFAULT_MODEL: ClassVar[str] = "nomic-embed-text"
    MAX_BATCH: ClassVar[int] = 64
    QUERY_TIMEOUT: ClassVar[float] = 20.0  # it may have to load the model
    Response: ClassVar[type[msgspec.Struct]] = Embeddings

    def account(self, context: ProviderContext) -> Account:
        """Return the server of OLLAMA_HOST, or this machine's. Only the vendor's cloud requires a key."""
        return find_account(
            context,
            self.name,
            default=context.environment.get("OLLAMA_HOST", ""),
            variable="OLLAMA_API_KEY",
            official=f"https://{CLOUD}",
            normalize=server_address,
        )

    def usable(self) -> bool:
        """Return True only if it is selected in the configuration."""
        return self.selected and super().usable()

    def url(self, base: str, model: str) -> str:
        return f"{base}/api/embed"

    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        """Return the body. With `truncate` a long text would be cut without an error."""
        options = {} if dimensions is None else {"dimensions": dimensions}
        return {"model": model, "input": texts, "truncate": False, **options}

    def vectors(self, response: Embeddings) -> list[Vector]:
        return response.embeddings

    def is_too_large(self, refused: StatusRefused) -> bool:
        return super().is_too_large(refused) or ollama_errors.is_overflow(refused.body)

    def error_for(self, refused: StatusRefused) -> ProviderError:
        if _INVALID_NUMBER in refused.body and not self.is_too_large(refused):
            return BadRequest(f"The model produces no valid vector for this text: {error_message(refused.body)}")
        return super().error_for(refused)

    def can_retry(self, refused: StatusRefused) -> bool:
        """Return False if memory is short, the text too long, or the model produces no valid vector."""
        return _INVALID_NUMBER not in refused.body and super().can_retry(refused)
