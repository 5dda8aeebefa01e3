"""Attacks on memory, connections and time: what one person or one address takes is not taken from everybody."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import errno
import gc
import json
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.auth.limits import UnauthenticatedLimit
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http import request_bodies
from gateway.http.concurrency import Quota
from gateway.http.openai import api
from gateway.http.request_bodies import BodyShare
from gateway.support import resource_limits
from plugins.providers.hosted.known_models import known_limits
from plugins.support.text.bounded_cache import LONGEST, bounded_cache
from tests.faults.gateway_process import ROOT, GatewayProcess, gateway_process
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.openai_api.asking import SAID
from tests.waiting import DEADLINE, deadline

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
MEGABYTE = 1024 * 1024


# --- memory -----------------------------------------------------------------------------------------------------------


def peak(process: GatewayProcess) -> int:
    """The most memory that the process ever had, in bytes."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


async def ask(http: aiohttp.ClientSession, port: int, **body: Any) -> tuple[int, str]:
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    data = BytesIO(json.dumps({"model": "exuvia", "messages": SAID, **body}).encode())
    async with http.post(url, data=data, headers=HEADERS) as response:
        return response.status, await response.text()


async def test_model_names_of_megabytes_are_refused_and_not_kept(tmp_path: Path) -> None:
    async with gateway_process(tmp_path) as running, aiohttp.ClientSession() as http, deadline():
        for number in range(20):
            status, _ = await ask(http, running.port, model=f"openai:{number}" + "x" * 20 * MEGABYTE)
            assert status == 400
        assert peak(running) < 300 * MEGABYTE


async def status_or_cut(http: aiohttp.ClientSession, port: int, **body: Any) -> int:
    """The status of an answer; 429 also where the connection is closed while the refused body is still being sent."""
    try:
        return (await ask(http, port, **body))[0]
    except aiohttp.ClientOSError:
        return 429


async def test_large_concurrent_requests_are_limited_by_a_budget(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "x" * 22 * MEGABYTE}]
    patient = aiohttp.ClientTimeout(total=None)
    async with gateway_process(tmp_path) as running, aiohttp.ClientSession(timeout=patient) as http, deadline():
        statuses = await asyncio.gather(*(status_or_cut(http, running.port, messages=said) for _ in range(32)))
        assert set(statuses) <= {200, 400, 429}
        assert statuses.count(429) >= 16
        assert peak(running) < 600 * MEGABYTE
        assert (await ask(http, running.port))[0] == 200


async def test_a_person_who_uses_up_their_budget_leaves_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana = "token-of-ana-0123456789-abcdef"
    monkeypatch.setattr(api, "OF_ONE", 2000)
    file = f'[agent]\nmodel = "scripted:echo"\n[people.ana]\ntoken = "{ana}"\n'
    async with gateway(tmp_path, file=file) as g:
        url = f"{g.url}/v1/chat/completions"
        hold = asyncio.Event()

        async def held() -> AsyncIterator[bytes]:
            yield b"{" + b" " * 1500
            await hold.wait()
            yield b"}"

        first = asyncio.create_task(status_of(g, data=held()))
        async with deadline():
            while (status := await status_of(g, data=b" " * 1000)) == 400:  # refused as JSON until the first one is there
                await asyncio.sleep(0.01)
        assert status == 429
        async with g.http.post(url, data=b" " * 1000, headers={"Authorization": f"Bearer {ana}"}) as response:
            assert response.status == 400, "it was read, and is no JSON"
        hold.set()
        assert await first == 400
        assert await status_of(g, data=b" " * 1000) == 400


async def status_of(g: Gateway, **more: Any) -> int:
    async with g.http.post(f"{g.url}/v1/chat/completions", headers=HEADERS, **more) as response:
        return response.status


def test_request_bodies_have_a_budget_for_each_person_and_in_total_and_release_it() -> None:
    quota = Quota(of_one=10, of_all=15)
    with BodyShare.of(quota, "ben") as bens:
        with BodyShare.of(quota, "ana") as anas:
            anas.grow(10)
            with pytest.raises(request_bodies.BodyRefused, match="Your requests use too much"):
                anas.grow(11)
            bens.grow(5)
            with pytest.raises(request_bodies.BodyRefused, match="All requests together use too much"):
                bens.grow(6)
        bens.grow(10)


