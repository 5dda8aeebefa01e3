"""The `openai` chat provider: OpenAI over its Responses API, compatible servers over chat completions; transcriptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits, ModelList
from plugins.providers.hosted import openai_errors
from plugins.providers.hosted.hosted_chat import Accumulator, HostedChatProvider, HostedChatSettings
from plugins.providers.hosted.hosted_provider import VendorErrors
from plugins.providers.hosted.images import open_model_vision, openai_vision
from plugins.providers.hosted.keys import ApiKeys, bearer
from plugins.providers.hosted.known_models import bare_address, capped, known_limits, reported_at
from plugins.providers.openai.chat_completions import Encoder, StreamAccumulator
from plugins.providers.openai.models import is_reasoning_model, openai_list
from plugins.support.addresses import WebAddress
from plugins.support.errors import ProviderError, StreamCut
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret, revealed

if TYPE_CHECKING:
    from plugins.api.transcription import Transcript, TranscriptionRequest
    from plugins.providers.openai.responses import ResponsesEncoder

OFFICIAL = "https://api.openai.com/v1"

DEFAULT_MODEL = "gpt-4.1"
"""The model if none is configured, of OpenAI and of each server that lists it."""


class OpenAISettings(HostedChatSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.openai]`. `OPENAI_API_KEY` and `OPENAI_BASE_URL` are used if `api_key` and `base_url` are not set.
    `api` selects the protocol: `auto` is `responses` for OpenAI itself and `chat`, which every compatible server supports,
    for others. `effort` is sent unchanged, to reasoning models. `pictures` tells whether the models accept images; None
    decides by their names. `transcription_url` is the address of another server for transcriptions, which receives only
    `transcription_key`."""

    base_url: WebAddress | None = None
    api: Literal["auto", "responses", "chat"] = "auto"
    default_model: str | None = None
    organization: str | None = None
    project: str | None = None
    headers: dict[str, Secret] = msgspec.field(default_factory=dict)
    effort: str | None = None
    pictures: bool | None = None
    transcription_url: WebAddress | None = None
    transcription_key: tuple[Secret, ...] | None = None


