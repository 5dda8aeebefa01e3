"""The email channel on servers of the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plugins.channels.email import mailbox, port_security
from plugins.channels.email.email_channel import EmailChannel
from plugins.testing.channel_checks import RecordingInbox
from plugins.testing.contexts import make_context
from tests.channels.idle import HOUR, idle_hour
from tests.channels.mail_stage import settings_for
from tests.servers.imap_server import STILL_HERE_SECONDS, ImapServer
from tests.servers.mail_servers import MailServers, smtp_server
from tests.waiting import until


@pytest.fixture
async def imap() -> AsyncIterator[ImapServer]:
    async with ImapServer() as running:
        yield running


@asynccontextmanager
async def opened(imap: ImapServer, folder: Path) -> AsyncIterator[EmailChannel]:
    """Open a channel. Both servers are on this event loop."""
    servers = MailServers(folder)
    security = {"imap_security": "none", "smtp_security": "none"}
    settings = settings_for(servers, imap=f"127.0.0.1:{imap.port}", ca_file="", **security)
    async with (
        smtp_server(servers, servers.smtp, None, starttls=False),
        make_context(folder, settings) as context,
        EmailChannel(context) as channel,
    ):
        yield channel


async def test_an_idle_hour_renews_idle_every_25_minutes_and_writes_nothing(imap: ImapServer, tmp_path: Path) -> None:
    async with opened(imap, tmp_path) as channel:
        running = asyncio.create_task(channel.run(RecordingInbox()))
        await until(lambda: imap.commands[-1] == "IDLE")
        costs = await idle_hour(tmp_path, lambda: len(imap.commands))
        renewals = HOUR / mailbox.RENEW_SECONDS
        assert imap.commands[-6:] == ["DONE", "UID SEARCH", "IDLE"] * 2
        assert costs.requests <= 3 * (renewals + 1)
        # The server's timer and ours for each sign of life, and ours for each renewal.
        assert costs.pauses <= 2 * HOUR / STILL_HERE_SECONDS + 2 * (renewals + 1)
        assert len(imap.open) == 1
        assert (costs.written, costs.tasks) == (set(), 0)
        assert costs.grown < 20_000
        running.cancel()
        await asyncio.wait([running])


async def test_a_server_that_greets_late_is_waited_for(
    imap: ImapServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_security, "LOOK_SECONDS", 0.0)
    imap.greets_after = 2  # the second one looks whether the port begins with TLS
    async with opened(imap, tmp_path) as channel:
        assert (await channel.check()).startswith("Logged in to 127.0.0.1")
