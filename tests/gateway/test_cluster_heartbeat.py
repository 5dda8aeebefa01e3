"""The heartbeat of gateways that share a database: one of them sends it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.schedules import heartbeat
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.servers.postgres_server import postgres_server
from tests.waiting import deadline


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


async def sent_by(running: Gateway) -> int:
    """Return the number of beats that a gateway has sent."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with running.http.get(f"{running.url}/api/schedules/heartbeat", headers=headers) as response:
        report = await response.json()  # null until the heartbeat begins
        return int(report["sent"]) if report else 0


async def until_sent(running: Gateway, least: int) -> None:
    """Wait until a gateway has sent so many beats."""
    async with deadline():
        while await sent_by(running) < least:
            await asyncio.sleep(0.05)


async def test_one_of_two_gateways_sends_the_beats_and_the_other_goes_on(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def next_due(every: float, active: str, after: datetime, zone: tzinfo) -> datetime:
        return after + timedelta(seconds=0.5)

    monkeypatch.setattr(heartbeat, "next_beat", next_due)
    keys: dict[str, Any] = {"store.kind": "postgres", "store.url": url, "heartbeat.every": "30m"}
    script = [{"text": "HEARTBEAT_OK"}]
    for name in ("a", "b"):
        (tmp_path / name / "workspace").mkdir(parents=True)
        (tmp_path / name / "workspace" / "HEARTBEAT.md").write_text("- Is the door shut?\n")
    async with AsyncExitStack() as first:
        sender = await first.enter_async_context(gateway(tmp_path / "a", script=script, settings=keys))
        await until_sent(sender, 1)
        async with gateway(tmp_path / "b", script=script, settings=keys) as other:
            await until_sent(sender, await sent_by(sender) + 3)
            assert await sent_by(other) == 0
            await first.aclose()
            await until_sent(other, 1)
