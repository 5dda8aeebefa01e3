"""The `gemini` chat provider: Google's Gemini API, or a compatible server."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import quote

import msgspec

from plugins.api.chat import ChatRequest
from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits, ModelList, ReportedLimits
from plugins.providers.gemini import errors as gemini_errors
from plugins.providers.gemini.reply import StreamAccumulator
from plugins.providers.gemini.request import Encoder
from plugins.providers.hosted.hosted_chat import HostedChatProvider, HostedChatSettings
from plugins.providers.hosted.hosted_provider import VendorErrors
from plugins.providers.hosted.images import gemini_vision
from plugins.providers.hosted.known_models import bare_address, capped, known_limits
from plugins.providers.hosted.model_listing import token_count
from plugins.support.addresses import WebAddress
from plugins.support.http_errors import StatusRefused

OFFICIAL = "https://generativelanguage.googleapis.com"


class GeminiSettings(HostedChatSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.gemini]`. `GEMINI_API_KEY` is used if `api_key` is not set."""

    base_url: WebAddress | None = None
    default_model: str = "gemini-3.8-flash"


class Gemini(HostedChatProvider):
    """The `ChatProvider` for Google's Gemini API."""

    name: ClassVar[str] = "gemini"
    title: ClassVar[str] = "Gemini"
    key_variable: ClassVar[str] = "GEMINI_API_KEY"
    errors: ClassVar[VendorErrors] = gemini_errors
    Settings: ClassVar[type] = GeminiSettings

    _settings: GeminiSettings

    def __init__(self, context: ProviderContext) -> None:
        settings: GeminiSettings = context.settings
        configured = (settings.base_url or "").strip()
        base = (configured or OFFICIAL).rstrip("/")
        super().__init__(context, base, url_source="providers.gemini.base_url", requires_key=base == OFFICIAL)
        self._has_url = bool(configured)
        self._encoder = Encoder()
        self._without_thoughts: set[str] = set()

    def default_model(self) -> str | None:
        """Return the configured model if there is a key or an address."""
        return self._settings.default_model if self._keys or self._has_url else None

    def limits(self, model: str) -> ModelLimits:
        """Return the limits that the server reported, else those of Google's own models, whichever server it is."""
        known = capped(known_limits(self.name, _bare_name(model), self._reported), self._settings.max_output_tokens)
        return msgspec.structs.replace(known, vision=gemini_vision(model))

    async def models(self) -> ModelList:
        """Return the chat models of the server's list: one page of the largest size."""
        url = f"{self._base}/v1beta/models?pageSize=1000"
        entries = await self._fetch_models(url, list_field="models", name_field="name")
        models = {
            _bare_name(name): ReportedLimits(
                window=token_count(entry, "inputTokenLimit"), output=token_count(entry, "outputTokenLimit")
            )
            for name, entry in entries.items()
            if "generateContent" in entry.get("supportedGenerationMethods", ["generateContent"])
        }
        return ModelList(address=bare_address(self._base), models=models)

    def _url(self, model: str) -> str:
        return f"{self._base}/v1beta/models/{quote(_bare_name(model), safe='')}:streamGenerateContent?alt=sse"

    def _headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}  # not in the URL, which others log

    def _accumulator(self, request: ChatRequest) -> StreamAccumulator:
        return StreamAccumulator(request.model)

    def _body(self, request: ChatRequest, *, reduced: bool) -> bytes:
        return self._encoder.body(
            request,
            max_tokens=self._settings.max_output_tokens,
            effort=self._effort(request),
            with_thoughts=request.model not in self._without_thoughts,
        )

    def _can_reduce(self, request: ChatRequest, refused: StatusRefused, *, reduced: bool) -> bool:
        """Return True if the model refused a request because it does not think."""
        if request.model in self._without_thoughts or refused.status != 400 or b"think" not in refused.body.lower():
            return False
        self._without_thoughts.add(request.model)
        return True


def _bare_name(model: str) -> str:
    """Return a model's name without the prefix that Google's own lists add."""
    return model.removeprefix("models/")
