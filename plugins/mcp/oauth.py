"""Logins to servers with OAuth: the SDK's client, with what it must remember in a file that only the gateway's user reads.

The SDK forgets at a restart when a token ends and where it is renewed; both are kept here. A gateway never begins a login by
itself: without one, a server that asks for it is not available until `exuvia mcp login`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from plugins.mcp.mcp_settings import ServerKeys
from plugins.support.secrets import Secret, hide
from sessions.files.fsync import replace_file

LOOK_SECONDS = 1.0
"""Seconds between two looks at the file of a login while a server waits for it."""

LOGIN_SECONDS = 600.0
"""Seconds that a person has to log in."""

LARGEST = 256 * 1024
"""The largest file of a login, and the largest request to the local address that a browser is sent back to."""

_PAGE = b"<!doctype html><title>Exuvia</title><p>You can close this window and return to the terminal."


class LoginNeeded(Exception):
    """The server asks for a login; `str(error)` is the end of a sentence."""


class _Login(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The stored login to the server at `url`: the SDK's values as JSON, and the Unix time at which the token expires."""

    url: str
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None
    client: dict[str, Any] | None = None
    authorization_server: str | None = None
    metadata: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None


class OAuthFlow:
    """The login to one server.

    Args:
        name: The server's name in the configuration.
        keys: Its configuration.
        file: The file that keeps the login.
    """

    def __init__(self, name: str, keys: ServerKeys, file: Path) -> None:
        self._name = name
        self._keys = keys
        self._file = file
        self._show: Callable[[str], Awaitable[None]] | None = None
        self._answer: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None
        self._redirect = "http://127.0.0.1/callback"

    @property
    def logged_in(self) -> bool:
        """True if a login is kept. Reads the file."""
        return self.read().tokens is not None

    def interactive(
        self, show: Callable[[str], Awaitable[None]], answer: Callable[[], Awaitable[AuthorizationCodeResult]], redirect: str
    ) -> None:
        """Let a person log in.

        Args:
            show: Shows the address to open.
            answer: Waits for what the browser brings back.
            redirect: The address that the browser is sent back to.
        """
        self._show, self._answer, self._redirect = show, answer, redirect

    def patience(self, seconds: float) -> float:
        """Return the seconds for a connection: more than `seconds` if a person may log in meanwhile."""
        return seconds if self._show is None else LOGIN_SECONDS + seconds

    async def provider(self) -> httpx2.Auth:
        """Return what authenticates requests, from the login that is kept."""
        login = await asyncio.to_thread(self.read)
        if login.tokens is None and self._show is None:
            return _NoLogin(self._name)
        return _StoredOAuth(self, login)

    async def changed(self) -> None:
        """Wait until another process has written the login."""
        before = await asyncio.to_thread(self._stamp)
        while await asyncio.to_thread(self._stamp) == before:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(LOOK_SECONDS)

    def read(self) -> _Login:
        """Return the login that is kept for the configured address; an empty one if there is none. Blocks."""
        url = str(self._keys.url)
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            login = msgspec.json.decode(self._file.read_bytes()[:LARGEST], type=_Login)
            if login.url == url:  # a token is for this address alone
                self.hide_secrets(login)
                return login
        return _Login(url=url)

    def hide_secrets(self, login: _Login) -> None:
        """Record the tokens of a login, and the secret that the server gave the gateway, as secrets."""
        given = {**(login.tokens or {}), **(login.client or {})}
        for name in ("access_token", "refresh_token", "client_secret"):
            hide(Secret(str(given.get(name) or "")), source=f"{self._file}:{name}")

    def write(self, login: _Login) -> None:
        """Keep a login, durably, in a file that only this user can read (0600). Blocks; raises OSError."""
        replace_file(self._file, msgspec.json.format(msgspec.json.encode(login)))

    def forget(self) -> bool:
        """Delete the login; return False if there was none. Blocks."""
        try:
            self._file.unlink()
        except FileNotFoundError:
            return False
        return True

    def metadata(self) -> OAuthClientMetadata:
        """Return what the gateway says about itself when it registers."""
        scopes = " ".join(self._keys.oauth.scopes)
        return OAuthClientMetadata(
            client_name="Exuvia",
            redirect_uris=[AnyUrl(self._redirect)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=scopes or None,
        )

    def client(self, login: _Login) -> OAuthClientInformationFull | None:
        """Return the registered client: the configured one, else the one that is kept."""
        keys = self._keys.oauth
        if keys.client_id is not None:
            secret = None if keys.client_secret is None else keys.client_secret.reveal()
            return OAuthClientInformationFull(
                client_id=keys.client_id,
                client_secret=secret,
                redirect_uris=[AnyUrl(self._redirect)],
                token_endpoint_auth_method="client_secret_basic" if secret else "none",
                issuer=keys.issuer,
            )
        if login.client is None:
            return None
        kept = OAuthClientInformationFull.model_validate(login.client)
        if self._show is not None and self._redirect not in map(str, kept.redirect_uris or ()):
            return None  # it was registered for another address to return to
        return kept

    async def show(self, url: str) -> None:
        """Show a person the address to open. Raises LoginNeeded if nobody is there."""
        if self._show is None:
            raise LoginNeeded(f"it asks for a login again: `/mcp login {self._name}` or `exuvia mcp login {self._name}`")
        await self._show(url)

    async def answer(self) -> AuthorizationCodeResult:
        """Wait until the person has logged in."""
        assert self._answer is not None
        async with asyncio.timeout(LOGIN_SECONDS):
            return await self._answer()

    @property
    def keys(self) -> ServerKeys:
        """The configuration of the server."""
        return self._keys

    def _stamp(self) -> tuple[int, int] | None:
        try:
            stat = os.stat(self._file)
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns


class _NoLogin(httpx2.Auth):
    """Says so where a server asks for a login."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the request as it is."""
        response = yield request
        if response.status_code == 401:
            raise LoginNeeded(f"it asks for a login: `/mcp login {self._name}` or `exuvia mcp login {self._name}`")


class _StoredOAuth(OAuthClientProvider):
    """The SDK's client, which begins with the login that is kept, and keeps each new token."""

    def __init__(self, flow: OAuthFlow, login: _Login) -> None:
        super().__init__(
            login.url,
            flow.metadata(),
            self,
            redirect_handler=flow.show,
            callback_handler=flow.answer,
            client_metadata_url=flow.keys.oauth.client_metadata_url,
        )
        self._flow = flow
        self._login = login

    async def _initialize(self) -> None:
        await super()._initialize()
        login, context = self._login, self.context
        context.token_expiry_time = login.expires_at
        if login.metadata is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(login.metadata)
        if login.resource is not None:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(login.resource)
        context.auth_server_url = login.authorization_server

    # --- the SDK's storage --------------------------------------------------------------------------------------------

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens."""
        return None if self._login.tokens is None else OAuthToken.model_validate(self._login.tokens)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens, and where they are renewed."""
        context, login = self.context, self._login
        login.tokens = tokens.model_dump(mode="json", exclude_none=True)
        login.expires_at = context.token_expiry_time
        login.authorization_server = context.auth_server_url
        login.metadata = _dumped(context.oauth_metadata)
        login.resource = _dumped(context.protected_resource_metadata)
        self._flow.hide_secrets(login)
        await asyncio.to_thread(self._flow.write, login)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registered client."""
        return self._flow.client(self._login)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the registered client with the next tokens."""
        self._login.client = client_info.model_dump(mode="json", exclude_none=True)
        self._flow.hide_secrets(self._login)


def _dumped(value: Any) -> dict[str, Any] | None:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)


