"""Logging in with an access token or a password.

A login with a password makes a device, whose token and id are kept in the channel's folder: one login, however often the
gateway starts. A token that the server ended is replaced by another login, for the same device if the server kept it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from plugins.channels.matrix.matrix_api import MatrixClient, MatrixError
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.secrets import Secret
from plugins.support.state_file import StateFile

ENDED = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"})
"""Error codes of requests without a valid access token."""


class LoginFailed(SettingsRefused):
    """The homeserver does not accept the configured token or password."""


class Login:
    """The account and the device. `user` and `device` are "" before `enter`."""

    def __init__(
        self, client: MatrixClient, file: StateFile, *, user: str, password: Secret | None, token: Secret | None
    ) -> None:
        self._client = client
        self._file = file
        self._name = user
        self._password = password
        self._token = token
        self._renewing = asyncio.Lock()
        self._entered = ""
        self.user = ""
        self.device = ""

    @property
    def password(self) -> str:
        """The password; "" if there is none."""
        return self._password.reveal() if self._password else ""

    async def enter(self) -> None:
        """Log in.

        Raises:
            LoginFailed: The token or the password is wrong.
            MatrixError, ProviderError: The homeserver cannot be reached.
        """
        await self._enter()
        self._entered = self.device

    async def _enter(self) -> None:
        if self._token:
            self._client.log_in(self._token.reveal(), self._name)
            try:
                await self._who()
            except MatrixError as error:
                raise _login_error(error, "token") from error
            return
        kept = await self._file.load()
        if kept.get("name") == self._name and isinstance(token := kept.get("token"), str):
            self._client.log_in(token, self._name)
            try:
                await self._who()
            except MatrixError as error:
                if error.code not in ENDED:
                    raise
                await self._with_password(_device_after(error, str(kept.get("device", ""))))
            return
        await self._with_password("")

    async def renew(self, error: MatrixError) -> bool:
        """Log in again after a request was refused because its token has ended, unless that was done meanwhile.

        Returns:
            False if the device is another one than at the beginning: the server deleted that one.

        Raises:
            LoginFailed: There is no password, or it is wrong.
            MatrixError, ProviderError: The homeserver cannot be reached.
        """
        async with self._renewing:
            if self._client.token == error.token:
                if self._token or not self._password:
                    raise _login_error(error, "token")
                await self._with_password(_device_after(error, self.device))
            return self.device == self._entered

    async def _who(self) -> None:
        answer = await self._client.request("GET", "/_matrix/client/v3/account/whoami")
        self.user, self.device = str(answer.get("user_id", "")), str(answer.get("device_id", ""))

    async def _with_password(self, device: str) -> None:
        request: dict[str, Any] = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": self._name},
            "password": self.password,
            "initial_device_display_name": "Exuvia",
        }
        try:
            answer = await self._client.request(
                "POST", "/_matrix/client/v3/login", request | ({"device_id": device} if device else {}), anonymous=True
            )
        except MatrixError as error:
            raise _login_error(error, "password") from error
        self.user, self.device, token = (str(answer.get(key, "")) for key in ("user_id", "device_id", "access_token"))
        self._client.log_in(token, self._name)
        await self._file.save({"name": self._name, "user": self.user, "device": self.device, "token": token})


def _device_after(error: MatrixError, device: str) -> str:
    """Return the device to log in as after this error: the same one only if the server kept it ("soft logout")."""
    return device if error.content.get("soft_logout") is True else ""


def _login_error(error: MatrixError, key: str) -> PluginError:
    if error.is_temporary:
        return error
    how = (
        "its access token has ended or is not valid; put a new one into `token` of the channel's "
        "table, or use `user` and `password`, with which it is replaced by itself"
        if key == "token"
        else "the user or the password is wrong, or the server does not allow logins with a password (then use `token`)"
    )
    return LoginFailed(f"The homeserver does not let the channel in: {how} ({error}).")
