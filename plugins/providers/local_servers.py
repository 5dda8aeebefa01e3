"""Model servers that may run on this machine and need no key: whether one is there, and the providers for two of them.

Only a server that says in its own way what it is counts as found. Whatever else listens on the same port, a proxy to a paid
service perhaps, is not asked anything unless somebody names it.
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

CONNECT = 0.3
"""Seconds within which a server on this machine has taken a connection, or is not there."""

BUSY = 503
"""What llama-server answers to all requests while it loads a model, or has no slot left."""

_LIST = Timeouts(connect=CONNECT, first=2.0, between=2.0, whole=4.0, attempts=1)
"""For its list of models, once it is there."""


async def listed_nearby(transport: Transport, base: str, path: str, under: str) -> Sequence[Mapping[str, Any]] | None:
    """The entries of a list that a server at this address gives; none if there is no server, or it gives no such list. None
    if it is there and too busy to say: what was known of it still counts."""
    if not await _listens(base):
        return ()
    try:
        found = msgspec.json.decode(await transport.get(f"{base}{path}", headers={}, timeouts=_LIST))
    except StatusRefused as refused:
        return None if refused.status == BUSY else ()
    except Unreachable:
        return None
    except (ProviderError, msgspec.MsgspecError, RecursionError, UnicodeError):
        return ()
    entries = found.get(under) if isinstance(found, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else ()


async def _listens(base: str) -> bool:
    """Whether anything takes a connection there. The transport is left out of it: most machines have no server, and it
    would import its client for nothing."""
    parts = urlsplit(base)
    try:
        async with asyncio.timeout(CONNECT):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    except (OSError, ValueError):
        return False
    writer.close()
    return True


class NearbySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.llama_server]` and `[providers.lm_studio]`. `base_url` None is the port of this machine that the server
    uses by itself. `pictures` says whether the models see; None goes by their names."""

    base_url: WebAddress | None = None
    pictures: bool | None = None
    first_seconds: float = 300.0
    between_seconds: float = 60.0
    reply_seconds: float = 1800.0


class _Nearby(OpenAI):
    """A server that speaks OpenAI's chat completions. It is given no key and nothing of the environment."""

    Settings: ClassVar[type] = NearbySettings
    title: ClassVar[str]
    usual: ClassVar[str]

    def __init__(self, context: ProviderContext) -> None:
        own: NearbySettings = context.settings
        self._place = (own.base_url or self.usual).strip().rstrip("/").removesuffix("/v1")
        settings = OpenAISettings(
            base_url=f"{self._place}/v1",
            api="chat",
            pictures=own.pictures,
            first_seconds=own.first_seconds,
            between_seconds=own.between_seconds,
            reply_seconds=own.reply_seconds,
        )
        super().__init__(msgspec.structs.replace(context, settings=settings, environment={}))
        self._found: str | None = None
        self._window: int | None = None

    def default_model(self) -> str | None:
        """The model that was found."""
        return self._found

    def explain_default(self) -> str:
        """Where it was found."""
        return f"{self.title} runs on {urlsplit(self._place).netloc}" if self._found else f"no {self.title} was found"

    def limits(self, model: str) -> ModelLimits:
        """What the server says now of the model that was found, else what it told before."""
        limits = super().limits(model)
        if model != self._found or self._window is None:
            return limits
        return msgspec.structs.replace(limits, window=self._window, window_from="vendor")


class LlamaServer(_Nearby):
    """A `ChatProvider` for the server of llama.cpp, by its documentation (`tools/server/README.md`): it lists its one model
    as owned by `llamacpp`."""

    name: ClassVar[str] = "llama_server"
    title: ClassVar[str] = "llama-server"
    usual: ClassVar[str] = "http://127.0.0.1:8080"

    async def discover_server(self) -> None:
        """See whether it runs."""
        entries = await listed_nearby(self._transport, self._place, "/v1/models", "data")
        if entries is None:
            return
        names = [entry.get("id") for entry in entries if entry.get("owned_by") == LLAMA_SERVER]
        self._found = next((name for name in names if isinstance(name, str) and name), None)
        self._window = await loaded_window(self._transport, self._place, {}, _LIST) if self._found else None


class LMStudio(_Nearby):
    """A `ChatProvider` for LM Studio, by the documentation of its REST API: `/api/v0/models` says of each model its kind,
    whether it is loaded, and how much it takes in."""

    name: ClassVar[str] = "lm_studio"
    title: ClassVar[str] = "LM Studio"
    usual: ClassVar[str] = "http://127.0.0.1:1234"

    async def discover_server(self) -> None:
        """See whether it runs; a model that is loaded is taken before one that would have to be."""
        entries = await listed_nearby(self._transport, self._place, "/api/v0/models", "data")
        if entries is None:
            return
        chats = [entry for entry in entries if entry.get("type") in ("llm", "vlm") and isinstance(entry.get("id"), str)]
        chats.sort(key=lambda entry: entry.get("state") != "loaded")
        self._found = chats[0]["id"] if chats else None
        window = chats[0].get("loaded_context_length") if chats else None
        self._window = window if isinstance(window, int) and window > 0 else None
