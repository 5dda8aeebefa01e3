"""Discord's REST API: requests with their rate limits, and what an error means for the message."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

import aiohttp
import msgspec

from plugins.api.channel import DeliveryUnknown, TryLater, Undeliverable
from plugins.http.connection_pools import certificate_problem, proxy_for, trusted_certificates
from plugins.support.errors import PluginError, SettingsRefused

USER_AGENT = "DiscordBot (https://exuvia.example, 1)"
"""Discord refuses other forms."""

REQUEST_SECONDS = 30.0
"""Seconds that a request may take; one with a file may take `UPLOAD_SECONDS`."""

UPLOAD_SECONDS = 50.0

PATIENCE = 5.0
"""Seconds of a rate limit that are waited for here. For longer ones TryLater is raised."""

CLOUDFLARE_SECONDS = 60.0
"""Seconds to wait after a refusal that does not say how long."""

PER_SECOND = 45
"""Requests in a second, over all routes. Discord allows 50."""

BUCKETS = 1000
"""Rate limits that are remembered."""

MAX_BODY = 64 * 1024 * 1024

_IDS = re.compile(r"/(\d{5,})")

NEVER = frozenset({10003, 10004, 10008, 10013, 20026, 40005})
"""Codes of errors with other statuses than 400 and 403 that every later attempt would meet: what it is for is gone."""

PASSING = frozenset({20016, 20022, 20028, 20029, 40062, 40333, 130000})
"""Codes of errors with the status 400 or 403 that pass: limits, and a load that is too high."""


class Refused(PluginError):
    """The API refused a request, and would again. `code` is Discord's own, 0 if it is a general one."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"Discord answered {status}: {message}" + (f" (code {code})" if code else ""))
        self.status = status
        self.code = code


class InvalidToken(SettingsRefused):
    """Discord does not accept the bot's token."""

    def __init__(self) -> None:
        super().__init__(
            "Discord does not accept the bot's token: in the developer portal (discord.com/developers/applications) open the"
            " application, choose Bot, Reset Token, and put the new one where the channel's token comes from"
        )


class _Limit(msgspec.Struct):
    """A rate limit: how many requests are left until a time on the event loop's clock."""

    left: int
    until: float


