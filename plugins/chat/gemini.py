"""The `gemini` chat provider: Google's Gemini API, or a server that speaks like it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import quote

import msgspec

from plugins.chat.gemini_answer import Assembly
from plugins.chat.gemini_errors import meaning, worth_another_attempt
from plugins.chat.gemini_request import Encoder
from plugins.contracts import ChatRequest, Delta, House, ModelLimits, Reply
from plugins.errors import CredentialsRefused, StreamCut
from plugins.refusals import StatusRefused
from plugins.secrets import Secret
from plugins.transport import Patience

OFFICIAL = "https://generativelanguage.googleapis.com"

_LIMITS = {
    "gemini-3-pro-image": ModelLimits(window=65_536, output=32_768),
    "gemini-3": ModelLimits(window=1_048_576, output=65_536),
    "gemini-2.5": ModelLimits(window=1_048_576, output=65_536),
    "gemini-flash": ModelLimits(window=1_048_576, output=65_536),
    "gemini-pro": ModelLimits(window=1_048_576, output=65_536),
}
"""Limits by the beginning of the model's name, the longer one first, from Google's model pages."""


class GeminiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.gemini]`. Without a key of its own, `GEMINI_API_KEY` is used. `first_seconds` bounds the wait for the
    answer's beginning, thinking included, `between_seconds` each pause in it."""

    api_key: Secret | None = None
    base_url: str | None = None
    default_model: str = "gemini-3.8-flash"
    max_output_tokens: int | None = None
    first_seconds: float = 120.0
    between_seconds: float = 60.0


class Gemini:
    """A `ChatProvider`."""

    name: ClassVar[str] = "gemini"
    Settings: ClassVar[type] = GeminiSettings

    def __init__(self, house: House) -> None:
        settings: GeminiSettings = house.settings
        self._settings = settings
        self._transport = house.transport
        key = settings.api_key.reveal() if settings.api_key else house.environment.get("GEMINI_API_KEY", "")
        self._key = key.strip()
        self._key_source = "providers.gemini.api_key" if settings.api_key else "GEMINI_API_KEY"
        named = (settings.base_url or "").strip()
        self._named_url = bool(named)
        self._base = (named or OFFICIAL).rstrip("/")
        self._encoder = Encoder()
        self._patience = Patience(first=settings.first_seconds, between=settings.between_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def default_model(self) -> str | None:
        """The configured model, once there is a key or an address to ask."""
        return self._settings.default_model if self._key or self._named_url else None

    def why(self) -> str:
        """Which of the two is there."""
        return f"{self._key_source if self._key else 'providers.gemini.base_url'} is set"

    def limits(self, model: str) -> ModelLimits:
        """The limits of Google's own models, by whatever server they answer."""
        known = [limits for name, limits in _LIMITS.items() if _plain(model).startswith(name)]
        return known[0] if known else ModelLimits()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Ask, and yield deltas and the reply; see `ChatProvider.stream`."""
        if not self._key and self._base == OFFICIAL:
            raise CredentialsRefused("There is no key for Gemini: set GEMINI_API_KEY or providers.gemini.api_key.")
        if not (self._key.isascii() and self._key.isprintable()):
            raise CredentialsRefused(f"{self._key_source} holds a character that no key has; copy it again.")
        assembly = Assembly(request.model)
        try:
            events = self._transport.stream_events(
                f"{self._base}/v1beta/models/{quote(_plain(request.model), safe='')}:streamGenerateContent?alt=sse",
                headers={"x-goog-api-key": self._key} if self._key else {},  # never in the URL, which others log
                body=self._encoder.body(request, max_tokens=self._settings.max_output_tokens),
                patience=self._patience,
                may_retry=worth_another_attempt,
            )
            async with aclosing(events):
                async for event in events:
                    for delta in assembly.take(event.data):
                        yield delta
        except StatusRefused as refused:
            raise meaning(refused.status, refused.body, after=refused.retry_after) from refused
        except StreamCut:
            if not assembly.complete:  # what is cut after the answer's own end is no part of it
                raise
        yield assembly.reply()


def _plain(model: str) -> str:
    """A model's name without the folder that Google's own lists write before it."""
    return model.removeprefix("models/")
