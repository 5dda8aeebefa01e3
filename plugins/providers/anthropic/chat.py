"""The `anthropic` chat provider: Claude, through Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec

from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits, ModelList, ReportedLimits
from plugins.http.sse import ServerSentEvent
from plugins.providers.anthropic.errors import meaning, refuses_thoughts, worth_another_attempt
from plugins.providers.anthropic.request import Encoder, has_thoughts
from plugins.providers.anthropic.stream import StreamAccumulator
from plugins.providers.hosted.images import anthropic_sight
from plugins.providers.hosted.keys import ApiKeys
from plugins.providers.hosted.model_limits import bare_address, capped, known_limits, told_at
from plugins.support.addresses import WebAddress
from plugins.support.errors import CredentialsRefused, StreamCut
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret

OFFICIAL = "https://api.anthropic.com"
VERSION = "2023-06-01"
"""The version of the API, which every request names."""


class AnthropicSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.anthropic]`. Without a key of its own, `ANTHROPIC_API_KEY` is used. `thinking` and `effort` are sent as
    they are; `first_seconds` bounds the time until something is said or thought, `between_seconds` each pause after it,
    `reply_seconds` the whole answer."""

    api_key: tuple[Secret, ...] | None = None
    base_url: WebAddress = OFFICIAL
    default_model: str = "claude-sonnet-5-5"
    max_output_tokens: int | None = None
    thinking: dict[str, Any] = {}
    effort: str | None = None
    headers: dict[str, Secret] = {}
    first_seconds: float = 300.0
    between_seconds: float = 60.0
    reply_seconds: float = 1800.0


class Anthropic:
    """A `ChatProvider`."""

    name: ClassVar[str] = "anthropic"
    Settings: ClassVar[type] = AnthropicSettings

    def __init__(self, context: ProviderContext) -> None:
        settings: AnthropicSettings = context.settings
        self._settings = settings
        self._transport = context.transport
        setting, now = "providers.anthropic.api_key", context.clock.monotonic
        self._keys = ApiKeys(settings.api_key, setting, context.environment, "ANTHROPIC_API_KEY", now)
        self._base = (settings.base_url.strip() or OFFICIAL).rstrip("/").removesuffix("/v1")  # people copy the path along
        self._told = told_at(self._base, context.reported_models)
        self._encoder = Encoder(told=self._told)
        self._patience = msgspec.structs.replace(
            context.transport.timeouts,
            first=settings.first_seconds,
            between=settings.between_seconds,
            whole=settings.reply_seconds,
            section=f"providers.{self.name}",
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def default_model(self) -> str | None:
        """The configured model, once there is a key, or an address of another server to ask."""
        return self._settings.default_model if self._keys or self._base != OFFICIAL else None

    def explain_default(self) -> str:
        """Which of the two is there."""
        return f"{self._keys.source if self._keys else 'providers.anthropic.base_url'} is set"

    def limits(self, model: str) -> ModelLimits:
        """What the service told, else what Anthropic's model pages say."""
        known = capped(known_limits(self.name, model, self._told), self._settings.max_output_tokens)
        return msgspec.structs.replace(known, vision=anthropic_sight(model))

    def address(self, model: str) -> str:
        """Return where the server is."""
        return bare_address(self._base)

    async def models(self) -> ModelList:
        """What the server lists, in one page of the largest size."""
        from plugins.providers.hosted.model_listing import listed, tokens  # noqa: PLC0415 - asked seldom

        self._check_key()
        url = f"{self._base}/v1/models?limit=1000"
        headers = self._headers(self._keys.current())
        entries = await listed(self._transport, url, headers, under="data", named="id", meaning=meaning)
        models = {
            name: ReportedLimits(window=tokens(entry, "max_input_tokens"), output=tokens(entry, "max_tokens"))
            for name, entry in entries.items()
        }
        return ModelList(address=bare_address(self._base), models=models)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Ask, and yield deltas and the reply; see `ChatProvider.stream`."""
        self._check_key()
        async with aclosing(self._keys.answer(lambda key: self._answer(request, key))) as parts:
            async for part in parts:
                yield part

    async def _answer(self, request: ChatRequest, key: str) -> AsyncGenerator[Delta | Reply, None]:
        """Ask with a key. Where thoughts that are sent back are refused, as happens when what stood before them was pruned
        meanwhile, the same is asked once more without them."""
        assembly = StreamAccumulator(request.model)
        for thoughts in (True, False):
            try:
                async with aclosing(self._events(request, key, assembly, thoughts=thoughts)) as events:
                    async for event in events:
                        for delta in assembly.take(event.data):
                            yield delta
                break
            except StatusRefused as refused:
                if not (thoughts and refuses_thoughts(refused) and has_thoughts(request.context.messages)):
                    raise meaning(refused.status, refused.body, model=request.model, after=refused.retry_after) from refused
            except StreamCut:
                if not assembly.complete:  # what is cut after the answer's own end is no part of it
                    raise
                break
        yield assembly.reply()

    def _events(
        self, request: ChatRequest, key: str, assembly: StreamAccumulator, *, thoughts: bool
    ) -> AsyncGenerator[ServerSentEvent, None]:
        settings = self._settings
        body = self._encoder.body(
            request,
            max_tokens=settings.max_output_tokens,
            thinking=settings.thinking,
            effort=settings.effort,
            thoughts=thoughts,
        )
        return self._transport.stream_events(
            f"{self._base}/v1/messages",
            headers=self._headers(key),
            body=body,
            until=lambda: assembly.done,
            said=lambda: assembly.said,
            timeouts=self._patience,
            may_retry=self._keys.worth(request, worth_another_attempt),
        )

    def _check_key(self) -> None:
        if not self._keys and self._base == OFFICIAL:
            raise CredentialsRefused("There is no key for Anthropic: set ANTHROPIC_API_KEY or providers.anthropic.api_key.")

    def _headers(self, key: str) -> dict[str, str]:
        own = {name: value.reveal() for name, value in self._settings.headers.items()}
        return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {}), **own}
