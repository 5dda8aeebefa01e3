"""Requests to Telegram's Bot API, and what its answers mean.

Each request is sent once: whether it may be repeated depends on what may have happened to it, and the error says so.
"""

from __future__ import annotations

import secrets
from typing import Any, NoReturn
from urllib.parse import quote

import msgspec

from plugins.http.client import Timeouts, Transport
from plugins.http.connection_pools import CertificateError
from plugins.support.errors import BadAnswer, PluginError, ProviderError, StreamCut, Unreachable
from plugins.support.http_errors import StatusRefused, error_message
from plugins.support.secrets import Secret

DOWNLOAD_BYTES = 20 * 1024 * 1024
"""Bytes of the largest file that a bot may download."""

UPLOAD_BYTES = 50 * 1024 * 1024
"""Bytes of the largest file that a bot may send."""

PHOTO_BYTES = 10 * 1024 * 1024
"""Bytes of the largest picture that is shown as one; a larger one is sent as a file."""

ONCE = Timeouts(connect=10.0, first=45.0, between=20.0, whole=55.0, attempts=1)
"""The timeouts of a request. An answer must be delivered within a minute."""

DOWNLOAD = Timeouts(connect=10.0, first=20.0, between=20.0, whole=300.0, attempts=1)


class BotApiError(PluginError):
    """Telegram refused a request.

    Attributes:
        status: The error code.
        description: Telegram's reason.
        retry_after: Seconds after which to try again; 0 if it named none.
        migrated_to: The id of the supergroup that the group has become; 0 otherwise.
    """

    def __init__(self, status: int, description: str, *, retry_after: float = 0.0, migrated_to: int = 0) -> None:
        super().__init__(f"Telegram answered {status}: {description}")
        self.status = status
        self.description = description
        self.retry_after = retry_after
        self.migrated_to = migrated_to


class NotSent(PluginError):
    """No connection could be made: the request did not reach Telegram."""


class OutcomeUnknown(PluginError):
    """The request was sent, and there was no answer: Telegram may or may not have done it."""


class Upload(msgspec.Struct, frozen=True):
    """A file to be sent, and the parameter that it belongs to."""

    field: str
    name: str
    media: str
    content: bytes


class _Parameters(msgspec.Struct):
    retry_after: float = 0.0
    migrate_to_chat_id: int = 0


class _Answer(msgspec.Struct):
    ok: bool = False
    result: msgspec.Raw = msgspec.Raw(b"null")
    description: str = ""
    error_code: int = 0
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


class _File(msgspec.Struct):
    file_path: str = ""


class BotApi:
    """The Bot API for one bot. `base_url` is that of the server, without the token."""

    def __init__(self, transport: Transport, base_url: str, token: Secret) -> None:
        self._transport = transport
        self._base_url = base_url.rstrip("/")
        self._token = token

    async def call(
        self, method: str, *, upload: Upload | None = None, timeouts: Timeouts = ONCE, **parameters: Any
    ) -> msgspec.Raw:
        """Call a method once, and return its result as JSON. Parameters that are None are left out.

        Raises:
            BotApiError: Telegram refused it.
            NotSent: It did not reach Telegram.
            OutcomeUnknown: It may have reached Telegram.
        """
        given = {name: value for name, value in parameters.items() if value is not None}
        headers, body = ({}, msgspec.json.encode(given)) if upload is None else _multipart(given, upload)
        try:
            answered = await self._transport.post(
                f"{self._base_url}/bot{self._token.reveal()}/{method}", headers=headers, body=body, timeouts=timeouts
            )
        except ProviderError as error:
            _translate(error)
        return _result(answered)

    async def download(self, file_id: str) -> bytes:
        """Return the content of a file that somebody sent. The errors are those of `call`."""
        found = msgspec.json.decode(await self.call("getFile", file_id=file_id), type=_File)
        address = f"{self._base_url}/file/bot{self._token.reveal()}/{quote(found.file_path)}"
        try:
            return await self._transport.get(address, headers={}, timeouts=DOWNLOAD)
        except ProviderError as error:
            _translate(error)


def _result(body: bytes) -> msgspec.Raw:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise OutcomeUnknown("Telegram's answer is not JSON of the Bot API; check base_url.") from error
    if answer.ok:
        return answer.result
    raise _refused(answer, 400)


def _refused(answer: _Answer, status: int) -> BotApiError:
    return BotApiError(
        answer.error_code or status,
        error_message(answer.description.encode()) if answer.description else "no reason given",
        retry_after=answer.parameters.retry_after,
        migrated_to=answer.parameters.migrate_to_chat_id,
    )


def _translate(error: ProviderError) -> NoReturn:
    """Raise the error of a failed request as one of this module."""
    match error:
        case StatusRefused():
            try:
                refused = _refused(msgspec.json.decode(error.body, type=_Answer), error.status)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                refused = BotApiError(error.status, error_message(error.body), retry_after=error.retry_after or 0.0)
            raise refused from error
        case CertificateError():
            raise NotSent(str(error)) from error
        case Unreachable() if _before_sending(error):
            raise NotSent(str(error)) from error
        case Unreachable() | StreamCut() | BadAnswer():
            raise OutcomeUnknown(str(error)) from error
    raise error


def _before_sending(error: Unreachable) -> bool:
    """Return True if the connection failed before anything was sent."""
    import aiohttp  # noqa: PLC0415 - already imported by the request

    return isinstance(
        error.__cause__, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError
    )


def _multipart(parameters: dict[str, Any], upload: Upload) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a form with a file (RFC 7578)."""
    boundary = f"exuvia-{secrets.token_hex(16)}"
    parts = []
    for name, value in parameters.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode())
    name = "".join(each for each in upload.name.replace('"', "'") if each.isprintable())
    media = upload.media if upload.media.isascii() and upload.media.isprintable() else "application/octet-stream"
    head = f'Content-Disposition: form-data; name="{upload.field}"; filename="{name}"\r\nContent-Type: {media}\r\n\r\n'
    parts += [f"--{boundary}\r\n{head}".encode("utf-8", "replace"), upload.content, f"\r\n--{boundary}--\r\n".encode()]
    return {"Content-Type": f"multipart/form-data; boundary={boundary}"}, b"".join(parts)
