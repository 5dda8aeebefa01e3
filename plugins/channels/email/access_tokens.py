"""Access tokens of OAuth 2, for logins without a password (XOAUTH2)."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from urllib.parse import urlencode

import msgspec

from plugins.api.context import Clock
from plugins.channels.email.email_settings import OAuthSettings
from plugins.http.client import Transport
from plugins.support.errors import PluginError
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret, hide
from plugins.support.state_file import StateFile

EARLY_SECONDS = 120.0
"""Seconds before its end from which a token is no longer used."""


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

    async def _renew(self) -> None:
        configured = self._settings.refresh_token.reveal()
        kept = await self._state.load()
        refresh_token = kept["refresh_token"] if kept.get("of") == _mark(configured) else configured
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
            raise PluginError(f"The refresh token is refused; obtain a new one: {error}") from error
        except msgspec.MsgspecError as error:
            raise PluginError(f"{self._settings.token_url} answers with something else than a token: {error}") from error
        for each in (answer.access_token, answer.refresh_token):
            hide(Secret(each))
        if answer.refresh_token and answer.refresh_token != refresh_token:
            await self._state.save({"of": _mark(configured), "refresh_token": answer.refresh_token})
        self._token = answer.access_token
        self._valid_until = self._clock.monotonic() + max(answer.expires_in - EARLY_SECONDS, 0.0)


def _mark(secret: str) -> str:
    """Return a text by which a configured token is recognised, from which it cannot be computed."""
    return blake2b(secret.encode(), digest_size=16).hexdigest()
