"""The base class of embedding providers whose models run on a server: everything but a vendor's request and response
formats.

A request never exceeds the known limits of the server, and no text is truncated (`batch_limits`). A response counts as a
whole or not at all.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.memory_settings import EmbeddingKeys
from plugins.api.plugin_services import Purpose
from plugins.http.client import Timeouts
from plugins.providers.hosted import embedding_errors
from plugins.providers.hosted.accounts import ADDRESS, Account
from plugins.providers.hosted.batch_limits import BatchLimits
from plugins.providers.hosted.hosted_provider import HostedProvider, VendorErrors
from plugins.providers.hosted.keys import bearer
from plugins.providers.hosted.known_models import bare_address, known_model
from plugins.support.errors import (
    BadAnswer,
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.support.http_errors import StatusRefused, error_message, error_object
from plugins.support.vector_checks import Vector, checked, same_length

MAX_TEXTS = 64
"""Maximum texts of a request, even if a vendor accepts more: decoding a response of 64 vectors takes 20 ms."""

_INVALID_NUMBER = re.compile(rb"\b(NaN|Infinity)\b")
"""Values that are not valid JSON, and that some servers write nevertheless."""

DEFAULT_PAUSE = 30.0
"""The pause in seconds if the server names none."""

MAX_PAUSE = 3600.0
"""The longest pause in seconds, so that a change at the vendor needs no restart."""


class Cooldown:
    """A pause after a failure that would repeat. `now` is a monotonic clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until = 0.0
        self._error: ProviderError | None = None

    def record(self, error: ProviderError) -> None:
        """Start a pause if the error is one of a server that is unavailable."""
        if isinstance(error, RateLimited | Unreachable):
            self._error = error
            self._until = self._now() + min(error.retry_after or DEFAULT_PAUSE, MAX_PAUSE)

    def check(self) -> None:
        """Raise the last error again during a pause."""
        wait = self._until - self._now()
        if self._error is not None and wait > 0:
            raise type(self._error)(str(self._error), retry_after=wait)


