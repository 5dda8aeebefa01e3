"""Submission of mails to the operator's SMTP server.

SMTP has no identifiers for attempts: when the connection is lost after the mail was sent and before the server accepted it,
nobody knows whether it did. The Message-ID is the same at each attempt, and mail servers that discard repetitions show one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from plugins.api.channel import DeliveryUnknown, TryLater, Undeliverable
from plugins.channels.email.access_tokens import Credentials
from plugins.channels.email.email_settings import Server
from plugins.support.errors import PluginError, SettingsRefused

if TYPE_CHECKING:
    from aiosmtplib import SMTP

ATTEMPT_SECONDS = 50.0
"""Seconds for one mail; the gateway allows a minute."""

REPLY_SECONDS = 20.0
"""Seconds in which the server must connect, and answer each command but the last."""

PAUSE = 60.0
"""Seconds until the next attempt after a temporary error; half a minute if the server cannot be reached."""

CHUNK = 128 * 1024


class SmtpLoginRefused(SettingsRefused):
    """The server refused the user name or the password."""


class SmtpSubmission:
    """Sends mails, one connection for each.

    Args:
        library: The module `aiosmtplib`.
        server: The server.
        credentials: The login.
        context: The context for TLS.
        hostname: The name by which this client introduces itself.
    """

    def __init__(
        self, library: Any, server: Server, credentials: Credentials, context: ssl.SSLContext, hostname: str
    ) -> None:
        self._library = library
        self._server = server
        self._credentials = credentials
        self._context = context
        self._hostname = hostname
        self._places = asyncio.Semaphore(4)

    async def check(self) -> None:
        """Log in. Raises SmtpLoginRefused, or TryLater if the server cannot be reached."""
        async with self._connected():
            pass

    async def send(self, sender: str, recipient: str, content: bytes) -> None:
        """Send a mail.

        Raises:
            Undeliverable: The server refused it for good.
            TryLater: The server refused it for now, or cannot be reached.
            DeliveryUnknown: The connection was lost before the server said whether it accepts the mail.
            SmtpLoginRefused: The server refused the login.
        """
        async with self._places:
            sent = False
            try:
                async with asyncio.timeout(ATTEMPT_SECONDS), self._connected() as smtp:
                    await smtp.mail(sender, options=[f"SIZE={len(content)}"] if smtp.supports_extension("size") else [])
                    await smtp.rcpt(recipient)
                    _check_reply(await smtp.execute_command(b"DATA"), 354)
                    sent = True
                    await self._send_content(smtp, content)
            except self._library.SMTPResponseException as error:
                raise refusal(error.code, str(error.message)) from error
            except (OSError, self._library.SMTPException) as error:
                if sent:
                    raise DeliveryUnknown(f"{self._place()} broke off while it received a mail.") from error
                raise TryLater(PAUSE / 2, f"{self._place()} cannot be reached: {_readable(error)}") from error

    async def _send_content(self, smtp: SMTP, content: bytes) -> None:
        """Send a mail after the command DATA, in pieces, so that a large one does not block the event loop."""
        assert isinstance(smtp.transport, asyncio.WriteTransport)
        for begin in range(0, len(content), CHUNK):
            smtp.transport.write(content[begin : begin + CHUNK])
            await asyncio.sleep(0)
        _check_reply(await smtp.execute_command(b".", timeout=ATTEMPT_SECONDS), 250)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[SMTP]:
        """Connect and log in."""
        smtp = self._library.SMTP(
            hostname=self._server.host,
            port=self._server.port,
            use_tls=self._server.security == "tls",
            start_tls=self._server.security == "starttls",
            tls_context=self._context,
            timeout=REPLY_SECONDS,
            local_hostname=self._hostname,
        )
        try:
            try:
                await smtp.connect()
                await self._log_in(smtp)
            except self._library.SMTPResponseException as error:
                raise refusal(error.code, str(error.message)) from error
            except (OSError, self._library.SMTPException) as error:
                raise TryLater(PAUSE / 2, f"{self._place()} cannot be reached: {_readable(error)}") from error
            yield smtp
        finally:
            smtp.close()

    async def _log_in(self, smtp: SMTP) -> None:
        try:
            await self._credentials.log_in(smtp.login, smtp.auth_xoauth2, self._library.SMTPAuthenticationError)
        except self._library.SMTPAuthenticationError as error:
            if error.code < 500:
                raise
            raise SmtpLoginRefused(
                f"{self._place()} refuses the login of {self._credentials.user!r}: {_readable(error.message).rstrip('.')}."
                f" {self._credentials.advice}"
            ) from error

    def _place(self) -> str:
        return f"The SMTP server {self._server.host}:{self._server.port}"


def _check_reply(reply: Any, wanted: int) -> None:
    if reply.code != wanted:
        raise refusal(reply.code, str(reply.message))


def refusal(code: int, message: str) -> PluginError:
    """Return the exception for a reply of an SMTP server."""
    sentence = f"The SMTP server says {code} {_readable(message)}"
    if 500 <= code < 600 and code not in (530, 535):
        return Undeliverable(sentence)
    return TryLater(PAUSE, sentence)


def dot_stuffed(content: bytes) -> bytes:
    """Return a mail as it follows the command DATA, without the final period."""
    stuffed = content.replace(b"\r\n.", b"\r\n..")  # a mail does not begin with a period, but with a field
    return stuffed if stuffed.endswith(b"\r\n") else stuffed + b"\r\n"


def _readable(what: object) -> str:
    shown = "".join(mark if mark.isprintable() else " " for mark in str(what))
    return " ".join(shown.split())[:300] or type(what).__name__