def test_results_for_long_texts_are_not_cached() -> None:
    calls: list[int] = []

    @bounded_cache(10)
    def length(text: str, unit: str) -> int:
        calls.append(len(text))
        return len(text)

    for text in ("a" * LONGEST, "a" * (LONGEST + 1)):
        assert [length(text, "characters") for _ in range(2)] == [len(text)] * 2
    assert calls == [LONGEST, LONGEST + 1, LONGEST + 1]
    assert known_limits("anthropic", "x" * 10_000).window is None


def test_every_cache_bounds_the_length_of_its_texts() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{function.lineno}"
        for package in ("gateway", "plugins", "sessions")
        for path in sorted((ROOT / package).rglob("*.py"))
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef) and function.args.args
        for decorator in function.decorator_list
        if "cache" in ast.unparse(decorator) and not ast.unparse(decorator).startswith(("bounded_cache(", "cached_property"))
    ]
    closed = {
        "plugins/policies/languages/prompts.py",
        "plugins/support/text/stemming.py",
        "gateway/terminal/markdown/markdown_parser.py",
    }
    """Their arguments are names of languages and kinds of blocks, of which there are few."""
    closed |= {"gateway/conversations/context/conversation_config.py"}
    """Its argument is the operator's text, of which eight are kept."""
    closed |= {"gateway/support/storage.py"}
    """Its argument is the address of the database in the configuration."""
    closed |= {"gateway/conversations/schedules/recurrence.py"}
    """Its arguments are a time and a rule, whose text `parsing.LONGEST_LINE` limits."""
    assert [place for place in found if place.partition(":")[0] not in closed] == []


