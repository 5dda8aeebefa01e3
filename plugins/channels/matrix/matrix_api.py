"""The client-server API of Matrix, as far as the channel needs it.

Nothing is retried here: the caller knows what a repetition means. Errors of the server are `MatrixError`, those of the
connection `plugins.support.errors.ProviderError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from plugins.http.client import Timeouts, Transport
from plugins.support.errors import BadAnswer, PluginError
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret, hide

SYNC_SECONDS = 30.0
"""Seconds for which the server may hold a sync request while nothing happens."""

_ONCE = Timeouts(first=30.0, between=30.0, whole=50.0, attempts=1)
_SYNC = Timeouts(first=SYNC_SECONDS + 30.0, between=30.0, whole=300.0, attempts=1)

PAGE = 100
"""Events of a room that are requested at once."""


class MatrixError(PluginError):
    """The homeserver refused a request.

    Attributes:
        status: The HTTP status.
        code: Matrix's error code, such as `M_FORBIDDEN`; "" if the answer is not one of a homeserver.
        content: The JSON of the answer.
        after: The seconds to wait, if the server asks for it.
        token: The access token of the request.
    """

    def __init__(self, status: int, content: Mapping[str, Any], after: float | None, token: str = "") -> None:
        code, message = content.get("errcode"), content.get("error")
        self.status, self.content, self.token = status, content, token
        self.code = code if isinstance(code, str) else ""
        milliseconds = content.get("retry_after_ms")
        self.after = milliseconds / 1000 if isinstance(milliseconds, int | float) and milliseconds >= 0 else after
        said = message if isinstance(message, str) else "no reason given"
        super().__init__(f"The homeserver answered {status} {self.code}: {' '.join(said.split())[:300]}")

    @property
    def is_temporary(self) -> bool:
        """The same request may succeed later."""
        return self.status >= 500 or self.status in (408, 429) or self.code == "M_LIMIT_EXCEEDED"


class MatrixClient:
    """A client of one homeserver. `token` is the access token, "" before the login."""

    def __init__(self, transport: Transport, homeserver: str) -> None:
        self._transport = transport
        self._base = homeserver.rstrip("/")
        self.token = ""

    def log_in(self, token: str, user: str) -> None:
        """Use an access token of a user from now on."""
        hide(Secret(token), source=f"{self._base}:{user}")
        self.token = token

    async def find_server(self) -> None:
        """Follow the delegation of `/.well-known/matrix/client` if the configured address is not the API's own.

        Raises:
            MatrixError, ProviderError: There is no homeserver at this address.
        """
        try:
            await self.request("GET", "/_matrix/client/versions")
        except MatrixError as error:
            try:
                found = await self.request("GET", "/.well-known/matrix/client")
                base = found["m.homeserver"]["base_url"]
            except (MatrixError, KeyError, TypeError):
                raise error from None
            if not isinstance(base, str) or not base.startswith(("https://", "http://")):
                raise
            self._base = base.rstrip("/")
            await self.request("GET", "/_matrix/client/versions")

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        timeouts: Timeouts = _ONCE,
        anonymous: bool = False,
    ) -> dict[str, Any]:
        """Send a request with a JSON body and return the JSON object of the response. `anonymous`: without the token."""
        content = b"" if body is None and method == "GET" else json.dumps(body or {}).encode()
        answer = await self._send(
            method, path, content, media="application/json", query=query or {}, timeouts=timeouts, anonymous=anonymous
        )
        try:
            value = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise BadAnswer("The homeserver answered with something that is not JSON.") from error
        if not isinstance(value, dict):
            raise BadAnswer("The homeserver answered with something that is not a JSON object.")
        return value

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        media: str,
        query: Mapping[str, str],
        timeouts: Timeouts = _ONCE,
        anonymous: bool = False,
    ) -> bytes:
        token = "" if anonymous else self.token
        headers = {"Content-Type": media} | ({"Authorization": f"Bearer {token}"} if token else {})
        url = f"{self._base}{path}{'?' if query else ''}{urlencode(query)}"
        try:
            return await self._transport.send(method, url, headers=headers, body=body, timeouts=timeouts)
        except StatusRefused as error:
            try:
                content = json.loads(error.body)
            except (ValueError, RecursionError):
                content = {}
            raise MatrixError(
                error.status, content if isinstance(content, dict) else {}, error.retry_after, token
            ) from error

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def sync(self, since: str, sync_filter: str, *, wait: bool) -> dict[str, Any]:
        """Return what happened after `since`, waiting up to SYNC_SECONDS for something."""
        query = {"timeout": str(int(SYNC_SECONDS * 1000) if wait else 0), "filter": sync_filter}
        return await self.request(
            "GET", "/_matrix/client/v3/sync", query=query | ({"since": since} if since else {}), timeouts=_SYNC
        )

    async def messages(self, room: str, start: str, end: str, events: str) -> dict[str, Any]:
        """Return a page of a room's events before `start`, the newest first, and not before `end`."""
        query = {"dir": "b", "from": start, "limit": str(PAGE), "filter": events} | ({"to": end} if end else {})
        return await self.request("GET", f"{of_room(room)}/messages", query=query)

    async def event(self, room: str, event: str) -> dict[str, Any]:
        """Return an event of a room."""
        return await self.request("GET", f"{of_room(room)}/event/{quote(event, safe='')}")

    async def download(self, address: str) -> bytes:
        """Return a file by its `mxc://` address.

        Raises:
            MatrixError, ProviderError: It cannot be had; ValueError if the address is not valid.
        """
        server, _, media = address.removeprefix("mxc://").partition("/")
        if not address.startswith("mxc://") or not server or not media or "/" in media:
            raise ValueError(f"{address[:100]!r} is not the address of a file")
        path = f"/download/{quote(server, safe='')}/{quote(media, safe='')}"
        try:
            return await self._send("GET", f"/_matrix/client/v1/media{path}", b"", media="application/json", query={})
        except MatrixError as error:
            if error.status not in (404, 405) or error.code not in ("", "M_UNRECOGNIZED"):
                raise
            return await self._send("GET", f"/_matrix/media/v3{path}", b"", media="application/json", query={})

    # --- sending ------------------------------------------------------------------------------------------------------

    async def upload(self, content: bytes, media: str, name: str) -> str:
        """Upload a file and return its `mxc://` address."""
        query = {"filename": name} if name else {}
        answer = await self._send("POST", "/_matrix/media/v3/upload", content, media=media, query=query)
        address = json.loads(answer).get("content_uri")
        if not isinstance(address, str):
            raise BadAnswer("The homeserver stored a file and did not say where.")
        return address

    async def send(self, room: str, kind: str, transaction: str, content: Mapping[str, Any]) -> str:
        """Send an event and return its id. With the same transaction id the server returns the same event again."""
        path = f"{of_room(room)}/send/{quote(kind, safe='')}/{quote(transaction, safe='')}"
        event = (await self.request("PUT", path, content)).get("event_id")
        if not isinstance(event, str):
            raise BadAnswer("The homeserver accepted a message and did not say which id it has.")
        return event


def of_room(room: str) -> str:
    """Return the path of a room."""
    return f"/_matrix/client/v3/rooms/{quote(room, safe='')}"
