"""Embedding providers: services and local models that turn texts into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import ClassVar, Protocol, Self, runtime_checkable

from plugins.api.context import ProviderContext
from plugins.api.plugin_services import Purpose


@runtime_checkable
class CountsTokens(Protocol):
    """Optional: an embedding provider whose service counts the tokens of the texts, so that they are charged exactly."""

    def take_counted(self) -> int | None:
        """Return the tokens that were counted since the last call; None if a response did not count them."""
        ...


@runtime_checkable
class EmbeddingProvider(Protocol):
    """A source of embedding vectors. One instance serves all requests concurrently."""

    name: ClassVar[str]
    """The provider's name in `memory.embedding.provider`."""

    def __init__(self, context: ProviderContext) -> None:
        """Create the provider. `context.settings` is an `EmbeddingKeys` and never changes; new settings mean a new instance.

        It holds all of `[memory.embedding]` if this provider is named there, and otherwise no account data.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def model(self) -> str | None:
        """Return the model in use, or None if the provider is not available (no API key, not installed). Must be fast."""
        ...

    def explain_default(self) -> str:
        """Return the reason for the result of `model`, as the end of a sentence."""
        ...

    def dimensions(self) -> int:
        """Return the length of the vectors. All have the same length. 0 until the first reply if only the server knows."""
        ...

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """Embed texts. All or nothing: no vector may be missing, guessed, or computed from a truncated text.

        After a `ContextOverflow` the memory sends fewer texts at once, then splits long texts and combines their vectors.
        It also applies `batch_size` and `max_input_length`, so a provider need not.

        Returns:
            One vector for each text, in the same order. All numbers are finite, and no vector is all zeros.

        Raises:
            ProviderError: The texts could not be embedded.
        """
        ...
