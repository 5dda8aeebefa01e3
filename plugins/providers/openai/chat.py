"""The `openai` chat provider: OpenAI over its Responses API, and any server that speaks its chat completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Literal, Self
from urllib.parse import urlsplit

import msgspec

from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits, ModelList
from plugins.providers.hosted.images import open_sight, openai_sight
from plugins.providers.hosted.keys import ApiKeys
from plugins.providers.hosted.model_limits import bare_address, capped, known_limits, told_at
from plugins.providers.hosted.openai_errors import meaning, worth_another_attempt
from plugins.providers.openai.chat_completions import Encoder, StreamAccumulator
from plugins.providers.openai.models import reasons
from plugins.support.addresses import WebAddress
from plugins.support.errors import CredentialsRefused, NoSuchModel, ProviderError, StreamCut
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret

if TYPE_CHECKING:
    from plugins.providers.openai.responses import Responses

OFFICIAL = "https://api.openai.com/v1"

USUAL_MODEL = "gpt-4.1"
"""What is asked for where the configuration names no model, of OpenAI and of each server that lists it."""


class OpenAISettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.openai]`. Without a key or an address of its own, `OPENAI_API_KEY` and `OPENAI_BASE_URL` are used.
    `api` is how the server is spoken to: `auto` means `responses` with OpenAI itself, and elsewhere `chat`, which every
    compatible server understands. `effort` is sent as it is, to models that reason. `first_seconds` bounds the time until
    something is said or thought, `between_seconds` each pause after it, `reply_seconds` the whole answer. `pictures` says
    whether the models see; None goes by their names."""

    api_key: tuple[Secret, ...] | None = None
    base_url: WebAddress | None = None
    api: Literal["auto", "responses", "chat"] = "auto"
    default_model: str | None = None
    organization: str | None = None
    project: str | None = None
    headers: dict[str, Secret] = {}
    max_output_tokens: int | None = None
    effort: str | None = None
    pictures: bool | None = None
    first_seconds: float = 300.0
    between_seconds: float = 60.0
    reply_seconds: float = 1800.0