class OpenAI(HostedChatProvider):
    """The `ChatProvider` for OpenAI and servers with its API."""

    name: ClassVar[str] = "openai"
    title: ClassVar[str] = "OpenAI"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    errors: ClassVar[VendorErrors] = openai_errors
    Settings: ClassVar[type] = OpenAISettings

    _settings: OpenAISettings

    def __init__(self, context: ProviderContext) -> None:
        settings: OpenAISettings = context.settings
        configured = (settings.base_url or context.environment.get("OPENAI_BASE_URL", "")).strip()
        base = (configured or OFFICIAL).rstrip("/")
        self._official = is_official(base)
        source = "providers.openai.base_url" if settings.base_url else "OPENAI_BASE_URL"
        super().__init__(context, base, url_source=source, requires_key=self._official)
        self._has_url = bool(configured)
        self._encoder = Encoder()
        self._uses_responses = settings.api == "responses" or (settings.api == "auto" and self._official)
        self._responses_encoder: ResponsesEncoder | None = None
        self._first_listed: str | None = None
        self._audio_keys = self._keys
        if settings.transcription_url is not None:
            now, setting = context.clock.monotonic, "providers.openai.transcription_key"
            self._audio_keys = ApiKeys(settings.transcription_key, setting, {}, "", now)

    def default_model(self) -> str | None:
        """Return the configured model if there is a key or an address; else the default one, or the first in the list of
        another server."""
        if not (self._keys or self._has_url):
            return None
        return self._settings.default_model or self._first_listed or DEFAULT_MODEL

    def explain_default(self) -> str:
        """Return what is set and where the model is from, as the end of a sentence."""
        if self._first_listed and not self._settings.default_model:
            return f"{self._url_source} is set, where it is the first chat model of the list"
        return super().explain_default()

    def limits(self, model: str) -> ModelLimits:
        """Return the limits that the server reported, else those of OpenAI's own models. Whether another server's model
        accepts images is decided by its name."""
        if not self._official or self._settings.pictures is False:
            vision = open_model_vision(model, self._settings.pictures)
        else:
            vision = openai_vision(model)
        known = known_limits(self.name if self._official else None, model.removeprefix("ft:"), self._reported)
        temperature = None if self._official and is_reasoning_model(model) else known.temperature
        capped_limits = capped(known, self._settings.max_output_tokens)
        return msgspec.structs.replace(capped_limits, vision=vision, temperature=temperature)

    async def models(self) -> ModelList:
        """Return the server's list of models."""
        self._check_key()
        found, chats = await openai_list(self._transport, self._base, self._headers(self._keys.current()))
        if not self._official:
            self._reported, self._discovered = reported_at(self._base, found), True
            self._first_listed = None if DEFAULT_MODEL in found.models else next(iter(chats), None)
        return found

    async def discover(self) -> None:
        """Request another server's list of models unless a model is configured."""
        if self._official or not self._has_url or self._settings.default_model or self._discovered:
            return
        with suppress(ProviderError):  # a server without a list gets requests for the default model
            await self.models()

    def transcription_address(self, model: str) -> str:
        """Return the address of the server for recordings; implements `TranscribesAudio`."""
        return bare_address(self._settings.transcription_url or self._base)

    async def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[Delta | Transcript, None]:
        """Send a recording and yield its text; implements `TranscribesAudio.transcribe`."""
        if self._settings.transcription_url is None:
            self._check_key()
        async with aclosing(self._audio_keys.answer(lambda key: self._transcribe(request, key))) as parts:
            async for part in parts:
                yield part

    async def _transcribe(self, request: TranscriptionRequest, key: str) -> AsyncGenerator[Delta | Transcript, None]:
        from plugins.providers.openai import transcriptions  # noqa: PLC0415 - not at the start

        own = self._settings.transcription_url
        url = transcriptions.url_of(own.rstrip("/") if own else self._base, request)
        headers = bearer(key) if own else self._headers(key)
        form = await asyncio.to_thread(transcriptions.form_of, request)
        may_retry = self._audio_keys.retry_policy(self.errors.can_retry, has_fallback=False)
        try:
            if not transcriptions.is_streamed(request):
                sent = self._transport.post(url, headers=headers, body=form, timeouts=self._timeouts, may_retry=may_retry)
                yield await asyncio.to_thread(transcriptions.transcript_of, await sent, request)
                return
            events = self._transport.stream_events(
                url, headers=headers, body=form, timeouts=self._timeouts, may_retry=may_retry
            )
            async with aclosing(events):
                async for event in events:
                    part = transcriptions.part_of(event.data, request, whole=event.event == "body")
                    if part is not None:
                        yield part
                    if part is not None and not isinstance(part, Delta):
                        return
        except StatusRefused as refused:
            after = refused.retry_after
            raise self.errors.error_for(refused.status, refused.body, model=request.model, after=after) from refused
        raise StreamCut("The transcript was interrupted before its end.")

    def _url(self, model: str) -> str:
        return f"{self._base}/{'responses' if self._uses_responses else 'chat/completions'}"

    def _headers(self, key: str) -> dict[str, str]:
        settings = self._settings
        headers = bearer(key)
        if settings.organization:
            headers["OpenAI-Organization"] = settings.organization
        if settings.project:
            headers["OpenAI-Project"] = settings.project
        return headers | revealed(settings.headers)

    def _responses(self) -> ResponsesEncoder:
        """Return the encoder for the Responses API, which is not imported at start."""
        if self._responses_encoder is None:
            from plugins.providers.openai.responses import ResponsesEncoder  # noqa: PLC0415

            self._responses_encoder = ResponsesEncoder()
        return self._responses_encoder

    def _accumulator(self, request: ChatRequest) -> Accumulator:
        if self._uses_responses:
            return self._responses().accumulator(request)
        return StreamAccumulator(request.model)

    def _body(self, request: ChatRequest, *, reduced: bool) -> bytes:
        settings, effort = self._settings, self._effort(request, self._settings.effort)
        if self._uses_responses:
            return self._responses().body(request, max_tokens=settings.max_output_tokens, effort=effort)
        reasons = is_reasoning_model(request.model)
        return self._encoder.body(
            request,
            max_tokens=settings.max_output_tokens,
            max_tokens_key="max_completion_tokens" if self._official else "max_tokens",
            effort=effort if reasons or not self._official else None,
            samples=not (reasons and self._official),
        )

    def _can_reduce(self, request: ChatRequest, refused: StatusRefused, *, reduced: bool) -> bool:
        """Return True if the service refused optional parts that this model or key cannot use, or requires reasoning."""
        if self._uses_responses:
            return self._responses().adapt(request, refused.body)
        return refused.status == HTTPStatus.BAD_REQUEST and self._encoder.adapt(request, refused.body)

    def _reply(self, request: ChatRequest, accumulator: Accumulator) -> Reply:
        reply = accumulator.reply()
        if not self._uses_responses:
            return reply
        return msgspec.structs.replace(reply, compacted=self._responses().is_compacted(request))


def is_official(base: str) -> bool:
    """Return True for an address of OpenAI itself, its regional ones included."""
    try:
        host = urlsplit(base).hostname
    except ValueError:  # the transport reports it
        return False
    return f".{host}".endswith(".api.openai.com")
