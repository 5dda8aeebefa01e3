"""The common base class of chat and embedding providers of hosted models."""

from __future__ import annotations

from abc import ABC
from types import TracebackType
from typing import ClassVar, Protocol, Self

from plugins.support.errors import ProviderError
from plugins.support.http_errors import StatusRefused


class VendorErrors(Protocol):
    """The module that maps a vendor's errors to ours."""

    def error_for(self, status: int, body: bytes, *, model: str | None = None, after: float | None = None) -> ProviderError:
        """Return the error for an error status.

        Args:
            status: The HTTP status.
            body: The body of the response.
            model: The requested model; None for a request without one, such as for the list of models.
            after: The pause in seconds that the server asks for.
        """
        ...

    def can_retry(self, refused: StatusRefused) -> bool:
        """Return True if the same request may succeed in a moment."""
        ...


class HostedProvider(ABC):
    """A provider whose models run on a server. Its connections belong to the transport, so there is nothing to close."""

    name: ClassVar[str]
    errors: ClassVar[VendorErrors]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
