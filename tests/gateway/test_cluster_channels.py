"""A channel of several gateways: one has it open, another one after its death, and each answer is delivered."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.faults.gateway_process import ROOT, GatewayProcess, gateway_process
from tests.gateway.test_cluster import events, rows
from tests.servers.postgres_server import postgres_server
from tests.waiting import until

PIGEON = '''
import asyncio, json, os
from pathlib import Path
from exuvia import InboundMessage, hookimpl

LOFT = Path(os.environ["LOFT"])


class Pigeon:
    """Takes the lines of `in` as messages, from the first one on, and writes each attempt to deliver into `attempts`."""

    name = "pigeon"

    def __init__(self, context):
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def run(self, inbox):
        done = 0
        while True:
            lines = (LOFT / "in").read_text().splitlines()
            for number, text in enumerate(lines[done:], done):
                await inbox.receive(InboundMessage(id=str(number), sender="ana", chat="loft", text=text))
                done = number + 1
            await asyncio.sleep(0.02)

    async def deliver(self, message):
        with (LOFT / "attempts").open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), "text": message.text}) + "\\n")
        if message.text.startswith("slow") and not (LOFT / "released").exists():
            await asyncio.Event().wait()
        return "taken"


@hookimpl
def register_channels():
    return [Pigeon]
'''


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


@contextlib.asynccontextmanager
async def three(url: str, folder: Path) -> AsyncIterator[dict[int, GatewayProcess]]:
    """Three gateways with the channel, by their process ids."""
    info = folder / "shelf" / "pigeon-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "shelf" / "pigeon.py").write_text(PIGEON)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[exuvia]\npigeon = pigeon\n")
    settings = {
        "EXUVIA__STORE__KIND": '"postgres"',
        "EXUVIA__STORE__URL": json.dumps(url),
        "EXUVIA__PLUGINS__ALLOW": '["pigeon"]',
        "EXUVIA__PLUGINS__SENDERS": '{ "pigeon:*" = "owner" }',
        "LOFT": str(folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder / "shelf")]),
    }
    (folder / "in").write_text("")
    async with contextlib.AsyncExitStack() as stack:
        running = dict[int, GatewayProcess]()
        for number in range(3):
            started = gateway_process(folder / f"home-{number}", settings=settings)
            process = await stack.enter_async_context(started)
            running[process.process.pid] = process
        yield running


def say(folder: Path, text: str) -> None:
    with (folder / "in").open("a") as file:
        file.write(text + "\n")


def attempts(folder: Path) -> list[dict[str, Any]]:
    path = folder / "attempts"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


async def test_one_gateway_has_a_channel_open_and_after_its_death_every_answer_is_delivered(
    url: str, tmp_path: Path
) -> None:
    async with three(url, tmp_path) as gateways, aiohttp.ClientSession() as http:
        for each in gateways.values():
            await each.ready(http)
        say(tmp_path, "one")
        await until(lambda: len(events(url, "reply_delivered")) == 1)
        say(tmp_path, "slow coffee")
        await until(lambda: [each for each in attempts(tmp_path) if each["text"] == "slow coffee"])
        (holder,) = {each["pid"] for each in attempts(tmp_path)}
        say(tmp_path, "two")
        await until(lambda: len(events(url, "turn_ended")) == 3)
        (tmp_path / "released").touch()
        await gateways[holder].kill()
        say(tmp_path, "three")
        await until(lambda: len(events(url, "reply_delivered")) == 4)
    texts = Counter(each["text"] for each in attempts(tmp_path))
    assert texts == {"one": 1, "slow coffee": 2, "two": 1, "three": 1}
    assert len({each["pid"] for each in attempts(tmp_path)}) == 2
    assert [event["text"] for event in events(url, "message_received")] == ["one", "slow coffee", "two", "three"]
    assert rows(url, "SELECT name FROM lease ORDER BY name") == [("channel/pigeon",), ("schedules",)]
