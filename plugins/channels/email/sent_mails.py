"""Mails that the SMTP server has accepted, until they are saved in the folder of sent mails.

A mail is written to a file before it is sent, and the file is renamed as soon as the server has accepted it. So a crash
later neither repeats a mail nor loses its copy; only one between the acceptance and the renaming does. A file that is no
mail is renamed to `KEY.damaged`; it still says that the mail was accepted.
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
from sessions.files.fsync import sync_folder, write_new

RETRY_SECONDS = 300.0
"""Seconds until the folder is tried again after an error."""

DAMAGED = ".damaged"
"""The end of the names of files that are no mails."""

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
        """Write the file of a mail that is about to be sent, durably."""
        if self._save:
            await asyncio.to_thread(self._write, key, content)

    def _write(self, key: str, content: bytes) -> None:
        file = self._files / f"{key}.new"
        file.unlink(missing_ok=True)  # of an earlier attempt
        write_new(file, [content])

    async def accepted(self, key: str) -> None:
        """Note that a mail was accepted, and return once that is durable.

        The file is renamed before anything is awaited: a thread would leave time for a crash. An error is only logged, since
        the mail was sent and must not be repeated.
        """
        if not self._save:
            return
        try:
            with suppress(FileNotFoundError):
                os.replace(self._files / f"{key}.new", self._files / f"{key}.eml")
            self._added.set()
            await asyncio.to_thread(sync_folder, self._files)
        except (OSError, RuntimeError) as error:
            log.warning("sent_mail_not_noted", reason=str(error))

    async def has(self, key: str, message_id: str) -> bool:
        """Return True if a mail was accepted before, as far as can be found out.

        Raises:
            OSError, ImapError: The server cannot be asked.
        """
        if any([await asyncio.to_thread((self._files / f"{key}{end}").exists) for end in (".eml", DAMAGED)]):
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
        failed: OSError | ImapError | None = None
        async with await self._connect() as connection:
            name = self._name or await connection.sent_folder()
            for file in files:
                try:
                    content = await asyncio.to_thread(file.read_bytes)
                    message_id = _message_id(content)
                except OSError as error:  # may pass: it is read again with the next attempt
                    failed = error
                    continue
                except ValueError as error:
                    await asyncio.to_thread(file.rename, file.with_suffix(DAMAGED))
                    log.error("sent_mail_damaged", file=str(file), reason=str(error), moved_to=file.stem + DAMAGED)
                    continue
                if not name:
                    log.warning("sent_mail_not_saved", reason="the server declares no folder for sent mails; set sent")
                else:
                    try:
                        if not await self._is_there(connection, name, message_id):
                            await connection.append(name, content)
                    except ImapError as error:  # perhaps because of this mail: the others follow
                        failed = error
                        continue
                await asyncio.to_thread(file.unlink)
        if failed is not None:
            raise failed


def _message_id(content: bytes) -> str:
    """Return the Message-ID of a mail. Raises ValueError if it has no complete header with one."""
    header, end, _ = content.partition(b"\r\n\r\n")
    for line in header.split(b"\r\n"):
        if end and line.lower().startswith(b"message-id:"):
            return line.partition(b":")[2].strip().decode("ascii")
    raise ValueError("it has no Message-ID")
