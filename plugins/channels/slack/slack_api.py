"""Calls of Slack's Web API, and what their errors mean.

Slack's own client is not used. Over Socket Mode it hands each envelope to a task of its own, so that messages of a
conversation may overtake each other; it closes a connection before it opens the one that replaces it; and it wakes up every
five seconds. Without that part there remain a few calls with a form and a token.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from plugins.api.channel import DeliveryUnknown, TryLater
from plugins.http.client import Timeouts, Transport
from plugins.support.errors import PluginError, ProviderError
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret

TIMEOUTS = Timeouts(connect=10.0, first=20.0, between=20.0, whole=40.0, attempts=1)
"""Calls are repeated by their callers, who know whether a repeated one could have an effect twice."""

UNCERTAIN = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable", "team_added_to_org"})
"""Errors after which a call may have had its effect."""

LIMITED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})

SETTINGS_PAGE = "https://api.slack.com/apps"

CREDENTIALS = {
    "account_inactive": "The Slack app was removed from the workspace, or its workspace is gone. Install it again.",
    "invalid_auth": "Slack does not accept the token. Copy it again from the app's settings.",
    "not_allowed_token_type": "`token` must be the bot token (xoxb-…) and `app_token` the app-level token (xapp-…).",
    "not_authed": "Slack received no token. Set `token` and `app_token`.",
    "token_expired": "The token has expired. Turn off token rotation in the app's settings, and copy the new token.",
    "token_revoked": "The token was revoked. Install the app again, and copy the new token.",
}  # fmt: skip
"""Errors that concern all calls with a token, and what to do about them."""


class SlackError(PluginError):
    """Slack refused a call, without any effect.

    Attributes:
        code: Slack's error, such as `channel_not_found`.
    """

    def __init__(self, method: str, code: str, needed: str = "") -> None:
        super().__init__(_sentence(method, code, needed))
        self.code = code


class SlackStatusRefused(DeliveryUnknown):
    """Slack answered with a `status` that is no success, which the Web API does not use to refuse a call."""

    def __init__(self, method: str, status: int) -> None:
        super().__init__(f"Slack answered {method} with the status {status}.")
        self.status = status


class SlackApi:
    """The Web API with a token."""

    def __init__(self, transport: Transport, base_url: str, token: Secret) -> None:
        self._transport = transport
        self._base_url = base_url.rstrip("/")
        self._token = token

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method. Arguments that are None are left out.

        Raises:
            SlackError: Slack refused it.
            TryLater: Slack asks to wait.
            SlackStatusRefused: Slack answered with another status than 200.
            DeliveryUnknown: The call may have had its effect.
        """
        try:
            body = await self._transport.post(
                f"{self._base_url}/{method}",
                headers={
                    "Authorization": f"Bearer {self._token.reveal()}",
                    "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
                },
                body=urlencode({key: _field(value) for key, value in arguments.items() if value is not None}).encode(),
                timeouts=TIMEOUTS,
            )
        except StatusRefused as error:
            if error.status == 429:
                raise TryLater(1.0 if error.retry_after is None else error.retry_after, "Slack asks to wait.") from error
            raise SlackStatusRefused(method, error.status) from error
        except ProviderError as error:
            raise DeliveryUnknown(f"Slack did not answer {method}: {error}") from error
        return _result(method, body)

    async def download(self, url: str) -> bytes:
        """Return a file of the workspace.

        Raises:
            PluginError: The file cannot be read, or it is not on Slack's servers, to which alone the token may be sent.
        """
        if not self._is_slack(url):
            raise PluginError("It is not on Slack's servers.")
        try:
            return await self._transport.get(url, headers={"Authorization": f"Bearer {self._token.reveal()}"})
        except StatusRefused as error:
            if error.status in (302, 401, 403):  # a redirect leads to the page for signing in
                raise SlackError("file", "missing_scope", "files:read") from error
            raise PluginError(f"Slack answered {error.status}.") from error

    async def upload(self, name: str, content: bytes) -> str:
        """Store a file that nobody sees yet, and return its id. The errors are those of `call`."""
        place = await self.call("files.getUploadURLExternal", filename=name, length=len(content))
        try:
            await self._transport.post(
                str(place["upload_url"]),
                headers={"Content-Type": "application/octet-stream"},
                body=content,
                timeouts=TIMEOUTS,
            )
        except ProviderError as error:
            raise PluginError(f"Slack did not take the file: {error}") from error
        return str(place["file_id"])

    def _is_slack(self, url: str) -> bool:
        parts, base = urlsplit(url), urlsplit(self._base_url)
        if (parts.scheme, parts.netloc) == (base.scheme, base.netloc):
            return True
        return parts.scheme == "https" and (parts.hostname or "").endswith((".slack.com", ".slack-files.com"))


def _result(method: str, body: bytes) -> dict[str, Any]:
    try:
        result: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise DeliveryUnknown(f"Slack's answer to {method} is not JSON.") from error
    if not isinstance(result, dict):
        raise DeliveryUnknown(f"Slack's answer to {method} is not an object.")
    if result.get("ok") is True:
        return result
    code = str(result.get("error", "nothing"))[:100]
    if code in LIMITED:
        raise TryLater(30.0, "Slack asks to wait.")
    if code in UNCERTAIN:
        raise DeliveryUnknown(f"Slack failed while it handled {method} ({code}).")
    raise SlackError(method, code, str(result.get("needed", "")))


def _field(value: Any) -> str:
    """Return a value as a field of a form: text as it is, all else as JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return msgspec.json.encode(value).decode()


def _sentence(method: str, code: str, needed: str) -> str:
    if code == "missing_scope":
        return (
            f"The Slack app lacks the scope {needed or 'for ' + method}. Add it at {SETTINGS_PAGE} under"
            " “OAuth & Permissions”, “Bot Token Scopes”, and reinstall the app to the workspace."
        )
    if advice := CREDENTIALS.get(code):
        return f"{advice} ({SETTINGS_PAGE}, {method}: {code})"
    return f"Slack refused {quote(method, safe='.')}: {code}."
