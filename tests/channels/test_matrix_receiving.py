"""What the Matrix channel does when receiving fails, on a server of the test's own event loop."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plugins.api.channel import InboundMessage
from plugins.channels.matrix import matrix_channel, sync
from plugins.channels.matrix.encryption.key_store import KeyStore
from plugins.channels.matrix.matrix_channel import MatrixChannel, MatrixSettings
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import RecordingInbox
from plugins.testing.contexts import make_context
from tests.servers.matrix_server import MatrixServer, event
from tests.waiting import deadline, until


class FailingInbox(RecordingInbox):
    """An inbox that fails once for each message whose text has an error in `passing`, and always for those in `lasting`."""

    def __init__(self, passing: dict[str, Exception], lasting: dict[str, Exception]) -> None:
        super().__init__()
        self.passing = passing
        self.lasting = lasting

    async def receive(self, arrival: InboundMessage) -> bool:
        if error := self.passing.pop(arrival.text, self.lasting.get(arrival.text)):
            raise error
        return await super().receive(arrival)


@asynccontextmanager
async def opened(server: MatrixServer, folder: Path) -> AsyncIterator[MatrixChannel]:
    settings = MatrixSettings(homeserver=server.url, user="bot", password=Secret("a password"))
    async with make_context(folder, settings) as context, MatrixChannel(context) as channel:
        yield channel


@asynccontextmanager
async def running(channel: MatrixChannel, inbox: RecordingInbox) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(channel.run(inbox))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_message_waits_for_what_may_pass_and_what_fails_for_its_content_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix_channel, "find_spec", lambda _: None)  # as without the extra
    monkeypatch.setattr(sync, "PAUSES", (0.01,))
    passing = {
        "thread": RuntimeError("can't start new thread"),
        "disk": OSError(errno.ENOSPC, "No space left on device"),
        "database": sqlite3.OperationalError("database or disk is full"),
        "memory": MemoryError(),
    }
    lasting = {"odd": ValueError("an odd content"), "strange": RuntimeError("a strange content")}
    texts = ["thread", "odd", "disk", "database", "strange", "memory", "last"]
    inbox = FailingInbox(dict(passing), lasting)
    async with MatrixServer() as server, opened(server, tmp_path) as channel:
        server.events = [event(text, msgtype="m.text", body=text) for text in texts]
        async with running(channel, inbox), deadline():
            arrived = [(await inbox.arrived.get()).text for _ in [*passing, "last"]]
    assert arrived == [text for text in texts if text not in lasting]
    assert inbox.arrived.empty()


async def test_a_message_without_its_key_is_kept_and_its_key_asked_for_although_the_disk_was_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vodozemac")
    monkeypatch.setattr(sync, "PAUSES", (0.01,))
    write, failures = KeyStore._write, 0

    def fail_once(self: KeyStore, values: dict[tuple[str, str], str | None]) -> None:
        nonlocal failures
        if not failures and ("undecrypted", "$hidden") in values:
            failures += 1
            raise sqlite3.OperationalError("database or disk is full")
        write(self, values)

    monkeypatch.setattr(KeyStore, "_write", fail_once)
    async with MatrixServer() as server, opened(server, tmp_path) as channel:
        server.events = [event("hidden", "m.room.encrypted", algorithm="m.megolm.v1.aes-sha2", session_id="s")]
        async with running(channel, RecordingInbox()) as task:
            await until(lambda: task.done() or any("m.room_key_request" in each for each in server.requests))
            assert not task.done()
            assert channel._machine is not None
            assert await channel._machine.is_waiting("$hidden")
    assert failures
