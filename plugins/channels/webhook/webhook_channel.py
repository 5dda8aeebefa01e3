"""The channel `webhook`: messages come as signed requests to `POST /hooks/NAME`, and replies are sent as signed requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import ClassVar, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from plugins.api.channel import (
    ChannelInbox,
    DeliveryUnknown,
    HookRequest,
    HookResponse,
    MessageRejected,
    OutboundMessage,
    TryLater,
    Undeliverable,
)
from plugins.api.context import PluginContext
from plugins.api.hookspecs import hookimpl
from plugins.channels.webhook.hook_messages import (
    SIGNATURE,
    TOLERANCE_SECONDS,
    InboundHook,
    encode_reply,
    is_signature,
    is_signed,
    signature_of,
)
from plugins.http.connection_pools import trusted_certificates
from plugins.http.public_addresses import AddressRefused, HostUnknown, resolve_public
from plugins.http.web_client import CheckedResolver
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.http_errors import retry_after
from plugins.support.secrets import Secret

SECRET_CHARS = 24
"""The shortest secret."""

MOST_BYTES = 32 * 1024 * 1024
"""The largest limit of a body that can be configured."""

CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 45.0
"""Seconds for a connection, and for a whole request."""

RETRY_SECONDS = 5.0
"""Seconds before another attempt if the receiver does not say how long to wait."""

ANSWER_BYTES = 64 * 1024
"""Bytes of a response that are read."""

IN_THREAD_BYTES = 256 * 1024
"""Bytes from which a body is verified and decoded in a thread."""

P = ParamSpec("P")
T = TypeVar("T")


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of `[channels.NAME]` with `kind = "webhook"`.

    Attributes:
        secret: The key of the signatures, in both directions, of at least 24 characters.
        url: Where replies are sent.
        private: The URL may be `http`, and its host may be on this machine or in a private network.
        body_bytes: The limit of a request's body.
    """

    secret: Secret | None = None
    url: str | None = None
    private: bool = False
    body_bytes: int = 1024 * 1024


