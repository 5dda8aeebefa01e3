"""The `openai` chat provider: chat completions, by OpenAI or by any server that speaks like it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import ClassVar, Self

import msgspec

from plugins.chat.openai_errors import meaning, worth_another_attempt
from plugins.chat.openai_wire import DONE, Assembly, Encoder
from plugins.contracts import ChatRequest, Delta, House, ModelLimits, Reply
from plugins.errors import CredentialsRefused, StreamCut
from plugins.refusals import StatusRefused
from plugins.secrets import Secret
from plugins.transport import Patience

OFFICIAL = "https://api.openai.com/v1"

_WINDOWS = {
    "gpt-5": 400_000,
    "gpt-4.1": 1_047_576,
    "gpt-4o": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
}
"""Context windows in tokens, by the beginning of the model's name, from OpenAI's model pages."""


class OpenAISettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.openai]`. Without a key or an address of its own, `OPENAI_API_KEY` and `OPENAI_BASE_URL` are used.
    `first_seconds` bounds the wait for the answer's beginning, `between_seconds` each pause in it."""

    api_key: Secret | None = None
    base_url: str | None = None
    default_model: str = "gpt-4.1"
    organization: str | None = None
    project: str | None = None
    headers: dict[str, Secret] = {}
    max_output_tokens: int | None = None
    first_seconds: float = 120.0
    between_seconds: float = 60.0


class OpenAI:
    """A `ChatProvider`."""

    name: ClassVar[str] = "openai"
    Settings: ClassVar[type] = OpenAISettings

    def __init__(self, house: House) -> None:
        settings: OpenAISettings = house.settings
        environment = house.environment
        self._settings = settings
        self._transport = house.transport
        key = settings.api_key.reveal() if settings.api_key else environment.get("OPENAI_API_KEY", "")
        self._key = key.strip()
        self._key_source = "providers.openai.api_key" if settings.api_key else "OPENAI_API_KEY"
        named = (settings.base_url or environment.get("OPENAI_BASE_URL", "")).strip()
        self._url_source = "providers.openai.base_url" if settings.base_url else "OPENAI_BASE_URL"
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
        return f"{self._key_source if self._key else self._url_source} is set"

    def limits(self, model: str) -> ModelLimits:
        """The window of OpenAI's own models; nothing is known of another server's."""
        if self._base != OFFICIAL:
            return ModelLimits()
        known = [window for name, window in _WINDOWS.items() if model.startswith(name)]
        return ModelLimits(window=known[0] if known else None)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Ask, and yield deltas and the reply; see `ChatProvider.stream`."""
        if not self._key and self._base == OFFICIAL:
            raise CredentialsRefused("There is no key for OpenAI: set OPENAI_API_KEY or providers.openai.api_key.")
        if not (self._key.isascii() and self._key.isprintable()):
            raise CredentialsRefused(f"{self._key_source} holds a character that no key has; copy it again.")
        assembly = Assembly(request.model)
        limit_key = "max_completion_tokens" if self._base == OFFICIAL else "max_tokens"
        body = self._encoder.body(request, max_tokens=self._settings.max_output_tokens, max_tokens_key=limit_key)
        try:
            events = self._transport.stream_events(
                f"{self._base}/chat/completions",
                headers=self._headers(),
                body=body,
                patience=self._patience,
                last=DONE,
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

    def _headers(self) -> dict[str, str]:
        settings = self._settings
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        if settings.organization:
            headers["OpenAI-Organization"] = settings.organization
        if settings.project:
            headers["OpenAI-Project"] = settings.project
        return {**headers, **{name: value.reveal() for name, value in settings.headers.items()}}
