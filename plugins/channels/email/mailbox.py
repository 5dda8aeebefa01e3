"""Following a folder: each mail is handled once, in the order of arrival, whatever happens to the connection or the process.

How far we are is our own note, not a flag of the server: a person may read the same folder, and flags say nothing about us.
The note is `UIDVALIDITY` and the highest UID that was handled, saved after the mail was. Only then is it marked as read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

import structlog

from plugins.api.context import Clock
from plugins.channels.email.imap_client import Fetched, Folder, ImapConnection, ImapError, ImapLoginRefused
from plugins.support.errors import PluginError
from plugins.support.state_file import StateFile

RENEW_SECONDS = 1500.0
"""Seconds after which IDLE is begun anew: a server may end it after 30 minutes."""

PAUSES = (1.0, 5.0, 30.0, 60.0)
"""Seconds before the attempts to connect again."""

BUSY_SECONDS = 5.0
"""Seconds until mails that the gateway could not accept yet are tried again."""

WAITING = 1000
"""Maximum mails that wait for the gateway; further ones are not looked at meanwhile."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

log = structlog.get_logger("exuvia.channels")


class Handled(Enum):
    """What became of a mail."""

    ACCEPTED = "accepted"
    IGNORED = "ignored"
    LATER = "later"


class MailHandler(Protocol):
    """Decides what becomes of a mail."""

    async def __call__(self, connection: ImapConnection, header: Fetched) -> Handled:
        """Handle a mail.

        Args:
            connection: Where its text can be fetched.
            header: Its header.
        """
        ...


class Mailbox:
    """A folder, and how far it was handled.

    Args:
        connect: Opens a connection that is logged in.
        folder: The folder's name.
        state: The file for the note.
        clock: The clock.
        poll_seconds: Seconds between two looks, if the server has no IDLE.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[ImapConnection]],
        folder: str,
        state: StateFile,
        clock: Clock,
        poll_seconds: float,
    ) -> None:
        self._connect = connect
        self._folder = folder
        self._state = state
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._validity = 0
        self._uid = 0
        self._since = ""
        self._waiting: set[int] = set()
        self.caught_up = False

    async def open(self) -> tuple[ImapConnection, Folder]:
        """Connect and open the folder.

        Raises:
            PluginError: The login is refused, or there is no such folder.
            OSError, ImapError: The server cannot be used now.
        """
        connection = await self._connect()
        try:
            return connection, await connection.select(self._folder)
        except ImapError as error:
            connection.close()
            raise PluginError(f"The folder {self._folder!r} cannot be opened: {error}") from error
        except BaseException:
            connection.close()
            raise

    async def follow(
        self, first: tuple[ImapConnection, Folder] | None, handle: MailHandler, report: Callable[[str], None]
    ) -> None:
        """Handle all mails until cancelled, and connect again whenever the connection is lost.

        Args:
            first: An open connection to begin with.
            handle: Called with each new mail.
            report: Called with what is wrong with the connection, and with "" when it is there again.

        Raises:
            PluginError: The login is refused, or the folder is gone.
        """
        failures = 0
        while True:
            try:
                connection, folder = first or await self.open()
                first = None
                try:
                    if failures:
                        report("")
                    failures = 0
                    await self._follow(connection, folder, handle)
                finally:
                    connection.close()
            except ImapLoginRefused:
                raise
            except (OSError, ImapError) as error:
                report(f"The IMAP server is not reachable and will be tried again: {str(error) or type(error).__name__}")
                log.info("mail_connection_lost", reason=str(error) or type(error).__name__)
                await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
                failures += 1

    async def _follow(self, connection: ImapConnection, folder: Folder, handle: MailHandler) -> None:
        await self._begin(connection, folder)
        while True:
            await self._handle_all(connection, await self._new(connection), handle)
            self.caught_up = True
            _end_if_cancelled()
            pause = BUSY_SECONDS if self._waiting else RENEW_SECONDS
            if "IDLE" in connection.capabilities:
                await connection.idle(pause)
            else:
                await asyncio.sleep(min(pause, self._poll_seconds))
                await connection.noop()

    async def _new(self, connection: ImapConnection) -> list[int]:
        """Return the UIDs of the mails that wait and of the new ones, in order."""
        if len(self._waiting) >= WAITING:
            return sorted(self._waiting)
        found = await connection.search("UID", f"{self._uid + 1}:*")
        return sorted(self._waiting.union(uid for uid in found if uid > self._uid))

    async def _begin(self, connection: ImapConnection, folder: Folder) -> None:
        """Read the note. Without one only mails from now on count; if the server has numbered the folder anew, those since
        the day before the last note, of which the gateway recognises the ones that it has."""
        note = await self._state.load()
        self._uid, self._since = int(note.get("uid", 0)), str(note.get("since", ""))
        self._waiting = {int(uid) for uid in note.get("waiting", ())}
        known, self._validity = note.get("uidvalidity"), folder.validity
        if known == folder.validity:
            return
        self._uid = folder.next_uid - 1 if folder.next_uid else max(await connection.search("ALL"), default=0)
        self._waiting = set()
        if known is not None:
            log.warning("mail_folder_renumbered", folder=self._folder)
            self._waiting.update(await connection.search("SINCE", self._since))
        await self._save()

    async def _handle_all(self, connection: ImapConnection, uids: list[int], handle: MailHandler) -> None:
        for uid in uids:
            _end_if_cancelled()
            header = await connection.fetch(uid, "HEADER")
            handled = Handled.IGNORED if header is None else await handle(connection, header)
            if handled is Handled.ACCEPTED:
                await connection.mark_seen(uid)
            if handled is Handled.LATER:
                self._waiting.add(uid)
            else:
                self._waiting.discard(uid)
            self._uid = max(self._uid, uid)
            await self._save()

    async def _save(self) -> None:
        self._since = _search_date(self._clock.now() - timedelta(days=1))
        await self._state.save(
            {"uidvalidity": self._validity, "uid": self._uid, "since": self._since, "waiting": sorted(self._waiting)}
        )


def _end_if_cancelled() -> None:
    """End a task whose cancellation was lost: `asyncio.wait_for` of Python 3.11, which the SMTP library uses, loses one."""
    if (task := asyncio.current_task()) is not None and task.cancelling():
        raise asyncio.CancelledError


def _search_date(at: datetime) -> str:
    return f"{at.day}-{_MONTHS[at.month - 1]}-{at.year}"
