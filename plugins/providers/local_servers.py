"""Providers for model servers on this machine that need no key, and their discovery.

Only a server that identifies itself is used. Anything else on the same port, such as a proxy to a paid service, gets no
request unless it is configured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits
from plugins.http.client import Timeouts, Transport
from plugins.providers.openai.chat import OpenAI, OpenAISettings
from plugins.providers.openai.models import LLAMA_SERVER, loaded_window
from plugins.support.addresses import WebAddress
from plugins.support.errors import ProviderError, Unreachable
from plugins.support.http_errors import StatusRefused

CONNECT_TIMEOUT = 0.3
"""Seconds within which a server on this machine accepts a connection, or does not run."""

BUSY_STATUS = 503
"""The status of llama-server's responses while it loads a model or has no free slot."""

_LIST_TIMEOUTS = Timeouts(connect=CONNECT_TIMEOUT, first=2.0, between=2.0, whole=4.0, attempts=1)
"""The timeouts of the list of models of a running server."""


async def probe_model_list(
    transport: Transport, base: str, path: str, list_field: str
) -> Sequence[Mapping[str, Any]] | None:
    """Return the entries of the list of models of a server at this address; empty if there is no server or no such list.
    None means that it is too busy to respond, so earlier results still apply."""
    if not await _listens(base):
        return ()
    try:
        found = msgspec.json.decode(await transport.get(f"{base}{path}", headers={}, timeouts=_LIST_TIMEOUTS))
    except StatusRefused as refused:
        return None if refused.status == BUSY_STATUS else ()
    except Unreachable:
        return None
    except (ProviderError, msgspec.MsgspecError, RecursionError, UnicodeError):
        return ()
    entries = found.get(list_field) if isinstance(found, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else ()


async def _listens(base: str) -> bool:
    """Return True if a connection is accepted. The HTTP client is not used: most machines have no such server, and importing
    it takes time."""
    parts = urlsplit(base)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    except (OSError, ValueError):
        return False
    writer.close()
    return True


class LocalServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.llama_server]` and `[providers.lm_studio]`. `base_url` None is the server's default port on this machine.
    `pictures` tells whether the models accept images; None decides by their names."""

    base_url: WebAddress | None = None
    pictures: bool | None = None
    first_seconds: float = 300.0
    between_seconds: float = 60.0
    reply_seconds: float = 1800.0


class LocalServer(OpenAI):
    """A local server with OpenAI's chat completions. It gets no key and nothing from the environment."""

    Settings: ClassVar[type] = LocalServerSettings
    title: ClassVar[str]
    default_url: ClassVar[str]

    def __init__(self, context: ProviderContext) -> None:
        own: LocalServerSettings = context.settings
        self._origin = (own.base_url or self.default_url).strip().rstrip("/").removesuffix("/v1")
        settings = OpenAISettings(
            base_url=f"{self._origin}/v1",
            api="chat",
            pictures=own.pictures,
            first_seconds=own.first_seconds,
            between_seconds=own.between_seconds,
            reply_seconds=own.reply_seconds,
        )
        super().__init__(msgspec.structs.replace(context, settings=settings, environment={}))
        self._model: str | None = None
        self._window: int | None = None

    def default_model(self) -> str | None:
        """Return the discovered model."""
        return self._model

    def explain_default(self) -> str:
        """Return where the server was found, as the end of a sentence."""
        return f"{self.title} runs on {urlsplit(self._origin).netloc}" if self._model else f"no {self.title} was found"

    def limits(self, model: str) -> ModelLimits:
        """Return the limits, with the current window of the discovered model."""
        limits = super().limits(model)
        if model != self._model or self._window is None:
            return limits
        return msgspec.structs.replace(limits, window=self._window, window_from="vendor")


class LlamaServer(LocalServer):
    """A `ChatProvider` for the server of llama.cpp. According to its documentation (`tools/server/README.md`), it lists its
    one model as owned by `llamacpp`."""

    name: ClassVar[str] = "llama_server"
    title: ClassVar[str] = "llama-server"
    default_url: ClassVar[str] = "http://127.0.0.1:8080"

    async def discover_server(self) -> None:
        """Discover the server and its model."""
        entries = await probe_model_list(self._transport, self._origin, "/v1/models", "data")
        if entries is None:
            return
        names = [entry.get("id") for entry in entries if entry.get("owned_by") == LLAMA_SERVER]
        self._model = next((name for name in names if isinstance(name, str) and name), None)
        self._window = await loaded_window(self._transport, self._origin, {}, _LIST_TIMEOUTS) if self._model else None


class LMStudio(LocalServer):
    """A `ChatProvider` for LM Studio. According to the documentation of its REST API, `/api/v0/models` reports the type, the
    state and the window of each model."""

    name: ClassVar[str] = "lm_studio"
    title: ClassVar[str] = "LM Studio"
    default_url: ClassVar[str] = "http://127.0.0.1:1234"

    async def discover_server(self) -> None:
        """Discover the server and its model; a loaded model comes first."""
        entries = await probe_model_list(self._transport, self._origin, "/api/v0/models", "data")
        if entries is None:
            return
        chats = [entry for entry in entries if entry.get("type") in ("llm", "vlm") and isinstance(entry.get("id"), str)]
        chats.sort(key=lambda entry: entry.get("state") != "loaded")
        self._model = chats[0]["id"] if chats else None
        window = chats[0].get("loaded_context_length") if chats else None
        self._window = window if isinstance(window, int) and window > 0 else None
