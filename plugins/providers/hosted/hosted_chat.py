"""The base class of chat providers whose models run on a server: keys, timeouts, one streamed request, errors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, ClassVar, Protocol

import msgspec

from plugins.api.chat import ChatRequest, Delta, Reasoning, Reply, StreamPart
from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits
from plugins.http.sse import ServerSentEvent
from plugins.providers.hosted.hosted_provider import HostedProvider
from plugins.providers.hosted.keys import ApiKeys
from plugins.providers.hosted.known_models import bare_address, reported_at
from plugins.providers.hosted.model_listing import fetch_model_list
from plugins.support.errors import CredentialsRefused, NoSuchModel, StreamCut
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret


class HostedChatSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of every hosted chat provider. `first_seconds` limits the time until the first text or reasoning,
    `between_seconds` each pause after it, `reply_seconds` the whole reply."""

    api_key: tuple[Secret, ...] | None = None
    max_output_tokens: int | None = None
    first_seconds: float = 300.0
    between_seconds: float = 60.0
    reply_seconds: float = 1800.0


class Accumulator(Protocol):
    """A reply that is built from the chunks of a stream."""

    @property
    def progress(self) -> int:
        """The number of chunks so far that carried text, reasoning or part of a call."""
        ...

    @property
    def complete(self) -> bool:
        """True once the server has given a reason for the end of the reply."""
        ...

    @property
    def done(self) -> bool:
        """True once nothing more can follow."""
        ...

    def take(self, data: bytes) -> Iterator[Delta | Reasoning]:
        """Add a chunk and yield its new text and reasoning. Raises a ProviderError."""
        ...

    def reply(self) -> Reply:
        """Return the whole reply. Raises a ProviderError if there is none."""
        ...


class HostedChatProvider(HostedProvider):
    """A `ChatProvider` whose models run on a server. Subclasses define the requests and how to read the stream."""

    title: ClassVar[str]
    """The service's name in messages."""
    key_variable: ClassVar[str]
    """The environment variable with the API key."""
    streams_lines: ClassVar[bool] = False
    """True for a stream of JSON lines instead of server-sent events."""

    _settings: HostedChatSettings

    def __init__(self, context: ProviderContext, base: str, *, url_source: str, requires_key: bool) -> None:
        """`base` is the server's address, `url_source` the setting or variable that may name it; `requires_key` is True if
        the server requires a key."""
        settings = self._settings = context.settings
        self._transport = context.transport
        self._key_setting = f"providers.{self.name}.api_key"
        now = context.clock.monotonic
        self._keys = ApiKeys(settings.api_key, self._key_setting, context.environment, self.key_variable, now)
        self._base = base
        self._url_source = url_source
        self._requires_key = requires_key
        self._discovered = False
        """True while the default model was chosen from the server's list."""
        self._reported = reported_at(base, context.reported_models)
        self._timeouts = msgspec.structs.replace(
            context.transport.timeouts,
            first=settings.first_seconds,
            between=settings.between_seconds,
            whole=settings.reply_seconds,
            section=f"providers.{self.name}",
        )

    @abstractmethod
    def limits(self, model: str) -> ModelLimits:
        """Return what is known about a model; implements `ChatProvider.limits`."""

    @abstractmethod
    def _headers(self, key: str) -> dict[str, str]:
        """Return the headers of a request; `key` is empty if there is none."""

    @abstractmethod
    def _url(self, model: str) -> str:
        """Return the URL of a chat request."""

    @abstractmethod
    def _body(self, request: ChatRequest, *, reduced: bool) -> bytes:
        """Return the JSON body of a chat request; `reduced` is True after `_can_reduce` returned True."""

    @abstractmethod
    def _accumulator(self, request: ChatRequest) -> Accumulator:
        """Return an empty accumulator for a reply."""

    def _can_reduce(self, request: ChatRequest, refused: StatusRefused, *, reduced: bool) -> bool:
        """Return True if a refused request is to be sent again without an optional part. `reduced` is True if this happened
        before."""
        return False

    def _reply(self, request: ChatRequest, accumulator: Accumulator) -> Reply:
        """Return the reply at the end of the stream."""
        return accumulator.reply()

    def _effort(self, request: ChatRequest, configured: str | None = None) -> str | None:
        """Return the effort that a request names if its model has it, else the configured one."""
        wanted: str | None = request.context.parameters.get("effort")
        return wanted if wanted in self.limits(request.model).efforts else configured

    def explain_default(self) -> str:
        """Return the reason for the default model, as the end of a sentence: the setting or variable that is set."""
        return f"{self._keys.source if self._keys else self._url_source} is set"

    def address(self, model: str) -> str:
        """Return the server's address."""
        return bare_address(self._base)

    async def _fetch_models(self, url: str, *, list_field: str, name_field: str) -> dict[str, Any]:
        """Return the entries of the server's list of models by their names. Raises a ProviderError."""
        self._check_key()
        return await fetch_model_list(
            self._transport,
            url,
            self._headers(self._keys.current()),
            list_field=list_field,
            name_field=name_field,
            error_for=self.errors.error_for,
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        """Send a request and yield deltas and the reply; implements `ChatProvider.stream`."""
        self._check_key()
        try:
            async with aclosing(self._keys.answer(lambda key: self._answer(request, key))) as parts:
                async for part in parts:
                    yield part
        except NoSuchModel:
            self._discovered = False  # the server may have another model by now
            raise

    def _check_key(self) -> None:
        if self._requires_key and not self._keys:
            raise CredentialsRefused(f"No API key for {self.title}: set {self.key_variable} or {self._key_setting}.")

    async def _answer(self, request: ChatRequest, key: str) -> AsyncGenerator[StreamPart, None]:
        started = reduced = False
        while True:
            accumulator = self._accumulator(request)
            try:
                async with aclosing(self._chunks(request, key, accumulator, reduced=reduced)) as chunks:
                    async for chunk in chunks:
                        for piece in accumulator.take(chunk if isinstance(chunk, bytes) else chunk.data):
                            started = True
                            yield piece
                break
            except StatusRefused as refused:
                if started or not self._can_reduce(request, refused, reduced=reduced):
                    after = refused.retry_after
                    raise self.errors.error_for(refused.status, refused.body, model=request.model, after=after) from refused
                reduced = True
            except StreamCut:
                if not accumulator.complete:  # the reply is complete: nothing that was cut off belongs to it
                    raise
                break
        yield self._reply(request, accumulator)

    def _chunks(
        self, request: ChatRequest, key: str, accumulator: Accumulator, *, reduced: bool
    ) -> AsyncGenerator[ServerSentEvent, None] | AsyncGenerator[bytes, None]:
        send = self._transport.stream_lines if self.streams_lines else self._transport.stream_events
        return send(
            self._url(request.model),
            headers=self._headers(key),
            body=self._body(request, reduced=reduced),
            until=lambda: accumulator.done,
            progress=lambda: accumulator.progress,
            timeouts=self._timeouts,
            may_retry=self._keys.retry_policy(self.errors.can_retry, has_fallback=request.has_fallback),
        )
