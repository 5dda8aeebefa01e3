"""Kill -9 while files come in: what was answered for is there, and the cleaning never takes what a message names."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from time import time

import aiohttp
import pytest

from sessions.attachments.store import Attachments
from sessions.files.journal_folder import JournalFolder
from tests.faults.gateway_process import GatewayProcess, gateway_process, journals, verify
from tests.gateway.gateways import TOKEN
from tests.waiting import until

SLOW_DISK = [
    "-e",
    "trace=fdatasync,fsync,rename,unlink",
    "-e",
    "inject=fdatasync,fsync:delay_enter=4000:delay_exit=4000",
    "-e",
    "inject=rename:delay_enter=25000",
]

BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Sender:
    """Sends files ahead, in messages, and both, until the connection breaks; remembers what was answered for."""

    def __init__(self, seed: int) -> None:
        self.uploaded: dict[str, bytes] = {}
        self.accepted: dict[str, list[str]] = {}
        self._seed = seed

    async def send(self, gateway: GatewayProcess) -> None:
        with contextlib.suppress(aiohttp.ClientError, AssertionError, ConnectionError):
            async with aiohttp.ClientSession(headers=BEARER) as http:
                client = await gateway.connect(http)
                for number in range(1000):
                    ahead, within = (f"{self._seed} {number} {where}".encode() * 50 for where in ("ahead", "within"))
                    async with http.post(f"http://127.0.0.1:{gateway.port}/attachments", data=ahead) as answer:
                        assert answer.status == 201
                        digest = (await answer.json())["sha256"]
                    self.uploaded[digest] = ahead
                    attachments = [{"sha256": digest}, {"data": b64encode(within).decode()}]
                    id_ = f"{self._seed} {number}"
                    await client.say("send", id=id_, session="main", text="see", attachments=attachments)
                    await client.until_type("accepted", id=id_)
                    self.accepted[id_] = [digest, sha256(within).hexdigest()]


@pytest.mark.parametrize("seed", range(2))
async def test_a_kill_during_uploads_loses_no_acknowledged_file(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    senders = []
    for round_ in range(3):
        async with gateway_process(tmp_path, faults=SLOW_DISK) as gateway:
            senders.append(Sender(round_ * 10 + seed))
            sending = asyncio.create_task(senders[-1].send(gateway))
            await until(lambda: len(senders[-1].accepted) >= 2)
            await asyncio.sleep(chance.uniform(0, 0.05))
            await gateway.kill()
            await sending

    named = {
        attachment["sha256"]
        for lines in journals(tmp_path)
        for event in lines
        for attachment in event.get("attachments", [])
    }
    assert {digest for sender in senders for digests in sender.accepted.values() for digest in digests} <= named
    kept = Attachments(tmp_path / "attachments")
    for sender in senders:
        for digest, content in sender.uploaded.items():
            assert await kept.read(digest) == content
            assert await kept.find("owner", digest) is not None

    for path in (tmp_path / "attachments").rglob("*"):
        os.utime(path, (time() - 7200, time() - 7200))
    kept.remove_orphans(JournalFolder(tmp_path / "sessions"), time() - 3600)
    left = {path.name for path in (tmp_path / "attachments").iterdir()} - {"owners"}
    assert left == named
    assert {path.name for path in (tmp_path / "attachments" / "owners" / "owner").iterdir()} == named
    assert await verify(tmp_path) == 0