def test_a_gateway_does_not_start_with_too_little_address_space(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "exuvia", "run", "--home", str(tmp_path), "--port", "0"]
    done = subprocess.run(
        ["prlimit", f"--as={900 * MEGABYTE}", *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("exuvia: The address space is limited to 900 MB (ulimit -v), and the gateway needs ")
    assert len(done.stderr.splitlines()) == 1


async def test_the_required_address_space_suffices_for_many_simultaneous_conversations(tmp_path: Path) -> None:
    limit = resource_limits.address_space_needed()
    async with gateway_process(tmp_path, wrap=["prlimit", f"--as={limit}"]) as running, aiohttp.ClientSession() as http:
        async with deadline():
            clients = [await running.connect(http) for _ in range(30)]
            answers = await asyncio.gather(*(each.chat("hi", session=f"k{n}") for n, each in enumerate(clients)))
            said = [{"role": "user", "content": "x" * 20 * MEGABYTE}]
            statuses = {
                status for status, _ in await asyncio.gather(*(ask(http, running.port, messages=said) for _ in "1234"))
            }
        assert answers == ["hi"] * 30
        assert statuses <= {200, 429}
        assert await running.stop() == 0
        assert "resources_exhausted" not in running.log.read_text()


def test_the_required_address_space_grows_with_the_processors_up_to_the_maximum_of_threads() -> None:
    assert [resource_limits.address_space_needed(count) // MEGABYTE for count in (2, 28, 256)] == [2032, 3904, 3904]
    assert resource_limits.address_space_shortage(resource.RLIM_INFINITY) is None
    assert resource_limits.address_space_shortage(resource_limits.address_space_needed()) is None


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread"), OSError(errno.EMFILE, "Too many")])
async def test_a_frame_beyond_the_budget_is_answered_busy_and_the_connection_continues(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        with monkeypatch.context() as without:

            async def fails(*_: object, **__: object) -> None:
                raise error

            without.setattr(Switchboard, "chat", fails)
            assert (await client.until_answered(await client.send("hi")))["code"] == "busy"
        assert await client.chat("again") == "again"


# --- connections ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def sign_in_begun(
    g: Gateway, address: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A request to sign in whose body has 100 bytes, of which one comes."""
    port = g.daemon.address[1] if g.daemon.address else 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    writer.write(
        f"POST /api/sign-in HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{".encode()
    )
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_slow_sign_in_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.console.signing_in.SIGN_IN_SECONDS", 0.1)
    async with gateway(tmp_path) as g, sign_in_begun(g) as (reader, writer), deadline():
        answered = asyncio.create_task(reader.readline())
        for _ in range(99):
            if not answered.done():
                writer.write(b" ")
                await asyncio.sleep(0.02)
        assert (await answered).startswith(b"HTTP/1.1 408 ")
        assert b"\r\nConnection: close\r\n" in await reader.readuntil(b"\r\n\r\n")
        assert (await reader.read()).endswith(b"}"), "the connection ends with the answer"


async def test_a_slowly_sent_note_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "PIECE_SECONDS", 0.1)
    never = asyncio.Event()

    async def drips() -> AsyncIterator[bytes]:
        yield b"a"
        await never.wait()

    async with gateway(tmp_path) as g, deadline():
        headers = {**HEADERS, "If-None-Match": "*"}
        async with g.http.put(f"{g.url}/api/notes/memory/a.md", data=drips(), headers=headers) as response:
            assert response.status == 408
    assert not (tmp_path / "workspace" / "memory" / "a.md").exists()


async def answer_to(g: Gateway, address: str) -> bytes:
    """Return the response to a health check from an address; empty if the connection is closed."""
    assert g.daemon.address is not None
    reader, writer = await asyncio.open_connection(*g.daemon.address, local_addr=(address, 0))
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_endless_sign_ins_from_one_address_do_not_block_other_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_limits, "most_connections", lambda: 40)
    monkeypatch.setattr(resource_limits, "most_unauthenticated", lambda: 10)
    async with gateway(tmp_path) as g, contextlib.AsyncExitStack() as stack, deadline():
        begun = [await stack.enter_async_context(sign_in_begun(g, "127.0.0.2")) for _ in range(10)]
        for _ in range(40):
            assert await answer_to(g, "127.0.0.2") == b"", "it is closed at once"
        client = await g.connect()
        assert await client.chat("hi") == "hi"
        assert not any(reader.at_eof() for reader, _ in begun)


async def test_beyond_the_maximum_of_connections_the_next_one_waits_until_another_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_limits, "most_connections", lambda: 2)
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    async with gateway(tmp_path) as g, contextlib.AsyncExitStack() as stack, deadline():
        assert g.daemon.address is not None
        opened = [await asyncio.open_connection(*g.daemon.address) for _ in range(3)]
        for _, writer in opened:
            stack.callback(writer.close)
            writer.write(request)
        answers = [asyncio.create_task(reader.readuntil(b"\r\n\r\n")) for reader, _ in opened]
        await asyncio.gather(*answers[:2])
        opened[1][1].write(request)  # the next one would have been accepted before the answer to this
        await opened[1][0].readuntil(b"\r\n\r\n")
        assert not answers[2].done()
        opened[0][1].close()
        assert (await answers[2]).startswith(b"HTTP/1.1 200 ")


async def test_a_signed_in_connection_no_longer_counts_as_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_limits, "most_unauthenticated", lambda: 2)
    async with gateway(tmp_path) as g, deadline():
        clients = [await g.connect() for _ in range(5)]
        assert [await client.chat("hi") for client in clients] == ["hi"] * 5
        for _ in range(5):
            async with aiohttp.ClientSession() as http, http.get(f"{g.url}/status.json", headers=HEADERS) as response:
                assert response.status == 200


class Open(asyncio.BaseTransport):
    """The transport of an open connection."""

    def is_closing(self) -> bool:
        return False


class Connection:
    """A connection that is open as long as it has a transport."""

    def __init__(self, transport: asyncio.BaseTransport | None = None) -> None:
        self.transport = transport


def test_an_address_may_connect_again_after_one_of_its_connections_has_ended() -> None:
    counted, held = UnauthenticatedLimit(most=2), [Connection(Open()), Connection(Open())]
    for connection in held:
        assert counted.has_room("a")
        counted.add("a", connection)
    assert (counted.has_room("a"), counted.has_room("b")) == (False, True)
    held[0].transport = None
    assert counted.has_room("a")


def test_closed_connections_are_removed() -> None:
    counted = UnauthenticatedLimit(most=3)
    for number in range(1000):
        assert counted.has_room("a")
        counted.add("a", Connection())
        counted.add(str(number), Connection())
    gc.collect()
    assert sum(isinstance(each, Connection) for each in gc.get_objects()) < 300
