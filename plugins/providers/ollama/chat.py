"""The `ollama` chat provider: Ollama's own API, of a server on this machine, elsewhere, or its cloud."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from plugins.api.chat import ChatRequest
from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits, ModelList, ReportedLimits
from plugins.http.client import Transport
from plugins.providers.hosted.hosted_chat import HostedChatProvider, HostedChatSettings
from plugins.providers.hosted.hosted_provider import VendorErrors
from plugins.providers.hosted.images import open_model_vision
from plugins.providers.hosted.keys import bearer
from plugins.providers.hosted.known_models import bare_address, capped, known_limits, reported_limits
from plugins.providers.hosted.model_listing import LIST_TIMEOUTS, fetch_model_list, token_count
from plugins.providers.ollama import errors as ollama_errors
from plugins.providers.ollama.address import CLOUD, server_address
from plugins.providers.ollama.protocol import Encoder, StreamAccumulator
from plugins.support.addresses import ServerAddress
from plugins.support.errors import BadAnswer, ProviderError
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret, revealed

DEFAULT_MODEL = "llama3.2"
"""The model of a configured server without a configured model: that of the vendor's own examples."""

LOCAL_WINDOW = 16_384
"""The default `num_ctx` in tokens outside the cloud. Ollama's own default, mostly 4096, is filled by a few notes."""

_THINKING: dict[str | None, bool] = {"on": True, "off": False}
"""The values of `think` that are not sent as they are configured."""


async def ollama_list(transport: Transport, base: str, headers: Mapping[str, str]) -> ModelList:
    """Return the models of the server at `base` with their windows. They are requested one after the other, because
    reading a model's file costs the server time. Raises a ProviderError."""
    names = await _list_names(transport, base, headers)
    models = {name: await _model_limits(transport, base, headers, name) for name in names}
    return ModelList(address=bare_address(base), models=models)


async def _list_names(transport: Transport, base: str, headers: Mapping[str, str]) -> Collection[str]:
    error_for = ollama_errors.error_for
    url = f"{base}/api/tags"
    return await fetch_model_list(transport, url, headers, list_field="models", name_field="name", error_for=error_for)


async def _model_limits(transport: Transport, base: str, headers: Mapping[str, str], name: str) -> ReportedLimits:
    """Return a model's window; nothing if the server no longer has the model or is too old to report it."""
    body = msgspec.json.encode({"model": name})
    try:
        answer = await transport.post(f"{base}/api/show", headers=headers, body=body, timeouts=LIST_TIMEOUTS)
    except StatusRefused:
        return ReportedLimits()
    try:
        details = msgspec.json.decode(answer)
        architecture = details["model_info"]["general.architecture"]
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadAnswer(f"The server's description of {name} is not valid JSON.") from error
    except (LookupError, TypeError):
        return ReportedLimits()
    return ReportedLimits(window=token_count(details, "model_info", f"{architecture}.context_length"))


