"""A process that runs out of file descriptors refuses what is new, loses nothing that was accepted, and goes on."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import aiohttp

from tests.faults.gateway_process import ROOT, GatewayProcess, gateway_process, journals, verify
from tests.gateway.gateways import TOKEN, Client
from tests.waiting import deadline

ANA, BEN = "the-token-of-ana-who-is-no-owner", "the-token-of-ben-who-is-no-owner"

LIMIT = 192
"""Descriptors of the gateway in these tests; about 30 are in use at rest."""


@asynccontextmanager
async def limited_gateway(home: Path, settings: Mapping[str, str] | None = None) -> AsyncIterator[GatewayProcess]:
    """A gateway that may have LIMIT descriptors and cannot raise that."""
    async with gateway_process(home, settings=settings, wrap=["prlimit", f"--nofile={LIMIT}:{LIMIT}"]) as gateway:
        yield gateway


def descriptors(gateway: GatewayProcess) -> int:
    return len(os.listdir(f"/proc/{gateway.process.pid}/fd"))


@contextmanager
def without_descriptors(gateway: GatewayProcess) -> Iterator[None]:
    """While the block runs, a gateway gets no further descriptor."""
    used = {int(name) for name in os.listdir(f"/proc/{gateway.process.pid}/fd")}
    before = resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE)
    free = next(number for number in count() if number not in used)
    resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, before)


async def begin(client: Client, keys: list[str]) -> None:
    """Send a first message to each key and wait until each is accepted and answered."""
    waiting = {await client.send("hello", session=key, id_=key) for key in keys}
    answering = set(keys)
    while waiting or answering:
        frame = await client.next()
        assert frame["type"] != "error", frame
        if frame["type"] == "accepted":
            waiting.discard(frame["id"])
        elif frame["type"] == "event" and frame["event"]["kind"] == "turn_ended":
            answering.discard(frame["session"])


async def test_a_person_may_begin_more_conversations_than_there_are_descriptors(tmp_path: Path) -> None:
    async with limited_gateway(tmp_path) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        keys = [f"k{number}" for number in range(2 * LIMIT)]
        await begin(client, keys)
        async with http.get(f"http://127.0.0.1:{gateway.port}/healthz") as answer:
            assert answer.status == 200
        assert descriptors(gateway) < LIMIT / 2
        assert await client.chat("and on", session=keys[0]) == "and on"
        assert await gateway.stop() == 0
        assert "Too many open files" not in gateway.log.read_text()
    assert len(journals(tmp_path)) == len(keys)
    assert await verify(tmp_path) == 0


async def test_silent_connections_do_not_use_up_the_descriptors_of_conversations(tmp_path: Path) -> None:
    async with limited_gateway(tmp_path) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        await begin(client, ["before"])
        with ExitStack() as silent:
            for _ in range(2 * LIMIT):
                connection = silent.enter_context(socket.socket())
                connection.setblocking(False)  # for those that wait to be accepted
                connection.connect_ex(("127.0.0.1", gateway.port))
            await begin(client, [f"k{number}" for number in range(10)])
            assert await client.chat("and on", session="before") == "and on"
            assert descriptors(gateway) < LIMIT
        async with http.get(f"http://127.0.0.1:{gateway.port}/healthz") as answer:
            assert answer.status == 200
        assert await gateway.stop() == 0
        assert "Too many open files" not in gateway.log.read_text()
        assert len(gateway.log.read_text().splitlines()) < 20


async def connected(gateway: GatewayProcess, http: aiohttp.ClientSession, token: str) -> Client | None:
    """A client that is welcome; None if too many connections are open."""
    headers = {"Authorization": f"Bearer {token}"}
    try:
        socket_ = await http.ws_connect(f"http://127.0.0.1:{gateway.port}/ws", headers=headers, max_msg_size=0)
    except aiohttp.WSServerHandshakeError as refused:
        if refused.status != 503:
            raise
        return None
    message = await socket_.receive()
    if message.type is aiohttp.WSMsgType.CLOSE:
        assert message.data == aiohttp.WSCloseCode.TRY_AGAIN_LATER
        return None
    return Client(socket_)


async def as_many_as_possible(gateway: GatewayProcess, http: aiohttp.ClientSession, token: str) -> list[Client]:
    clients = []
    async with deadline():
        while (client := await connected(gateway, http, token)) is not None:
            clients.append(client)
    return clients


async def test_the_websockets_of_one_person_leave_room_for_others_and_all_together_for_health_checks(tmp_path: Path) -> None:
    people = {"EXUVIA__PEOPLE__ANA__TOKEN": ANA, "EXUVIA__PEOPLE__BEN__TOKEN": BEN}
    async with (
        limited_gateway(tmp_path, people) as gateway,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        owners, anas = [await as_many_as_possible(gateway, http, token) for token in (TOKEN, ANA)]
        assert len(owners) == len(anas) > 10
        assert await connected(gateway, http, BEN) is None
        async with http.get(f"http://127.0.0.1:{gateway.port}/healthz") as answer:
            assert answer.status == 200
        await begin(anas[0], [f"k{number}" for number in range(10)])
        await owners.pop().socket.close()
        ben = await connected(gateway, http, BEN)
        assert ben is not None
        assert await ben.chat("one left") == "one left"
        assert await gateway.stop() == 0
        assert "Too many open files" not in gateway.log.read_text()


def test_a_start_raises_the_limit_of_descriptors_as_far_as_it_may() -> None:
    program = (
        "import resource; from gateway.support.resource_limits import raise_descriptor_limit; raise_descriptor_limit();"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    command = ["prlimit", "--nofile=64:4096", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "(4096, 4096)\n"


async def test_without_descriptors_requests_are_refused_and_not_logged_as_errors_of_the_gateway(tmp_path: Path) -> None:
    asked = {"model": "exuvia", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Exuvia-Session": "main"}
    async with gateway_process(tmp_path) as gateway, aiohttp.ClientSession() as http:
        client, url = await gateway.connect(http), f"http://127.0.0.1:{gateway.port}"
        async with http.get(f"{url}/healthz") as answer:  # whose connection the next request uses
            assert answer.status == 200
        with without_descriptors(gateway):
            async with http.post(f"{url}/v1/chat/completions", json=asked, headers=headers) as answer:
                assert answer.status == 503
            answered = await client.until_answered(await client.send("hi"))
            # A descriptor that was closed meanwhile may have been enough for it.
            assert answered["type"] == "accepted" or answered["code"] in ("busy", "storage_failed")
        if answered["type"] == "accepted":
            await client.until_event("turn_ended")
        assert await client.chat("again") == "again"
        assert await gateway.stop() == 0
        assert "Traceback" not in gateway.log.read_text()
