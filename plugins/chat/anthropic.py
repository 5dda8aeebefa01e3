"""The `anthropic` chat provider: Claude, through Anthropic's Messages API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec

from plugins.chat.anthropic_answer import Assembly
from plugins.chat.anthropic_errors import meaning, refuses_thoughts, worth_another_attempt
from plugins.chat.anthropic_models import known
from plugins.chat.anthropic_request import Encoder, has_thoughts
from plugins.contracts import ChatRequest, Delta, House, ModelLimits, Reply
from plugins.errors import CredentialsRefused, ProviderError, StreamCut
from plugins.event_stream import ServerSentEvent
from plugins.refusals import StatusRefused
from plugins.secrets import Secret
from plugins.transport import LINGER, Patience

OFFICIAL = "https://api.anthropic.com"
VERSION = "2023-06-01"
"""The version of the API, which every request names."""


class AnthropicSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.anthropic]`. Without a key of its own, `ANTHROPIC_API_KEY` is used. `thinking` and `effort` are sent as
    they are; `first_seconds` bounds the wait for the answer's beginning, `between_seconds` each pause in it."""

    api_key: Secret | None = None
    base_url: str = OFFICIAL
    default_model: str = "claude-sonnet-5-5"
    max_output_tokens: int | None = None
    thinking: dict[str, Any] = {}
    effort: str | None = None
    headers: dict[str, Secret] = {}
    first_seconds: float = 120.0
    between_seconds: float = 60.0


class Anthropic:
    """A `ChatProvider`."""

    name: ClassVar[str] = "anthropic"
    Settings: ClassVar[type] = AnthropicSettings

    def __init__(self, house: House) -> None:
        settings: AnthropicSettings = house.settings
        self._settings = settings
        self._transport = house.transport
        key = settings.api_key.reveal() if settings.api_key else house.environment.get("ANTHROPIC_API_KEY", "")
        self._key = key.strip()
        self._key_source = "providers.anthropic.api_key" if settings.api_key else "ANTHROPIC_API_KEY"
        self._base = settings.base_url.strip().rstrip("/").removesuffix("/v1")  # people copy the path along
        self._encoder = Encoder()
        self._patience = Patience(first=settings.first_seconds, between=settings.between_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def default_model(self) -> str | None:
        """The configured model, once there is a key, or an address of another server to ask."""
        return self._settings.default_model if self._key or self._base != OFFICIAL else None

    def why(self) -> str:
        """Which of the two is there."""
        return f"{self._key_source if self._key else 'providers.anthropic.base_url'} is set"

    def limits(self, model: str) -> ModelLimits:
        """What Anthropic's model pages say."""
        found = known(model)
        return ModelLimits(window=found.window, output=found.output) if found else ModelLimits()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Ask, and yield deltas and the reply; see `ChatProvider.stream`. Where thoughts that are sent back are refused,
        as happens when what stood before them was pruned meanwhile, the same is asked once more without them."""
        self._check_key()
        assembly = Assembly(request.model)
        for thoughts in (True, False):
            try:
                async with aclosing(self._events(request, thoughts=thoughts)) as events:
                    async for event in events:
                        for delta in assembly.take(event.data):
                            yield delta
                        if assembly.done:
                            await _finish(events)
                            break
                break
            except StatusRefused as refused:
                if not (thoughts and refuses_thoughts(refused) and has_thoughts(request.context.messages)):
                    raise meaning(refused.status, refused.body, after=refused.retry_after) from refused
            except StreamCut:
                if not assembly.complete:  # what is cut after the answer's own end is no part of it
                    raise
                break
        yield assembly.reply()

    def _events(self, request: ChatRequest, *, thoughts: bool) -> AsyncGenerator[ServerSentEvent, None]:
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
            headers=self._headers(),
            body=body,
            patience=self._patience,
            may_retry=worth_another_attempt,
        )

    def _check_key(self) -> None:
        if not self._key and self._base == OFFICIAL:
            raise CredentialsRefused("There is no key for Anthropic: set ANTHROPIC_API_KEY or providers.anthropic.api_key.")
        if not (self._key.isascii() and self._key.isprintable()):
            raise CredentialsRefused(f"{self._key_source} holds a character that no key has; copy it again.")

    def _headers(self) -> dict[str, str]:
        own = {name: value.reveal() for name, value in self._settings.headers.items()}
        return {"anthropic-version": VERSION, **({"x-api-key": self._key} if self._key else {}), **own}


async def _finish(events: AsyncGenerator[ServerSentEvent, None]) -> None:
    """Read to the end of the stream, which often comes in a packet of its own, so that the connection can be used again."""
    with suppress(TimeoutError, ProviderError):
        async with asyncio.timeout(LINGER):
            async for _ in events:
                pass
