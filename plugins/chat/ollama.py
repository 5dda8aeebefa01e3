"""The `ollama` chat provider: Ollama's own API, by a server on this machine or elsewhere, or by its cloud."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

import msgspec

from plugins.chat.ollama_address import CLOUD, server_address
from plugins.chat.ollama_errors import meaning, worth_another_attempt
from plugins.chat.ollama_wire import Assembly, Encoder
from plugins.contracts import ChatRequest, Delta, House, ModelLimits, Reply
from plugins.errors import CredentialsRefused
from plugins.refusals import StatusRefused
from plugins.secrets import Secret
from plugins.transport import Patience

USUAL_MODEL = "llama3.2"
"""What is asked for where a server is named and no model: the one of the vendor's own examples."""

LOCAL_WINDOW = 16_384
"""Tokens that a model on somebody's machine is told to read: its own default, 4096 on most, is filled by a few notes."""

_CLOUD_WINDOWS = {
    "deepseek-v3.1": 163_840,
    "glm-4.6": 202_752,
    "gpt-oss": 131_072,
    "kimi-k2": 262_144,
    "minimax-m2": 204_800,
    "qwen3-coder": 262_144,
    "qwen3-vl": 262_144,
}
"""Context windows in tokens, by the beginning of the model's name, from the cloud models' pages: there all is read."""


_THINKING: dict[str | None, bool] = {"on": True, "off": False}
"""What is sent for a word of the configuration; the others are the server's too."""


class OllamaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.ollama]`. Without a key or an address of its own, `OLLAMA_API_KEY` and `OLLAMA_HOST` are used.

    A server reads `context_window` tokens and takes the memory for them; without one, 16,384, and in the cloud all that
    the model can. `keep_alive` is how long a model stays loaded, in the server's own words. `first_seconds` bounds the
    wait for the answer's beginning, which is long while a model is loaded, `between_seconds` each pause in it: a call
    comes only when it is whole."""

    api_key: Secret | None = None
    base_url: str | None = None
    default_model: str | None = None
    context_window: Annotated[int, msgspec.Meta(ge=512)] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    think: Literal["on", "off", "low", "medium", "high"] | None = None
    keep_alive: str | None = None
    headers: dict[str, Secret] = {}
    first_seconds: float = 300.0
    between_seconds: float = 180.0


class Ollama:
    """A `ChatProvider`."""

    name: ClassVar[str] = "ollama"
    Settings: ClassVar[type] = OllamaSettings

    def __init__(self, house: House) -> None:
        settings: OllamaSettings = house.settings
        environment = house.environment
        self._settings = settings
        self._transport = house.transport
        key = settings.api_key.reveal() if settings.api_key else environment.get("OLLAMA_API_KEY", "")
        self._key = key.strip()
        self._key_source = "providers.ollama.api_key" if settings.api_key else "OLLAMA_API_KEY"
        named = (settings.base_url or environment.get("OLLAMA_HOST", "")).strip()
        self._url_source = "providers.ollama.base_url" if settings.base_url else "OLLAMA_HOST"
        self._named_url = bool(named)
        self._base = server_address(named)
        self._encoder = Encoder()
        self._patience = Patience(first=settings.first_seconds, between=settings.between_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def default_model(self) -> str | None:
        """The configured model; the usual one where only a server is named. Nobody is asked whether they are there."""
        return self._settings.default_model or (USUAL_MODEL if self._named_url else None)

    def why(self) -> str:
        """Which of the two was named, or that neither was."""
        if self._named_url:
            return f"{self._url_source} is set"
        if self._settings.default_model:
            return "providers.ollama.default_model is set"
        return "neither OLLAMA_HOST nor providers.ollama.default_model is set"

    def limits(self, model: str) -> ModelLimits:
        """The window that is asked for, or a cloud model's own."""
        window = self._asked_window(model)
        if window is None:
            window = next((size for name, size in _CLOUD_WINDOWS.items() if model.startswith(name)), None)
        return ModelLimits(window=window, output=self._settings.max_output_tokens)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Ask, and yield deltas and the reply; see `ChatProvider.stream`."""
        self._check_key()
        settings, window = self._settings, self._asked_window(request.model)
        assembly = Assembly(request.model, window)
        try:
            lines = self._transport.stream_lines(
                f"{self._base}/api/chat",
                headers=self._headers(),
                body=self._encoder.body(
                    request,
                    window=window,
                    max_tokens=settings.max_output_tokens,
                    think=_THINKING.get(settings.think, settings.think),
                    keep_alive=settings.keep_alive,
                ),
                until=lambda: assembly.complete,
                patience=self._patience,
                may_retry=worth_another_attempt,
            )
            async with aclosing(lines):
                async for line in lines:
                    for delta in assembly.take(line):
                        yield delta
        except StatusRefused as refused:
            raise meaning(refused.status, refused.body, after=refused.retry_after) from refused
        yield assembly.reply()

    def _asked_window(self, model: str) -> int | None:
        """The window in tokens that a request asks for; None in the cloud, where it is the model's own."""
        tag = model.rpartition(":")[2]
        in_cloud = urlsplit(self._base).hostname == CLOUD or tag == "cloud" or tag.endswith("-cloud")
        return self._settings.context_window or (None if in_cloud else LOCAL_WINDOW)

    def _check_key(self) -> None:
        if not self._key and urlsplit(self._base).hostname == CLOUD:
            raise CredentialsRefused("There is no key for ollama.com: set OLLAMA_API_KEY or providers.ollama.api_key.")
        if not (self._key.isascii() and self._key.isprintable()):
            raise CredentialsRefused(f"{self._key_source} holds a character that no key has; copy it again.")

    def _headers(self) -> dict[str, str]:
        key = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        return {**key, **{name: value.reveal() for name, value in self._settings.headers.items()}}
