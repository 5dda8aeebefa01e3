"""The `anthropic` chat provider: Claude, over Anthropic's Messages API."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from plugins.api.chat import ChatRequest
from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits, ModelList, ReportedLimits
from plugins.providers.anthropic import errors as anthropic_errors
from plugins.providers.anthropic.reply import StreamAccumulator
from plugins.providers.anthropic.request import Encoder, accepts_sampling, has_thinking
from plugins.providers.hosted.hosted_chat import HostedChatProvider, HostedChatSettings
from plugins.providers.hosted.hosted_provider import VendorErrors
from plugins.providers.hosted.images import anthropic_vision
from plugins.providers.hosted.known_models import bare_address, capped, known_limits
from plugins.providers.hosted.model_listing import token_count
from plugins.support.addresses import WebAddress
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret, revealed

OFFICIAL = "https://api.anthropic.com"
VERSION = "2023-06-01"
"""The version of the API, which every request names."""


class AnthropicSettings(HostedChatSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.anthropic]`. `ANTHROPIC_API_KEY` is used if `api_key` is not set. `thinking` and `effort` are sent
    unchanged."""

    base_url: WebAddress = OFFICIAL
    default_model: str = "claude-sonnet-5-5"
    thinking: dict[str, Any] = msgspec.field(default_factory=dict)
    effort: str | None = None
    headers: dict[str, Secret] = msgspec.field(default_factory=dict)


class Anthropic(HostedChatProvider):
    """The `ChatProvider` for Anthropic."""

    name: ClassVar[str] = "anthropic"
    title: ClassVar[str] = "Anthropic"
    key_variable: ClassVar[str] = "ANTHROPIC_API_KEY"
    errors: ClassVar[VendorErrors] = anthropic_errors
    Settings: ClassVar[type] = AnthropicSettings

    _settings: AnthropicSettings

    def __init__(self, context: ProviderContext) -> None:
        settings: AnthropicSettings = context.settings
        base = (settings.base_url.strip() or OFFICIAL).rstrip("/").removesuffix("/v1")  # often copied with its path
        super().__init__(context, base, url_source="providers.anthropic.base_url", requires_key=base == OFFICIAL)
        self._encoder = Encoder(reported=self._reported)

    def default_model(self) -> str | None:
        """Return the configured model if there is a key or another server's address."""
        return self._settings.default_model if self._keys or not self._requires_key else None

    def limits(self, model: str) -> ModelLimits:
        """Return the limits that the server reported, else those of Anthropic's model pages."""
        known = capped(known_limits(self.name, model, self._reported), self._settings.max_output_tokens)
        temperature = (0.0, 1.0) if accepts_sampling(model) else None
        return msgspec.structs.replace(known, vision=anthropic_vision(model), temperature=temperature)

    async def models(self) -> ModelList:
        """Return the server's list of models: one page of the largest size."""
        entries = await self._fetch_models(f"{self._base}/v1/models?limit=1000", list_field="data", name_field="id")
        models = {
            name: ReportedLimits(window=token_count(entry, "max_input_tokens"), output=token_count(entry, "max_tokens"))
            for name, entry in entries.items()
        }
        return ModelList(address=bare_address(self._base), models=models)

    def _url(self, model: str) -> str:
        return f"{self._base}/v1/messages"

    def _headers(self, key: str) -> dict[str, str]:
        own = {"x-api-key": key} if key else {}
        return {"anthropic-version": VERSION, **own, **revealed(self._settings.headers)}

    def _accumulator(self, request: ChatRequest) -> StreamAccumulator:
        return StreamAccumulator(request.model)

    def _body(self, request: ChatRequest, *, reduced: bool) -> bytes:
        settings = self._settings
        return self._encoder.body(
            request,
            max_tokens=settings.max_output_tokens,
            thinking=settings.thinking,
            effort=self._effort(request, settings.effort),
            with_thinking=not reduced,
        )

    def _can_reduce(self, request: ChatRequest, refused: StatusRefused, *, reduced: bool) -> bool:
        """Return True if the thinking in the request was refused, as happens after what precedes it was pruned."""
        return not reduced and anthropic_errors.refuses_thinking(refused) and has_thinking(request.context.messages)