class DiscordApi:
    """The REST API. `base_url` ends with the version, as in https://discord.com/api/v10."""

    def __init__(self, base_url: str, token: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._limits: dict[str, _Limit] = {}
        self._everything_waits = 0.0
        self._recent: deque[float] = deque()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        secure = self._base_url.startswith("https:")
        trust = await asyncio.to_thread(trusted_certificates) if secure else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def token(self) -> str:
        return self._token

    async def websocket(self, url: str) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket. Raises `aiohttp.ClientError`, OSError or TimeoutError."""
        assert self._session is not None
        async with asyncio.timeout(REQUEST_SECONDS):
            return await self._session.ws_connect(
                url, max_msg_size=MAX_BODY, autoclose=False, timeout=aiohttp.ClientWSTimeout(ws_close=2.0), proxy=_proxy(url)
            )

    async def get(self, path: str, **query: str) -> Any:
        """Return the JSON of a resource.

        Raises:
            Refused: Discord refused the request.
            InvalidToken: It does not accept the token.
            TryLater: A rate limit asks for a longer pause.
            PluginError: There was no answer.
        """
        return await self._request("GET", path, query=query)

    async def post(self, path: str, payload: dict[str, Any], files: tuple[tuple[str, str, bytes], ...] = ()) -> Any:
        """Post JSON, with files (name, media type, content), and return the JSON of the answer; None if it is empty.

        Raises:
            DeliveryUnknown: The request may have been carried out.
            Refused, InvalidToken, TryLater, PluginError: As `get`.
        """
        return await self._request("POST", path, payload=payload, files=files)

    async def download(self, url: str, limit: int) -> bytes:
        """Return the content of an attachment.

        Raises:
            Refused: Discord no longer has it, or it is larger than `limit` bytes.
            PluginError: It could not be read.
        """
        assert self._session is not None
        content = bytearray()
        try:
            async with self._session.get(
                url, allow_redirects=False, timeout=_total(UPLOAD_SECONDS), proxy=_proxy(url)
            ) as got:
                if got.status >= 500:
                    raise PluginError(f"Discord answered {got.status}")
                if got.status != 200:
                    raise Refused(got.status, 0, "it no longer has the file")
                async for chunk in got.content.iter_any():
                    content += chunk
                    if len(content) > limit:
                        raise Refused(got.status, 0, f"it has more than {limit >> 20} MB")
        except (aiohttp.ClientError, OSError) as error:
            raise _no_answer(error) from error
        return bytes(content)

    # --- one request --------------------------------------------------------------------------------------------------

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        payload: dict[str, Any] | None = None,
        files: tuple[tuple[str, str, bytes], ...] = (),
    ) -> Any:
        """Send a request, and once more after each short rate limit."""
        route = _route(method, path)
        while True:
            await self._wait_for(route)
            status, headers, body = await self._send(method, path, query, payload, files)
            self._note_limit(route, headers)
            if 200 <= status < 300:
                return msgspec.json.decode(body) if body else None
            if status != 429:
                raise self._error(method, status, body)
            wait, everywhere = _requested_wait(headers, body)
            until = asyncio.get_running_loop().time() + wait
            if everywhere:
                self._everything_waits = max(self._everything_waits, until)
            else:
                self._limits[route] = _Limit(0, until)

    async def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None,
        payload: dict[str, Any] | None,
        files: tuple[tuple[str, str, bytes], ...],
    ) -> tuple[int, Any, bytes]:
        assert self._session is not None
        url = self._base_url + path
        headers = {} if _has_own_token(path) else {"Authorization": f"Bot {self._token}"}
        body: Any = None
        if files:
            body = aiohttp.FormData(quote_fields=False)
            body.add_field("payload_json", msgspec.json.encode(payload).decode(), content_type="application/json")
            for number, (name, media, content) in enumerate(files):
                body.add_field(f"files[{number}]", content, filename=name, content_type=media)
        elif payload is not None:
            body = msgspec.json.encode(payload)
            headers["Content-Type"] = "application/json"
        try:
            async with self._session.request(
                method, url, params=query, data=body, headers=headers, allow_redirects=False, proxy=_proxy(url),
                timeout=_total(UPLOAD_SECONDS if files else REQUEST_SECONDS),
            ) as response:  # fmt: skip
                return response.status, response.headers, await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _no_answer(error) from error
        except (aiohttp.ClientError, OSError) as error:
            if method == "POST":
                raise DeliveryUnknown(str(_no_answer(error))) from error
            raise _no_answer(error) from error

    def _error(self, method: str, status: int, body: bytes) -> PluginError:
        told = _code_and_message(body)
        if status == 401:
            return InvalidToken()
        if status < 500 and told is not None:
            return Refused(status, *told)
        sentence = f"Discord answered {status}: {told[1] if told else 'a page that is not the API'}"
        return DeliveryUnknown(sentence) if status >= 500 and method == "POST" else PluginError(sentence)

    # --- rate limits --------------------------------------------------------------------------------------------------

    async def _wait_for(self, route: str) -> None:
        """Wait until the rate limits allow a request, and count it. Raises TryLater if that would take too long."""
        loop = asyncio.get_running_loop()
        while True:
            now, limit = loop.time(), self._limits.get(route)
            wait = self._everything_waits - now
            if limit is not None and limit.left <= 0:
                wait = max(wait, limit.until - now)
            while self._recent and self._recent[0] <= now - 1:
                self._recent.popleft()
            if len(self._recent) >= PER_SECOND:
                wait = max(wait, self._recent[0] + 1 - now)
            if wait <= 0:
                break
            if wait > PATIENCE:
                raise TryLater(wait, "Discord's rate limit asks to wait.")
            await asyncio.sleep(wait)
        self._recent.append(now)
        if limit is not None and limit.until > now:
            limit.left -= 1
        else:
            self._limits.pop(route, None)

    def _note_limit(self, route: str, headers: Any) -> None:
        with suppress(KeyError, ValueError):
            left, after = int(headers["X-RateLimit-Remaining"]), float(headers["X-RateLimit-Reset-After"])
            until = asyncio.get_running_loop().time() + after
            limit = self._limits.pop(route, None)
            if limit is not None and abs(limit.until - until) < 0.5:
                left = min(left, limit.left)  # requests under way are counted here already
            self._limits[route] = _Limit(left, until)
            while len(self._limits) > BUCKETS:
                del self._limits[next(iter(self._limits))]


def undeliverable(error: Refused) -> Undeliverable | None:
    """Return the reason why a message can never be posted, if an error says so."""
    if error.code not in NEVER and (error.status not in (400, 403, 413) or error.code in PASSING):
        return None
    reasons = {
        10003: "the channel no longer exists",
        50001: "the bot cannot see the channel; its role needs View Channel there",
        50007: "the person accepts no direct messages from the bot (their privacy settings), or shares no server with it",
        50013: "the bot may not write in the channel; its role needs Send Messages, Attach Files and Read Message History",
    }
    return Undeliverable(f"Discord refuses the message: {reasons.get(error.code, str(error))}")


def _route(method: str, path: str) -> str:
    """Return the rate limit's key: the route with the first id, such as that of the channel, and without the others."""
    first = True

    def keep_first(found: re.Match[str]) -> str:
        nonlocal first
        kept, first = found[0] if first else "/ID", False
        return kept

    return f"{method} {_IDS.sub(keep_first, path)}"


def _requested_wait(headers: Any, body: bytes) -> tuple[float, bool]:
    """Return the seconds that a 429 asks for, and whether they hold for all routes. A body of Cloudflare is HTML."""
    try:
        told = msgspec.json.decode(body)
        wait, everywhere = float(told["retry_after"]), bool(told.get("global"))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError):
        everywhere = True
        try:
            wait = float(headers.get("Retry-After", ""))
        except ValueError:
            wait = CLOUDFLARE_SECONDS
    return (wait if 0 <= wait < 1e6 else CLOUDFLARE_SECONDS), everywhere or headers.get("X-RateLimit-Scope") == "global"


def _code_and_message(body: bytes) -> tuple[int, str] | None:
    """Return Discord's code and message of an error, with the fields that it names; None for a body that is not the API's,
    such as a page of Cloudflare."""
    try:
        told = msgspec.json.decode(body)
        code, message = int(told["code"]), str(told["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        return None
    details = msgspec.json.encode(told["errors"]).decode()[:200] if told.get("errors") else ""
    return code, f"{message} {details}".strip()


def _has_own_token(path: str) -> bool:
    return path.startswith(("/interactions/", "/webhooks/"))


def _no_answer(error: BaseException) -> PluginError:
    if why := certificate_problem(error):
        return PluginError(f"The certificate of Discord's server is not valid: {why}")
    return PluginError(f"Discord cannot be reached ({type(error).__name__}); the connection to the internet may be down")


def _total(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=10.0)


def _proxy(url: str) -> str | None:
    """Return the proxy for a URL, as the environment's variables say."""
    return proxy_for(urlsplit(f"http{url.removeprefix('ws')}" if url.startswith("ws") else url), getproxies_environment())
