"""Naming the setting that is wrong where a port begins with TLS and the settings say something else, or the reverse.

Such connections end with an error that says nothing, or never: the server waits for the client, which waits for the server.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from plugins.api.channel import TryLater
from plugins.channels.email.email_settings import Server
from plugins.support.errors import SettingsRefused

LOOK_SECONDS = 3.0
"""Seconds that a server has to let us in before its port is looked at. Servers that slow down spam may need longer."""

PROBE_SECONDS = 5.0
"""Maximum seconds of a look at the port."""


@asynccontextmanager
async def naming_wrong_security(key: str, server: Server) -> AsyncIterator[None]:
    """Look at the port of a server if the block fails to log in, or takes long. The block is ended if the setting is wrong.

    Args:
        key: The server's key in the settings, "imap" or "smtp".
        server: The server.

    Raises:
        SettingsRefused: The port begins with TLS and the setting does not, or the reverse. The message says how to fix it.
    """
    found = ""

    async def look() -> None:
        nonlocal found
        await asyncio.sleep(LOOK_SECONDS)
        if found := await _fault(key, server):
            limit.reschedule(asyncio.get_running_loop().time())

    limit = asyncio.timeout(None)
    looking: asyncio.Task[None] | None = None
    try:
        async with limit:
            looking = asyncio.create_task(look())
            yield
    except (OSError, TryLater) as error:
        if found := found or await _fault(key, server):
            raise SettingsRefused(found) from error
        raise
    finally:
        if looking is not None:
            looking.cancel()
            await asyncio.wait([looking])


async def _fault(key: str, server: Server) -> str:
    """Return what is wrong and how to fix it; "" if nothing is known to be."""
    place = f"The port {server.port} of {server.host}"
    if server.security == "tls":
        if await _greets(server):
            return f'{place} does not begin with TLS: set {key}_security = "starttls", or name the port that does.'
    elif await _begins_with_tls(server):
        return f'{place} begins with TLS: set {key}_security = "tls".'
    return ""


async def _greets(server: Server) -> bool:
    """Return True if a server sends its greeting without TLS."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(server.host, server.port)
            try:
                return (await reader.read(4)).startswith((b"* ", b"220"))
            finally:
                writer.transport.abort()
    except OSError:
        return False


async def _begins_with_tls(server: Server) -> bool:
    """Return True if a server completes a TLS handshake. Nothing is sent in it, so that its certificate does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(server.host, server.port, ssl=context)
            writer.transport.abort()
    except OSError:
        return False
    return True