class OllamaSettings(HostedChatSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.ollama]`. `OLLAMA_API_KEY` and `OLLAMA_HOST` are used if `api_key` and `base_url` are not set.

    The server allocates memory for `context_window` tokens; the default is 16,384, and in the cloud the model's own window.
    `keep_alive` is how long a model stays loaded, in the server's notation. The default `first_seconds` leaves time to load
    a model, the default `between_seconds` time for a tool call, which arrives only when it is complete. `pictures` tells
    whether the models accept images; None decides by their names."""

    base_url: ServerAddress | None = None
    default_model: str | None = None
    context_window: Annotated[int, msgspec.Meta(ge=512)] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    think: Literal["on", "off", "low", "medium", "high"] | None = None
    keep_alive: str | None = None
    pictures: bool | None = None
    headers: dict[str, Secret] = msgspec.field(default_factory=dict)
    between_seconds: float = 180.0


class Ollama(HostedChatProvider):
    """The `ChatProvider` for Ollama."""

    name: ClassVar[str] = "ollama"
    title: ClassVar[str] = CLOUD
    key_variable: ClassVar[str] = "OLLAMA_API_KEY"
    errors: ClassVar[VendorErrors] = ollama_errors
    streams_lines: ClassVar[bool] = True
    Settings: ClassVar[type] = OllamaSettings

    _settings: OllamaSettings

    def __init__(self, context: ProviderContext) -> None:
        settings: OllamaSettings = context.settings
        configured = (settings.base_url or context.environment.get("OLLAMA_HOST", "")).strip()
        base = server_address(configured)
        self._is_cloud = urlsplit(base).hostname == CLOUD
        source = "providers.ollama.base_url" if settings.base_url else "OLLAMA_HOST"
        super().__init__(context, base, url_source=source, requires_key=self._is_cloud)
        self._has_url = bool(configured)
        self._listed: str | None = None
        self._encoder = Encoder()

    def default_model(self) -> str | None:
        """Return the configured model; else one that a configured or discovered server has listed; else the default one if
        a server is configured. Sends no request."""
        return self._settings.default_model or self._listed or (DEFAULT_MODEL if self._has_url else None)

    def explain_default(self) -> str:
        """Return what is set or was found, or that nothing is, as the end of a sentence."""
        if self._has_url:
            return f"{self._url_source} is set"
        if self._settings.default_model:
            return "providers.ollama.default_model is set"
        if self._listed:
            return f"Ollama runs on {urlsplit(self._base).netloc}"
        return "neither OLLAMA_HOST nor providers.ollama.default_model is set"

    def limits(self, model: str) -> ModelLimits:
        """Return the window that requests ask for, or a cloud model's own."""
        known = known_limits(self.name, model, self._reported)
        if (window := self._requested_window(model)) is not None:
            source = "configuration" if self._settings.context_window else "vendor" if window < LOCAL_WINDOW else "default"
            known = msgspec.structs.replace(known, window=window, window_from=source)
        vision = open_model_vision(model, self._settings.pictures)
        return msgspec.structs.replace(capped(known, self._settings.max_output_tokens), vision=vision)

    def address(self, model: str) -> str:
        """Return the server's address, or the cloud's for its models, which a local server only forwards to."""
        return f"https://{CLOUD}" if _is_cloud_model(model) else super().address(model)

    async def discover_server(self) -> None:
        """Find the model of the configured server, or else a server on this machine and the model that it fetched last.
        Models of the vendor's cloud are skipped: they run on another machine and may cost money."""
        if self._settings.default_model:
            return
        if self._has_url:
            if not self._discovered:
                with suppress(ProviderError):  # a server without a list gets requests for the default model
                    self._choose(await _list_names(self._transport, self._base, self._headers(self._keys.current())))
            return
        from plugins.providers.local_servers import probe_model_list  # noqa: PLC0415 - only without a configured server

        entries = await probe_model_list(self._transport, self._base, "/api/tags", "models")
        if entries is None:
            return
        names = [entry["name"] for entry in entries if isinstance(entry.get("name"), str) and not entry.get("remote_host")]
        self._listed = next((name for name in names if not (_is_cloud_model(name) or "embed" in name)), None)

    def _choose(self, names: Collection[str]) -> None:
        """Choose the default model, or else the first chat model, of those that the configured server has."""
        has_default = any(name.removesuffix(":latest") == DEFAULT_MODEL for name in names)
        self._listed = DEFAULT_MODEL if has_default else next((name for name in names if self._is_chat(name)), None)
        self._discovered = self._listed is not None

    def _is_chat(self, name: str) -> bool:
        return "embed" not in name and (self._is_cloud or not _is_cloud_model(name))

    async def models(self) -> ModelList:
        """Return the models that the server has fetched."""
        self._check_key()
        found = await ollama_list(self._transport, self._base, self._headers(self._keys.current()))
        if self._has_url and not self._settings.default_model:
            self._choose(found.models)
        return found

    def _requested_window(self, model: str, wanted: int | None = None) -> int | None:
        """Return the window in tokens that a request asks for: the wanted or configured one, or the default, or that of a
        model with less; None in the cloud, where the model's own applies."""
        if self._is_cloud or _is_cloud_model(model):
            return self._settings.context_window
        default = min(LOCAL_WINDOW, reported_limits(self._reported, model).window or LOCAL_WINDOW)
        return wanted or self._settings.context_window or default

    def _url(self, model: str) -> str:
        return f"{self._base}/api/chat"

    def _headers(self, key: str) -> dict[str, str]:
        return bearer(key) | revealed(self._settings.headers)

    def _accumulator(self, request: ChatRequest) -> StreamAccumulator:
        return StreamAccumulator(request.model, self._requested_window(request.model, request.window))

    def _body(self, request: ChatRequest, *, reduced: bool) -> bytes:
        settings = self._settings
        think = self._effort(request, settings.think)
        return self._encoder.body(
            request,
            window=self._requested_window(request.model, request.window),
            max_tokens=settings.max_output_tokens,
            think=_THINKING.get(think, think),
            keep_alive=settings.keep_alive,
        )


def _is_cloud_model(model: str) -> bool:
    """Return True if a model's tag is one of the vendor's cloud."""
    tag = model.rpartition(":")[2]
    return tag == "cloud" or tag.endswith("-cloud")
