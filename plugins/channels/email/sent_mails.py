"""Mails that the SMTP server has accepted, until they are saved in the folder of sent mails.

A mail is written to a file before it is sent, and the file is renamed as soon as the server has accepted it. So a crash
later neither repeats a mail nor loses its copy; only one between the acceptance and the renaming does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import structlog

from plugins.channels.email.imap_client import ImapConnection, ImapError, quoted
from plugins.support.errors import PluginError

RETRY_SECONDS = 300.0
"""Seconds until the folder is tried again after an error."""

log = structlog.get_logger("exuvia.channels")


class SentMails:
    """The folder of sent mails, and the files of those that are not there yet.

    Args:
        folder: The folder for the files.
        connect: Opens a connection that is logged in.
        name: The folder's name on the server; "" for the one that the server declares.
        save: Save mails there, because the SMTP server does not.
    """

    def __init__(self, folder: Path, connect: Callable[[], Awaitable[ImapConnection]], name: str, *, save: bool) -> None:
        self._files = folder
        self._connect = connect
        self._name = name
        self._save = save
        self._added = asyncio.Event()

    async def open(self) -> None:
        """Remove files of mails that were never accepted; what the others contain is saved by `run`."""
        await asyncio.to_thread(self._clean)
        self._added.set()

    def _clean(self) -> None:
        for file in self._files.glob("*.new"):
            file.unlink()

    async def prepare(self, key: str, content: bytes) -> None:
        """Write the file of a mail that is about to be sent."""
        if self._save:
            await asyncio.to_thread(self._write, key, content)

    def _write(self, key: str, content: bytes) -> None:
        self._files.mkdir(parents=True, exist_ok=True)
        (self._files / f"{key}.new").write_bytes(content)

    def accepted(self, key: str) -> None:
        """Note that a mail was accepted, at once: a thread would leave time for a crash."""
        if self._save:
            with suppress(FileNotFoundError):
                os.replace(self._files / f"{key}.new", self._files / f"{key}.eml")
            self._added.set()

    async def has(self, key: str, message_id: str) -> bool:
        """Return True if a mail was accepted before, as far as can be found out.

        Raises:
            OSError, ImapError: The server cannot be asked.
        """
        if await asyncio.to_thread((self._files / f"{key}.eml").exists):
            return True
        async with await self._connect() as connection:
            name = self._name or await connection.sent_folder()
            return bool(name) and await self._is_there(connection, name, message_id)

    async def _is_there(self, connection: ImapConnection, name: str, message_id: str) -> bool:
        await connection.select(name, read_only=True)
        return bool(await connection.search("HEADER", "Message-ID", quoted(message_id)))

    async def run(self) -> None:
        """Save mails until cancelled."""
        while self._save:
            await self._added.wait()
            self._added.clear()
            try:
                await self._save_all()
            except (OSError, ImapError, PluginError) as error:
                log.warning("sent_mails_not_saved", reason=str(error) or type(error).__name__)
                await asyncio.sleep(RETRY_SECONDS)
                self._added.set()

    async def _save_all(self) -> None:
        files = await asyncio.to_thread(lambda: sorted(self._files.glob("*.eml")))
        if not files:
            return
        async with await self._connect() as connection:
            name = self._name or await connection.sent_folder()
            for file in files:
                content = await asyncio.to_thread(file.read_bytes)
                if not name:
                    log.warning("sent_mail_not_saved", reason="the server declares no folder for sent mails; set sent")
                elif not await self._is_there(connection, name, _message_id(content)):
                    await connection.append(name, content)
                await asyncio.to_thread(file.unlink)


def _message_id(content: bytes) -> str:
    header = content.partition(b"\r\n\r\n")[0]
    (line,) = [line for line in header.split(b"\r\n") if line.lower().startswith(b"message-id:")][:1]
    return line.partition(b":")[2].strip().decode("ascii")
