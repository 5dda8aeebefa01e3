"""The `gemini` chat provider: Google's Gemini API, or a server that speaks like it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import quote

import msgspec

from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits, ModelList, ReportedLimits
from plugins.providers.gemini.errors import meaning, worth_another_attempt
from plugins.providers.gemini.request import Encoder
from plugins.providers.gemini.stream import StreamAccumulator
from plugins.providers.hosted.images import gemini_sight
from plugins.providers.hosted.keys import ApiKeys
from plugins.providers.hosted.model_limits import bare_address, capped, known_limits, told_at
from plugins.support.addresses import WebAddress
from plugins.support.errors import CredentialsRefused, StreamCut
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret

OFFICIAL = "https://generativelanguage.googleapis.com"


class GeminiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.gemini]`. Without a key of its own, `GEMINI_API_KEY` is used. `first_seconds` bounds the time
    until something is said or thought, `between_seconds` each pause after it, `reply_seconds` the whole answer."""

    api_key: tuple[Secret, ...] | None = None
    base_url: WebAddress | None = None
    default_model: str = "gemini-3.8-flash"
    max_output_tokens: int | None = None
    first_seconds: float = 300.0
    between_seconds: float = 60.0
    reply_seconds: float = 1800.0


class Gemini:
    """A `ChatProvider`."""

    name: ClassVar[str] = "gemini"
    Settings: ClassVar[type] = GeminiSettings

    def __init__(self, context: ProviderContext) -> None:
        settings: GeminiSettings = context.settings
        self._settings = settings
        self._transport = context.transport
        setting, now = "providers.gemini.api_key", context.clock.monotonic
        self._keys = ApiKeys(settings.api_key, setting, context.environment, "GEMINI_API_KEY", now)
        named = (settings.base_url or "").strip()
        self._named_url = bool(named)
        self._base = (named or OFFICIAL).rstrip("/")
        self._told = told_at(self._base, context.reported_models)
        self._encoder = Encoder()
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
        """The configured model, once there is a key or an address to ask."""
        return self._settings.default_model if self._keys or self._named_url else None

    def explain_default(self) -> str:
        """Which of the two is there."""
        return f"{self._keys.source if self._keys else 'providers.gemini.base_url'} is set"

    def limits(self, model: str) -> ModelLimits:
        """What the server told, else the limits of Google's own models, by whatever server they answer."""
        known = capped(known_limits(self.name, _plain(model), self._told), self._settings.max_output_tokens)
        return msgspec.structs.replace(known, vision=gemini_sight(model))

    def address(self, model: str) -> str:
        """Return where the server is."""
        return bare_address(self._base)

    async def models(self) -> ModelList:
        """What the server lists, in one page of the largest size, of models that talk."""
        from plugins.providers.hosted.model_listing import listed, tokens  # noqa: PLC0415 - asked seldom

        self._check_key()
        url = f"{self._base}/v1beta/models?pageSize=1000"
        headers = self._headers(self._keys.current())
        entries = await listed(self._transport, url, headers, under="models", named="name", meaning=meaning)
        models = {
            _plain(name): ReportedLimits(window=tokens(entry, "inputTokenLimit"), output=tokens(entry, "outputTokenLimit"))
            for name, entry in entries.items()
            if "generateContent" in entry.get("supportedGenerationMethods", ["generateContent"])
        }
        return ModelList(address=bare_address(self._base), models=models)

    def _check_key(self) -> None:
        if not self._keys and self._base == OFFICIAL:
            raise CredentialsRefused("There is no key for Gemini: set GEMINI_API_KEY or providers.gemini.api_key.")

    def _headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}  # never in the URL, which others log

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Ask, and yield deltas and the reply; see `ChatProvider.stream`."""
        self._check_key()
        async with aclosing(self._keys.answer(lambda key: self._answer(request, key))) as parts:
            async for part in parts:
                yield part

    async def _answer(self, request: ChatRequest, key: str) -> AsyncGenerator[Delta | Reply, None]:
        """Ask with a key."""
        assembly = StreamAccumulator(request.model)
        try:
            events = self._transport.stream_events(
                f"{self._base}/v1beta/models/{quote(_plain(request.model), safe='')}:streamGenerateContent?alt=sse",
                headers=self._headers(key),
                body=self._encoder.body(request, max_tokens=self._settings.max_output_tokens),
                said=lambda: assembly.said,
                timeouts=self._patience,
                may_retry=self._keys.worth(request, worth_another_attempt),
            )
            async with aclosing(events):
                async for event in events:
                    for delta in assembly.take(event.data):
                        yield delta
        except StatusRefused as refused:
            raise meaning(refused.status, refused.body, model=request.model, after=refused.retry_after) from refused
        except StreamCut:
            if not assembly.complete:  # what is cut after the answer's own end is no part of it
                raise
        yield assembly.reply()


def _plain(model: str) -> str:
    """A model's name without the folder that Google's own lists write before it."""
    return model.removeprefix("models/")