# --- the browser's way back -------------------------------------------------------------------------------------------


def authorization_result(url: str) -> AuthorizationCodeResult:
    """Return what the authorization server put into the address that it sent the browser back to.

    Raises:
        LoginNeeded: It refused, or the address has no code.
    """
    query = parse_qs(urlsplit(url).query)
    first = {name: values[0] for name, values in query.items()}
    if "code" not in first:
        why = first.get("error_description") or first.get("error") or "there is no code"
        raise LoginNeeded(f"the login was refused: {why}")
    return AuthorizationCodeResult(code=first["code"], state=first.get("state"), iss=first.get("iss"))


@contextlib.asynccontextmanager
async def callback_listener() -> AsyncIterator[tuple[str, Callable[[], Awaitable[AuthorizationCodeResult]]]]:
    """Listen on this machine for the browser; provide the address to return to, and a function that waits for it."""
    arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            target = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode("ascii", errors="replace")
            known = urlsplit(target).path == "/callback"
            if known and not arrived.done():
                arrived.set_result(target)
            status = b"200 OK" if known else b"404 Not Found"
            head = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            writer.write(head % (status, len(_PAGE)) + _PAGE)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=LARGEST)

    async def answer() -> AuthorizationCodeResult:
        return authorization_result(await arrived)

    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback", answer
