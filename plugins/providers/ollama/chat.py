"""The `ollama` chat provider: Ollama's own API, by a server on this machine or elsewhere, or by its cloud."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

import msgspec

from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits, ModelList, ReportedLimits
from plugins.http.client import Transport
from plugins.providers.hosted.images import open_sight
from plugins.providers.hosted.keys import ApiKeys
from plugins.providers.hosted.model_limits import bare_address, capped, known_limits, told_at, told_limits
from plugins.providers.hosted.model_listing import BRIEF, listed, tokens
from plugins.providers.ollama.address import CLOUD, server_address
from plugins.providers.ollama.errors import meaning, worth_another_attempt
from plugins.providers.ollama.protocol import Encoder, StreamAccumulator
from plugins.support.addresses import ServerAddress
from plugins.support.errors import BadAnswer, CredentialsRefused, NoSuchModel, ProviderError
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret

USUAL_MODEL = "llama3.2"
"""What is asked for where a server is named and no model: the one of the vendor's own examples."""

LOCAL_WINDOW = 16_384
"""Tokens that a model on somebody's machine is told to read: its own default, 4096 on most, is filled by a few notes."""

_THINKING: dict[str | None, bool] = {"on": True, "off": False}
"""What is sent for a word of the configuration; the others are the server's too."""


async def ollama_list(transport: Transport, base: str, headers: Mapping[str, str]) -> ModelList:
    """The list of the server at `base`, each model asked for by itself, one after the other: reading its file costs the
    server a moment. Raises a ProviderError."""
    entries = await listed(transport, f"{base}/api/tags", headers, under="models", named="name", meaning=meaning)
    models = {name: await _shown(transport, base, headers, name) for name in entries}
    return ModelList(address=bare_address(base), models=models)


async def _shown(transport: Transport, base: str, headers: Mapping[str, str], name: str) -> ReportedLimits:
    """What the server says of one model; nothing if it does not know it any more, or is too old to say."""
    body = msgspec.json.encode({"model": name})
    try:
        answer = await transport.post(f"{base}/api/show", headers=headers, body=body, timeouts=BRIEF)
    except StatusRefused:
        return ReportedLimits()
    try:
        shown = msgspec.json.decode(answer)
        architecture = shown["model_info"]["general.architecture"]
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadAnswer(f"What the server says of {name} is no answer.") from error
    except (LookupError, TypeError):
        return ReportedLimits()
    return ReportedLimits(window=tokens(shown, "model_info", f"{architecture}.context_length"))


class OllamaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.ollama]`. Without a key or an address of its own, `OLLAMA_API_KEY` and `OLLAMA_HOST` are used.

    A server reads `context_window` tokens and takes the memory for them; without one, 16,384, and in the cloud all that
    the model can. `keep_alive` is how long a model stays loaded, in the server's own words. `first_seconds` bounds the
    time until something is said or thought, which is long while a model is loaded, `between_seconds` each pause after it
    (a call comes only when it is whole), `reply_seconds` the whole answer. `pictures` says whether the models see; None
    goes by their names."""

    api_key: tuple[Secret, ...] | None = None
    base_url: ServerAddress | None = None
    default_model: str | None = None
    context_window: Annotated[int, msgspec.Meta(ge=512)] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    think: Literal["on", "off", "low", "medium", "high"] | None = None
    keep_alive: str | None = None
    pictures: bool | None = None
    headers: dict[str, Secret] = {}
    first_seconds: float = 300.0
    between_seconds: float = 180.0
    reply_seconds: float = 1800.0


class Ollama:
    """A `ChatProvider`."""

    name: ClassVar[str] = "ollama"
    Settings: ClassVar[type] = OllamaSettings

    def __init__(self, context: ProviderContext) -> None:
        settings: OllamaSettings = context.settings
        environment = context.environment
        self._settings = settings
        self._transport = context.transport
        setting, now = "providers.ollama.api_key", context.clock.monotonic
        self._keys = ApiKeys(settings.api_key, setting, environment, "OLLAMA_API_KEY", now)
        named = (settings.base_url or environment.get("OLLAMA_HOST", "")).strip()
        self._url_source = "providers.ollama.base_url" if settings.base_url else "OLLAMA_HOST"
        self._named_url = bool(named)
        self._base = server_address(named)
        self._found: str | None = None
        self._discovered = False
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
        """The configured model; else one of a server that is named or was found; the usual one where a named server has not
        said what it has. Nobody is asked here whether they are there."""
        return self._settings.default_model or self._found or (USUAL_MODEL if self._named_url else None)

    def explain_default(self) -> str:
        """Which of the two was named, or that neither was."""
        if self._named_url:
            return f"{self._url_source} is set"
        if self._settings.default_model:
            return "providers.ollama.default_model is set"
        if self._found:
            return f"Ollama runs on {urlsplit(self._base).netloc}"
        return "neither OLLAMA_HOST nor providers.ollama.default_model is set"

    def limits(self, model: str) -> ModelLimits:
        """The window that is asked for, or a cloud model's own."""
        known = known_limits(self.name, model, self._told)
        if (window := self._asked_window(model)) is not None:
            own = "configuration" if self._settings.context_window else "vendor" if window < LOCAL_WINDOW else "default"
            known = msgspec.structs.replace(known, window=window, window_from=own)
        sight = open_sight(model, self._settings.pictures)
        return msgspec.structs.replace(capped(known, self._settings.max_output_tokens), vision=sight)

    def address(self, model: str) -> str:
        """Return where the server is, or the cloud for one of its models, which a server of this machine only passes on."""
        return f"https://{CLOUD}" if _in_cloud(model) else bare_address(self._base)

    async def discover_server(self) -> None:
        """See which model the named server has, or whether one runs on this machine that nobody named, and which model that
        fetched last. One of the vendor's cloud is passed over: that is another's machine, and perhaps another's bill."""
        if self._settings.default_model:
            return
        if self._named_url:
            await self._look_there()
            return
        from plugins.providers.local_servers import listed_nearby  # noqa: PLC0415 - most people name what they use

        entries = await listed_nearby(self._transport, self._base, "/api/tags", "models")
        if entries is None:
            return
        names = [entry["name"] for entry in entries if isinstance(entry.get("name"), str) and not entry.get("remote_host")]
        self._found = next((name for name in names if not (_in_cloud(name) or "embed" in name)), None)

    async def _look_there(self) -> None:
        from plugins.providers.hosted.model_listing import listed  # noqa: PLC0415 - asked seldom

        if self._discovered:
            return
        url, headers = f"{self._base}/api/tags", self._headers(self._keys.current())
        with suppress(ProviderError):  # one that does not say what it has is asked for the usual model
            names = list(await listed(self._transport, url, headers, under="models", named="name", meaning=meaning))
            self._take_one_of(names)

    def _take_one_of(self, names: Collection[str]) -> None:
        """Take the usual model, or else the first that answers, of those that a named server has."""
        usual = any(name.removesuffix(":latest") == USUAL_MODEL for name in names)
        self._found = USUAL_MODEL if usual else next((name for name in names if self._is_chat(name)), None)
        self._discovered = self._found is not None

    def _is_chat(self, name: str) -> bool:
        """Whether a model answers, by its name, and on the server that was named."""
        return "embed" not in name and (urlsplit(self._base).hostname == CLOUD or not _in_cloud(name))

    async def models(self) -> ModelList:
        """What the server has fetched."""

        self._check_key()
        found = await ollama_list(self._transport, self._base, self._headers(self._keys.current()))
        if self._named_url and not self._settings.default_model:
            self._take_one_of(found.models)
        return found

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Ask, and yield deltas and the reply; see `ChatProvider.stream`."""
        self._check_key()
        try:
            async with aclosing(self._keys.answer(lambda key: self._answer(request, key))) as parts:
                async for part in parts:
                    yield part
        except NoSuchModel:
            self._discovered = False  # another model may be there by now
            raise

    async def _answer(self, request: ChatRequest, key: str) -> AsyncGenerator[Delta | Reply, None]:
        """Ask with a key."""
        settings, window = self._settings, self._asked_window(request.model, request.window)
        assembly = StreamAccumulator(request.model, window)
        try:
            lines = self._transport.stream_lines(
                f"{self._base}/api/chat",
                headers=self._headers(key),
                body=self._encoder.body(
                    request,
                    window=window,
                    max_tokens=settings.max_output_tokens,
                    think=_THINKING.get(settings.think, settings.think),
                    keep_alive=settings.keep_alive,
                ),
                until=lambda: assembly.complete,
                said=lambda: assembly.said,
                timeouts=self._patience,
                may_retry=self._keys.worth(request, worth_another_attempt),
            )
            async with aclosing(lines):
                async for line in lines:
                    for delta in assembly.take(line):
                        yield delta
        except StatusRefused as refused:
            raise meaning(refused.status, refused.body, model=request.model, after=refused.retry_after) from refused
        yield assembly.reply()

    def _asked_window(self, model: str, wanted: int | None = None) -> int | None:
        """The window in tokens that a request asks for: the one that is wanted, or the usual one, or all of a model that can
        less; None in the cloud, where it is the model's own."""
        if urlsplit(self._base).hostname == CLOUD or _in_cloud(model):
            return self._settings.context_window
        usual = min(LOCAL_WINDOW, told_limits(self._told, model).window or LOCAL_WINDOW)
        return wanted or self._settings.context_window or usual

    def _check_key(self) -> None:
        if not self._keys and urlsplit(self._base).hostname == CLOUD:
            raise CredentialsRefused("There is no key for ollama.com: set OLLAMA_API_KEY or providers.ollama.api_key.")

    def _headers(self, key: str) -> dict[str, str]:
        own = {"Authorization": f"Bearer {key}"} if key else {}
        return {**own, **{name: value.reveal() for name, value in self._settings.headers.items()}}


def _in_cloud(model: str) -> bool:
    """Whether a model's tag says that the vendor's cloud answers for it."""
    tag = model.rpartition(":")[2]
    return tag == "cloud" or tag.endswith("-cloud")