class OpenAI:
    """A `ChatProvider`."""

    name: ClassVar[str] = "openai"
    Settings: ClassVar[type] = OpenAISettings

    def __init__(self, context: ProviderContext) -> None:
        settings: OpenAISettings = context.settings
        environment = context.environment
        self._settings = settings
        self._transport = context.transport
        setting, now = "providers.openai.api_key", context.clock.monotonic
        self._keys = ApiKeys(settings.api_key, setting, environment, "OPENAI_API_KEY", now)
        named = (settings.base_url or environment.get("OPENAI_BASE_URL", "")).strip()
        self._url_source = "providers.openai.base_url" if settings.base_url else "OPENAI_BASE_URL"
        self._named_url = bool(named)
        self._base = (named or OFFICIAL).rstrip("/")
        self._official = is_official(self._base)
        self._told = told_at(self._base, context.reported_models)
        self._encoder = Encoder()
        self._patience = msgspec.structs.replace(
            context.transport.timeouts,
            first=settings.first_seconds,
            between=settings.between_seconds,
            whole=settings.reply_seconds,
            section=f"providers.{self.name}",
        )
        self._speaks_responses = settings.api == "responses" or (settings.api == "auto" and self._official)
        self._responses: Responses | None = None
        self._first: str | None = None
        self._discovered = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def default_model(self) -> str | None:
        """The configured model, once there is a key or an address to ask; else the usual one, or the first that another
        server was found to have."""
        if not (self._keys or self._named_url):
            return None
        return self._settings.default_model or self._first or USUAL_MODEL

    def explain_default(self) -> str:
        """Which of the two is there, and where the model is from."""
        if self._first and not self._settings.default_model:
            return f"{self._url_source} is set, where it is the first chat model of the list"
        return f"{self._keys.source if self._keys else self._url_source} is set"

    def limits(self, model: str) -> ModelLimits:
        """How much a model takes in and says: what its server told, else what is known of OpenAI's own models; and what it
        sees, which of another server's models only the names tell."""
        if not self._official or self._settings.pictures is False:
            sight = open_sight(model, self._settings.pictures)
        else:
            sight = openai_sight(model)
        known = known_limits(self.name if self._official else None, model.removeprefix("ft:"), self._told)
        return msgspec.structs.replace(capped(known, self._settings.max_output_tokens), vision=sight)

    def address(self, model: str) -> str:
        """Return where the server is."""
        return bare_address(self._base)

    async def models(self) -> ModelList:
        """What the server lists."""
        from plugins.providers.openai.models import openai_list  # noqa: PLC0415 - asked seldom

        self._check_key()
        found, chats = await openai_list(self._transport, self._base, self._headers(self._keys.current()))
        if not self._official:
            self._told, self._discovered = told_at(self._base, found), True
            self._first = None if USUAL_MODEL in found.models else next(iter(chats), None)
        return found

    async def discover(self) -> None:
        """Ask another server than OpenAI's which models it has, if nothing says yet which one is meant."""
        if self._official or not self._named_url or self._settings.default_model or self._discovered:
            return
        with suppress(ProviderError):  # a server that lists none is asked for the usual model
            await self.models()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Ask, and yield deltas and the reply; see `ChatProvider.stream`."""
        self._check_key()
        try:
            async with aclosing(self._keys.answer(lambda key: self._spoken(request, key))) as parts:
                async for part in parts:
                    yield part
        except NoSuchModel:
            self._discovered = False  # another model may be served there by now
            raise

    def _spoken(self, request: ChatRequest, key: str) -> AsyncGenerator[Delta | Reply, None]:
        """Ask with a key, in the tongue that the server speaks."""
        if self._speaks_responses:
            worth = self._keys.worth(request, worth_another_attempt)
            return self._second_tongue().stream(request, self._headers(key), worth)
        return self._completions(request, key)

    def _second_tongue(self) -> Responses:
        """The server's Responses API. What it needs is imported when it is first spoken: start-up has no use for it."""
        if self._responses is None:
            from plugins.providers.openai.responses import Responses  # noqa: PLC0415

            limits = self._settings.max_output_tokens, self._settings.effort
            self._responses = Responses(self._transport, self._base, self._patience, *limits)
        return self._responses

    def _check_key(self) -> None:
        if not self._keys and self._official:
            raise CredentialsRefused("There is no key for OpenAI: set OPENAI_API_KEY or providers.openai.api_key.")

    async def _completions(self, request: ChatRequest, key: str) -> AsyncGenerator[Delta | Reply, None]:
        """Ask over chat completions."""
        assembly = StreamAccumulator(request.model)
        body = self._encoder.body(
            request,
            max_tokens=self._settings.max_output_tokens,
            max_tokens_key="max_completion_tokens" if self._official else "max_tokens",
            effort=self._settings.effort if reasons(request.model) or not self._official else None,
        )
        try:
            events = self._transport.stream_events(
                f"{self._base}/chat/completions",
                headers=self._headers(key),
                body=body,
                timeouts=self._patience,
                until=lambda: assembly.done,
                said=lambda: assembly.said,
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

    def _headers(self, key: str) -> dict[str, str]:
        settings = self._settings
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if settings.organization:
            headers["OpenAI-Organization"] = settings.organization
        if settings.project:
            headers["OpenAI-Project"] = settings.project
        return {**headers, **{name: value.reveal() for name, value in settings.headers.items()}}


def is_official(base: str) -> bool:
    """Whether an address is one of OpenAI's own, those of its regions among them."""
    try:
        host = urlsplit(base).hostname
    except ValueError:  # the transport refuses it with a sentence
        return False
    return f".{host}".endswith(".api.openai.com")
