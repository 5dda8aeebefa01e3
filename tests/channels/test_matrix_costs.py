"""What an idle channel of Matrix costs, on a server of the test's own event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugins.channels.matrix import matrix_channel, sync
from plugins.channels.matrix.matrix_api import SYNC_SECONDS
from plugins.channels.matrix.matrix_channel import MatrixChannel, MatrixSettings
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import RecordingInbox
from plugins.testing.contexts import make_context
from tests.channels.idle import HOUR, idle_hour
from tests.servers.matrix_server import MatrixServer
from tests.waiting import VirtualTime, until


@pytest.mark.parametrize("encryption", [True, False])
async def test_an_idle_hour_costs_a_request_in_30_seconds_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, encryption: bool
) -> None:
    if encryption:
        pytest.importorskip("vodozemac")
    else:
        monkeypatch.setattr(matrix_channel, "find_spec", lambda _: None)  # as without the extra
    async with MatrixServer() as server:
        settings = MatrixSettings(homeserver=server.url, user="bot", password=Secret("a password"))
        async with make_context(tmp_path, settings) as context, MatrixChannel(context) as channel:
            assert ("fingerprint" in await channel.check()) is encryption
            running = asyncio.create_task(channel.run(RecordingInbox()))
            await until(lambda: server.requests.count("GET v3/sync") > 2)
            costs = await idle_hour(tmp_path, lambda: len(server.requests))
            polls = HOUR / SYNC_SECONDS
            assert polls - 1 <= costs.requests <= polls
            assert set(server.requests[-costs.requests :]) == {"GET v3/sync"}
            assert costs.pauses <= 2 * polls  # the server's timer, and one of the HTTP client's
            assert costs.written == set()
            assert costs.tasks == 0
            assert costs.grown < 20_000
            before = (tmp_path / "plugin" / "sync.json").read_text()
            with VirtualTime():
                await asyncio.sleep(sync.KEEP_SECONDS + HOUR)
            await until(lambda: (tmp_path / "plugin" / "sync.json").read_text() != before)
            running.cancel()
            await asyncio.wait([running])
