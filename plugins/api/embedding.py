"""What turns texts into vectors: the contract of embedding providers."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import ClassVar, Protocol, Self, runtime_checkable

from plugins.api.context import PluginContext
from plugins.api.services import Purpose


@runtime_checkable
class EmbeddingProvider(Protocol):
    """A source of vectors. One instance serves everybody."""

    name: ClassVar[str]
    """The word that `memory.embedding.provider` chooses it by."""

    def __init__(self, context: PluginContext) -> None:
        """`context.settings` is what `[memory.embedding]` says to it, an `EmbeddingKeys`: all of it if it is named there,
        else
        nothing of anybody's account. It does not change: for other settings another one is opened."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def model(self) -> str | None:
        """The model that it uses, or None where it cannot be used (no key, not installed). Costs nothing."""
        ...

    def explain_default(self) -> str:
        """Why that is so, as the end of a sentence."""
        ...

    def dimensions(self) -> int:
        """How long its vectors are; 0 until the first one where only the server knows. A vector never has another length."""
        ...

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """As many vectors as there are texts, in their order, of finite numbers and not all zero. Whatever a server does,
        none is missing, guessed, or made of a part of its text. Raises a ProviderError. After
        a ContextOverflow the memory asks for fewer texts, and for one that is too long in pieces, whose vectors it puts
        together. It heeds `batch_size` and `max_input_length` too: a provider need not."""
        ...