class WebhookChannel:
    """Requests in and out."""

    name: ClassVar[str] = "webhook"
    Settings: ClassVar[type[WebhookSettings]] = WebhookSettings

    def __init__(self, context: PluginContext) -> None:
        self._settings: WebhookSettings = context.settings
        self._name = context.name
        self._clock = context.clock
        self._secret = ""
        self._trust: ssl.SSLContext | bool = True

    async def __aenter__(self) -> Self:
        settings = self._settings
        self._secret = settings.secret.reveal() if settings.secret else ""
        if len(self._secret) < SECRET_CHARS:
            raise SettingsRefused(f"`secret` must have at least {SECRET_CHARS} characters.")
        if not 0 < settings.body_bytes <= MOST_BYTES:
            raise SettingsRefused(f"`body_bytes` must be from 1 to {MOST_BYTES:,}.")
        if settings.url is not None:
            self._check_url(settings.url)
            self._trust = await asyncio.to_thread(trusted_certificates)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def _check_url(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsRefused("`url` must be an address that begins with https://.")
        if parts.scheme == "http" and not self._settings.private:
            raise SettingsRefused("`url` is not encrypted; `private = true` allows http in a network of your own.")

    async def check(self) -> str:
        """Return what is received and sent where."""
        host = urlsplit(self._settings.url or "").hostname
        return f"Receives at /hooks/{self._name}, sends to {host or 'nobody: `url` is not set'}."

    async def run(self, inbox: ChannelInbox) -> None:
        """Wait until cancelled: requests come to `handle`."""
        await asyncio.Event().wait()

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def handle(self, request: HookRequest, inbox: ChannelInbox) -> HookResponse:
        """Verify a request and pass its message on. The status 200 says that it is stored."""
        try:
            hook = await self._verified(request)
            new = await inbox.receive(hook.message())
        except _RequestRefused as error:
            return _refusal(error.status, str(error))
        except MessageRejected as error:
            if error.later:
                return _refusal(503, "The message cannot be stored now.", wait=RETRY_SECONDS)
            if error.full:
                return _refusal(503, str(error), wait=RETRY_SECONDS)
            return _refusal(403, str(error) if error.tell else "The message is not accepted.")
        return HookResponse(body=msgspec.json.encode({"id": hook.id, "new": new}))

    async def _verified(self, request: HookRequest) -> InboundHook:
        """Return what a signed request contains. Nothing is done for one without a signature: its body is not even read."""
        signature = request.headers.get(SIGNATURE, "")
        if not is_signature(signature):
            raise _RequestRefused(401, "The header X-Signature-256 must be sha256= and 64 hexadecimal digits.")
        body = await request.read(self._settings.body_bytes)
        if not await _in_thread_if_large(len(body), is_signed, body, signature.lower(), self._secret):
            raise _RequestRefused(401, "The signature is not that of this body with the secret of this channel.")
        try:
            hook = await _in_thread_if_large(len(body), _decode, body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _RequestRefused(400, f"The body is not valid: {error}.") from error
        if not abs(self._clock.now().timestamp() - hook.timestamp) <= TOLERANCE_SECONDS:  # also for no number at all
            raise _RequestRefused(401, f"timestamp is more than {TOLERANCE_SECONDS:.0f} s off; sign the request again.")
        if not (hook.id and hook.sender and hook.chat):
            raise _RequestRefused(400, "id, sender and chat must not be empty.")
        return hook

    # --- sending ------------------------------------------------------------------------------------------------------

    async def deliver(self, message: OutboundMessage) -> str:
        """Send a reply to `url`.

        Raises:
            Undeliverable: There is no URL, or the receiver refuses the reply (a redirect, or a status of 400 to 499).
            TryLater: The receiver asks to wait.
            DeliveryUnknown: The connection ended without a response.
            PluginError: The receiver cannot be reached, or failed.
        """
        if (url := self._settings.url) is None:
            raise Undeliverable("The channel has no `url` to which replies are sent.")
        body = await asyncio.to_thread(encode_reply, message, self._clock.now().timestamp())
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": message.id,
            "User-Agent": "Exuvia",
            "X-Signature-256": signature_of(body, self._secret),
        }
        connector = aiohttp.TCPConnector(resolver=await self._resolver(url), ssl=self._trust, force_close=True)
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.post(url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                self._check_status(response)
                return _receipt(await response.content.read(ANSWER_BYTES))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise PluginError(f"{urlsplit(url).hostname} cannot be reached ({type(error).__name__}).") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise DeliveryUnknown(f"{urlsplit(url).hostname} did not respond ({type(error).__name__}).") from error

    async def _resolver(self, url: str) -> CheckedResolver | None:
        """Return the resolver for the host of a URL; None if any address is allowed."""
        parts = urlsplit(url)
        if self._settings.private:
            return None
        host = parts.hostname or ""
        try:
            return CheckedResolver(host, await resolve_public(host, parts.port or 443))
        except HostUnknown as error:
            raise PluginError(str(error)) from error
        except AddressRefused as error:
            raise PluginError(f"{error} `private = true` allows it.") from error

    def _check_status(self, response: aiohttp.ClientResponse) -> None:
        """Raise the error for a status that is not one of success."""
        status, host = response.status, response.url.host
        if 200 <= status < 300:
            return
        if status in (408, 409, 425, 429, 503):
            header = response.headers.get("Retry-After")
            asked = retry_after(header, None, self._clock.now().timestamp())
            if asked is not None or status != 503:
                raise TryLater(asked or RETRY_SECONDS, f"{host} asks to wait (status {status}).")
        if status < 500:
            raise Undeliverable(f"{host} refuses it (status {status}).")
        raise PluginError(f"{host} failed (status {status}).")


class _RequestRefused(PluginError):
    """A request is refused with a status; the message says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def _in_thread_if_large(size: int, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    if size < IN_THREAD_BYTES:
        return call(*arguments, **named)
    return await asyncio.to_thread(call, *arguments, **named)


def _decode(body: bytes) -> InboundHook:
    return msgspec.json.decode(body, type=InboundHook)


def _refusal(status: int, sentence: str, *, wait: float = 0.0) -> HookResponse:
    codes = {400: "bad_request", 401: "unauthorized", 403: "forbidden", 503: "busy"}
    body = msgspec.json.encode({"code": codes[status], "message": sentence})
    return HookResponse(status=status, body=body, retry_after=wait)


def _receipt(body: bytes) -> str:
    """Return the id in a response such as `{"id": "m17"}`; "" if it has none."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    named = answer.get("id") if isinstance(answer, dict) else None
    return named if isinstance(named, str) else ""


@hookimpl
def register_channels() -> Sequence[type[WebhookChannel]]:
    """Return the channel."""
    return [WebhookChannel]
