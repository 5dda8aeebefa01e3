"""Access tokens of OAuth 2, for logins without a password (XOAUTH2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from urllib.parse import urlencode

import msgspec

from plugins.api.context import Clock
from plugins.channels.email.email_settings import OAuthSettings
from plugins.http.client import Transport
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret, hide
from plugins.support.state_file import StateFile

EARLY_SECONDS = 120.0
"""Seconds before its end from which a token is no longer used."""

NEW_SECONDS = 60.0
"""Seconds for which a token counts as new: if a server refuses it, it would refuse another one too."""


class _Answer(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: float = 300.0
    refresh_token: str = ""


class AccessTokens:
    """The current access token. A new refresh token, which some servers send with it, is kept in a file.

    Args:
        settings: Where and with what to ask for tokens.
        transport: The HTTP client.
        clock: The clock.
        state: The file.
    """

    def __init__(self, settings: OAuthSettings, transport: Transport, clock: Clock, state: StateFile) -> None:
        self._settings = settings
        self._transport = transport
        self._clock = clock
        self._state = state
        self._asking = asyncio.Lock()
        self._token = ""
        self._obtained = 0.0
        self._valid_until = 0.0

    async def current(self) -> str:
        """Return a valid token.

        Raises:
            PluginError: The server refused it, with how to fix that; or it cannot be reached.
        """
        async with self._asking:
            if not self._token or self._clock.monotonic() >= self._valid_until:
                await self._renew()
            return self._token

    async def instead_of(self, refused: str) -> str:
        """Return another token for one that a server refused before its end; "" if that one is new.

        Raises:
            PluginError: As `current`.
        """
        async with self._asking:
            if self._token == refused:
                if self._clock.monotonic() < self._obtained + NEW_SECONDS:
                    return ""
                await self._renew()
            return self._token

    async def _renew(self) -> None:
        configured = self._settings.refresh_token.reveal()
        kept = await self._state.load()
        refresh_token = kept["refresh_token"] if kept.get("of") == _mark(configured) else configured
        hide(Secret(refresh_token), source=f"{_mark(configured)}:refresh_token")
        form = {"grant_type": "refresh_token", "client_id": self._settings.client_id, "refresh_token": refresh_token}
        if self._settings.client_secret is not None:
            form["client_secret"] = self._settings.client_secret.reveal()
        if self._settings.scope:
            form["scope"] = self._settings.scope
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        try:
            body = await self._transport.send(
                "POST", self._settings.token_url, headers=headers, body=urlencode(form).encode("ascii")
            )
            answer = msgspec.json.decode(body, type=_Answer)
        except StatusRefused as error:
            if error.retryable:
                raise
            raise SettingsRefused(f"The refresh token is refused; obtain a new one: {error}") from error
        except msgspec.MsgspecError as error:
            raise PluginError(f"{self._settings.token_url} answers with something else than a token: {error}") from error
        hide(Secret(answer.access_token), source=f"{_mark(configured)}:access_token")
        hide(Secret(answer.refresh_token), source=f"{_mark(configured)}:refresh_token")
        if answer.refresh_token and answer.refresh_token != refresh_token:
            await self._state.save({"of": _mark(configured), "refresh_token": answer.refresh_token})
        self._token = answer.access_token
        self._obtained = self._clock.monotonic()
        self._valid_until = self._obtained + max(answer.expires_in - EARLY_SECONDS, 0.0)


class Credentials:
    """The login of both servers.

    Args:
        user: The user name.
        password: The password; "" if there are tokens instead.
        tokens: The access tokens; None if there is a password.
    """

    def __init__(self, user: str, password: str, tokens: AccessTokens | None) -> None:
        self.user = user
        self._password = password
        self._tokens = tokens

    async def log_in(
        self,
        with_password: Callable[[str, str], Awaitable[object]],
        with_token: Callable[[str, str], Awaitable[object]],
        refused: type[Exception],
    ) -> None:
        """Log in with the password, or with an access token. One that is refused before its end is replaced once.

        Args:
            with_password: Logs in with a password.
            with_token: Logs in with an access token.
            refused: What both raise if the server refuses the login.

        Raises:
            PluginError: No access token can be had.
        """
        if self._tokens is None:
            await with_password(self.user, self._password)
            return
        token = await self._tokens.current()
        try:
            await with_token(self.user, token)
        except refused:
            if not (another := await self._tokens.instead_of(token)):
                raise
            await with_token(self.user, another)

    @property
    def advice(self) -> str:
        """How to fix a refused login."""
        if self._tokens is None:
            return "Gmail, Fastmail and iCloud need an app password instead of your own one (docs/channels/email.md)."
        return (
            "The access token is new: allow IMAP and SMTP for the account, and obtain a refresh token of this account with"
            " both permissions (docs/channels/email.md)."
        )


def _mark(secret: str) -> str:
    """Return a text by which a configured token is recognised, from which it cannot be computed."""
    return blake2b(secret.encode(), digest_size=16).hexdigest()