class HostedEmbeddings(HostedProvider):
    """An `EmbeddingProvider` whose model runs on a server. Subclasses define the requests and read the responses."""

    errors: ClassVar[VendorErrors] = embedding_errors
    DEFAULT_MODEL: ClassVar[str]
    """The model if none is configured."""
    MAX_BATCH: ClassVar[int]
    """Maximum texts that the vendor accepts in one request."""
    QUERY_TIMEOUT: ClassVar[float] = 8.0
    """The longest time in seconds for a query's vector: keyword search answers it, too."""
    Response: ClassVar[type[msgspec.Struct]]

    def __init__(self, context: ProviderContext) -> None:
        settings: EmbeddingKeys = context.settings
        self._settings = settings
        self._transport = context.transport
        self._account = self.account(context)
        self.selected = settings.provider == self.name
        """True if the configuration selects this provider."""
        self._model = (settings.model or self.DEFAULT_MODEL).strip().removeprefix("models/")
        self._known = known_model(self.name, self._model)
        # A compatible server may return other lengths under the same name, and a wrong guess embeds all notes again.
        self._dimensions = self.requested_dimensions() or (self._known.dimensions if self._account.requires_key else 0)
        self._measured = settings.dimensions is not None
        self._tokens: int | None = 0
        self._limits = BatchLimits(
            most=settings.batch_size or min(self.MAX_BATCH, MAX_TEXTS),
            total=self._known.total,
            tokens=self.known_tokens(),
            characters=settings.max_input_length or 0,
        )
        self._cooldown = Cooldown(context.clock.monotonic)

    # --- what each vendor defines -------------------------------------------------------------------------------------

    @abstractmethod
    def account(self, context: ProviderContext) -> Account:
        """Return the address and the key."""

    @abstractmethod
    def url(self, base: str, model: str) -> str:
        """Return the URL of a request."""

    @abstractmethod
    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        """Return the body of a request; `dimensions` None is the model's own number."""

    @abstractmethod
    def vectors(self, response: Any) -> list[Vector]:
        """Return the vectors of a `Response` in the order of the texts. Raises BadAnswer."""

    def tokens(self, response: Any) -> int | None:
        """Return the tokens that the service counted in a request; None if it does not say."""
        return None

    def take_counted(self) -> int | None:
        """Return the counted tokens; implements `CountsTokens.take_counted`."""
        counted, self._tokens = self._tokens, 0
        return counted

    def header(self, key: str) -> dict[str, str]:
        """Return the header with the key."""
        return bearer(key)

    def is_too_large(self, refused: StatusRefused) -> bool:
        """Return True if a request was refused for its size."""
        return embedding_errors.is_too_large(refused)

    def error_for(self, refused: StatusRefused) -> ProviderError:
        """Return the error for a refusal; ContextOverflow for a request that is too large."""
        if self.is_too_large(refused):
            return ContextOverflow(f"The request is too large for the server: {error_message(refused.body)}")
        return self.errors.error_for(refused.status, refused.body, model=self._model, after=refused.retry_after)

    def can_retry(self, refused: StatusRefused) -> bool:
        """Return True if a refused request may succeed in a moment."""
        return not self.is_too_large(refused) and self.errors.can_retry(refused)

    def known_tokens(self) -> int:
        """Return the most tokens of a text by our estimate; 0 is unknown."""
        return self._known.tokens

    def requested_dimensions(self) -> int | None:
        """Return the number of dimensions to request; None requests the model's own."""
        return self._settings.dimensions

    # --- the provider -------------------------------------------------------------------------------------------------

    def model(self) -> str | None:
        """Return the model if there is a key or an address that requires none."""
        return self._model if self.usable() else None

    def address(self, model: str) -> str:
        """Return the server's address."""
        return bare_address(self._account.base)

    def usable(self) -> bool:
        """Return True if requests can be sent."""
        return bool(self._account.key or self._settings.base_url or (self.selected and not self._account.requires_key))

    def explain_default(self) -> str:
        """Return what is set or missing, as the end of a sentence."""
        if self._account.key:
            return f"{self._account.source} is set"
        if self.usable():
            return f"{ADDRESS if self._settings.base_url else 'memory.embedding.provider'} is set"
        return self._account.missing()

    def dimensions(self) -> int:
        """Return the length of the vectors; 0 until the first response if only the server knows it."""
        return self._dimensions

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """Return the vectors of texts; implements `EmbeddingProvider.embed`. After a lasting failure its error is raised
        again for a while, without a request."""
        if not all(text.strip() for text in texts):
            raise BadRequest("An empty text has no vector.")
        self._cooldown.check()
        try:
            return same_length(await self._limits.embed(texts, partial(self._request, purpose)))
        except ProviderError as error:
            error.args = (f"{self.name}: {error}",)  # most are raised where the provider is unknown
            self._cooldown.record(error)
            self._measured = self._settings.dimensions is not None
            raise

    # --- one request --------------------------------------------------------------------------------------------------

    async def _request(self, purpose: Purpose, texts: Sequence[str]) -> list[Vector]:
        """Return the vectors of one request. For notes, an interrupted or invalid response is requested once more; refusals
        are retried by the transport."""
        headers = self._account.headers(self.header)
        prefix = self._known.prefix(purpose)
        # Lone surrogates, which splitting may leave, cannot be encoded.
        valid = [(prefix + text).encode("utf-8", "replace").decode() for text in texts]
        body = self.body(self._model, valid, purpose, self.requested_dimensions())
        encoded = msgspec.json.encode(body)
        if purpose == "note":
            with suppress(StreamCut, BadAnswer):
                return self._read(await self._post(headers, encoded, purpose), len(texts))
        return self._read(await self._post(headers, encoded, purpose), len(texts))

    async def _post(self, headers: Mapping[str, str], body: bytes, purpose: Purpose) -> bytes:
        try:
            return await self._transport.post(
                self.url(self._account.base, self._model),
                headers=headers,
                body=body,
                timeouts=self._timeouts(purpose),
                may_retry=self.can_retry,
            )
        except StatusRefused as refused:
            error = self.error_for(refused)
            if isinstance(error, CredentialsRefused):
                subject = f"The key of {self._account.source}" if self._account.key else "A request without a key"
                error = CredentialsRefused(f"{subject} was refused: {error_message(refused.body)}")
            raise error from refused

    def _timeouts(self, purpose: Purpose) -> Timeouts:
        """Return the timeouts: a query has less time, since keyword search answers it, too."""
        default, longest = self._transport.timeouts, self.QUERY_TIMEOUT
        if purpose == "note":
            return default
        return msgspec.structs.replace(
            default,
            connect=min(default.connect, longest),
            first=min(default.first, longest),
            between=min(default.between, longest),
            whole=min(default.whole, longest),
            attempts=min(default.attempts, 2),
            trying=min(default.trying, longest / 2),
        )

    def _read(self, body: bytes, count: int) -> list[Vector]:
        try:
            response = msgspec.json.decode(body, type=self.Response)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise BadAnswer(f"The server's response is not a list of vectors: {_fault(body, error)}.") from error
        counted = self.tokens(response)
        self._tokens = None if counted is None or self._tokens is None else self._tokens + counted
        vectors = checked(self.vectors(response), count)
        length = len(vectors[0]) if vectors else self._dimensions
        if self._measured and length != self._dimensions:
            raise BadAnswer(self._changed(length))
        self._dimensions, self._measured = length, True
        return vectors

    def _changed(self, length: int) -> str:
        if self._settings.dimensions:
            return f"The server returned vectors of {length} numbers, but memory.embedding.dimensions is {self._dimensions}."
        return (
            f"The server returned vectors of {length} numbers instead of {self._dimensions}; it may run another model now."
        )


def _fault(body: bytes, error: Exception) -> str:
    """Return what is wrong with a response, as the end of a sentence."""
    if not body:
        return "it is empty"
    if found := _INVALID_NUMBER.search(body):
        return f"it contains {found[0].decode()}"
    if body.lstrip().startswith(b"{") and not error_object(body).get("message"):
        return str(error)
    return f"it begins with {error_message(body)[:60]!r}"
