"""The embedding provider `openai`: OpenAI, and any server that speaks like it (API reference, create embeddings)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.services import Purpose
from plugins.providers.hosted.accounts import VARIABLES, Account, account_of
from plugins.providers.hosted.hosted_embeddings import HostedEmbeddings
from plugins.support.embedding.vector_checks import Vector, in_order

OFFICIAL = "https://api.openai.com/v1"


class Entry(msgspec.Struct, frozen=True):
    """One vector, and which text's it is."""

    embedding: Vector
    index: int | None = None


class Entries(msgspec.Struct, frozen=True):
    """An answer."""

    data: list[Entry]


class OpenAIEmbeddings(HostedEmbeddings):
    """See the module."""

    name: ClassVar[str] = "openai"
    USUAL: ClassVar[str] = "text-embedding-3-small"
    MOST: ClassVar[int] = 2048
    Answer: ClassVar[type[msgspec.Struct]] = Entries

    def account(self, context: ProviderContext) -> Account:
        """As its official clients find it."""
        usual = context.environment.get("OPENAI_BASE_URL") or OFFICIAL
        return account_of(context, self.name, usual=usual, variable=VARIABLES["openai"], official=OFFICIAL)

    def url(self, base: str, model: str) -> str:
        """One for all models."""
        return f"{base}/embeddings"

    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        """Purposes are unknown to it. Other servers know no `dimensions`: they are sent only if somebody wants them."""
        shorter = {} if dimensions is None else {"dimensions": dimensions}
        return {"model": model, "input": texts, **shorter}

    def vectors(self, answer: Entries) -> list[Vector]:
        """By their index, which may be out of order."""
        return in_order([entry.embedding for entry in answer.data], [entry.index for entry in answer.data])
