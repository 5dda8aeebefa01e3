"""Attacks by quantity: depth, compression, endless heads, many of what is cheap.

`test_scarcity` has memory, connections and time of one person; here is each further bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import zlib
from pathlib import Path
from typing import get_args

import aiohttp
import pytest

from gateway.cli.memory.facts_commands import import_facts
from gateway.cli.options import Invocation
from gateway.protocol.frames import ClientFrame
from gateway.support.home import Home
from plugins.api.fact_values import LONGEST
from tests.attacks.test_identity import filled, routed
from tests.attacks.texts import TEXTS
from tests.console.test_transcripts import SESSION, told, write
from tests.faults.gateway_process import gateway_process
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.waiting import DEADLINE, deadline

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
KINDS = sorted(each.__struct_config__.tag for each in get_args(ClientFrame))


async def is_well(g: Gateway) -> None:
    """The gateway answers a person."""
    client = await g.connect()
    async with deadline():
        assert await client.chat("still here", session="last") == "still here"


# --- JSON -------------------------------------------------------------------------------------------------------------

DEEP = {
    "arrays": "[" * 200_000,
    "arrays that end": "[" * 100_000 + "]" * 100_000,
    "objects": '{"a":' * 100_000,
    "objects that end": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "both": '[{"a":' * 60_000,
    "a number of a megabyte": "1" * 1_000_000,
    "a huge exponent": "1e999999999",
    "escapes": '"' + "\\u0000" * 100_000 + '"',
    "a million keys": "{" + ",".join(f'"k{number}":1' for number in range(60_000)) + "}",
    "one key, often": "{" + ",".join('"a":1' for _ in range(100_000)) + "}",
}


@pytest.mark.parametrize("name", DEEP)
async def test_deeply_nested_json_does_not_harm_any_route(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with routed(tmp_path, monkeypatch) as (g, routes):
        for method, route in routes:
            if method == "GET" or route == "/attachments":
                continue
            for body in (DEEP[name], '{"messages":' + DEEP[name], '{"token":' + DEEP[name] + "}"):
                headers = {**HEADERS, "Content-Type": "application/json", "Origin": g.url, "If-None-Match": "*"}
                asking = g.http.request(method, g.url + filled(route), data=body.encode(), headers=headers)
                async with deadline(), asking as response:
                    assert response.status < 500, (method, route)
                    assert b"Traceback" not in await response.read()
        await is_well(g)


@pytest.mark.parametrize("kind", KINDS)
async def test_deeply_nested_json_does_not_harm_the_websocket(kind: str, tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        for deep in DEEP.values():
            for field in ("id", "session", "text", "attachments", "more"):
                await client.socket.send_str(f'{{"type":"{kind}","{field}":{deep}}}')
                async with deadline():
                    answer = await client.next()
                    while answer["type"] in ("event", "delta", "settings", "welcome"):
                        answer = await client.next()
                assert answer["type"] in ("error", "pong", "sessions"), answer
        await is_well(g)


# --- compression ------------------------------------------------------------------------------------------------------


def bombs() -> dict[str, bytes]:
    """Bodies that are a thousand times as large once they are unpacked."""
    zeros = b'{"messages":"' + b"0" * 200_000_000 + b'"}'
    deflated = zlib.compressobj(9, zlib.DEFLATED, -15)
    return {"gzip": gzip.compress(zeros, 9), "deflate": deflated.compress(zeros) + deflated.flush()}


async def test_no_compressed_body_is_unpacked_into_memory(tmp_path: Path) -> None:
    async with gateway_process(tmp_path) as running, aiohttp.ClientSession() as http:
        before = peak_of(running.process.pid)
        for encoding, body in bombs().items():
            for path in ("/v1/chat/completions", "/v1/embeddings", "/api/sign-in", "/attachments"):
                headers = {**HEADERS, "Content-Encoding": encoding, "Content-Type": "application/json"}
                with contextlib.suppress(aiohttp.ClientOSError):
                    async with (
                        deadline(),
                        http.post(f"http://127.0.0.1:{running.port}{path}", data=body, headers=headers) as answer,
                    ):
                        assert 400 <= answer.status < 500, path
        assert peak_of(running.process.pid) - before < 150_000_000
        async with http.get(f"http://127.0.0.1:{running.port}/healthz") as answer:
            assert answer.status == 200


async def test_no_compressed_frame_is_unpacked_into_memory(tmp_path: Path) -> None:
    """permessage-deflate, whether or not the gateway agreed to it."""
    async with gateway_process(tmp_path) as running, aiohttp.ClientSession() as http:
        before = peak_of(running.process.pid)
        url = f"http://127.0.0.1:{running.port}/ws"
        for _ in range(3):
            async with deadline(), http.ws_connect(url, headers=HEADERS, compress=15, max_msg_size=0) as socket:
                with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                    await socket.send_str(
                        '{"type":"send","id":"1","session":"main","text":"' + "0" * 200_000_000 + '"}', compress=15
                    )
                while (await socket.receive()).type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                    pass
        assert peak_of(running.process.pid) - before < 150_000_000
        async with http.get(f"http://127.0.0.1:{running.port}/healthz") as answer:
            assert answer.status == 200


def peak_of(process: int) -> int:
    """The most memory that a process ever had, in bytes."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


# --- many of what is cheap --------------------------------------------------------------------------------------------


async def test_thousands_of_subscriptions_and_ids_are_refused_or_served(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        for number in range(3000):
            await client.say("subscribe", id=f"s{number}", session=f"k{number}")
            await client.say("subscribe", id=f"m{number}", session="main")
            await client.say("cancel", id=f"c{number}", session=f"k{number}")
        await client.say("ping", id="last")
        async with deadline():
            await client.until_type("pong", id="last")
        assert len(list((tmp_path / "sessions").iterdir())) == 1, "to ask for a session makes none"
        await is_well(g)


async def test_many_small_frames_of_one_client_do_not_delay_others(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        flooding, other = await g.connect(), await g.connect()
        done = asyncio.Event()

        async def flood() -> None:
            while not done.is_set():
                await asyncio.gather(*(flooding.say("ping", id="x") for _ in range(100)))

        async def drain() -> None:
            while not done.is_set():
                await flooding.next()

        tasks = [asyncio.create_task(flood()), asyncio.create_task(drain())]
        try:
            for number in range(10):
                async with deadline():
                    assert await other.chat(f"text {number}", session="other") == f"text {number}"
        finally:
            done.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await is_well(g)


ENDLESS = {
    "headers": b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: a\r\n" % number for number in range(200_000)),
    "one header": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2_000_000,
    "a request line": b"GET /" + b"a" * 2_000_000,
    "a method": b"A" * 2_000_000,
    "blank lines": b"\r\n" * 1_000_000,
    "a chunk's size": b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"0" * 2_000_000,
    "a chunk's extension": b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;"
    + b"a" * 2_000_000,
    "pipelined": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 20_000,
    "no end of a frame": b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    + b"\x81" * 2_000_000,
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_endless_headers_use_bounded_memory_and_do_not_stop_the_gateway(name: str, tmp_path: Path) -> None:
    async with gateway_process(tmp_path) as running, aiohttp.ClientSession() as http:
        before = peak_of(running.process.pid)

        async def attack() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with deadline():
                    writer.write(ENDLESS[name])
                    await writer.drain()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            del reader

        async with deadline():
            await asyncio.gather(*(attack() for _ in range(8)))
        async with deadline(), http.get(f"http://127.0.0.1:{running.port}/healthz") as answer:
            assert answer.status == 200
        assert peak_of(running.process.pid) - before < 150_000_000


# --- what once froze the gateway --------------------------------------------------------------------------------------


async def test_texts_that_once_blocked_the_gateway_do_not_block_the_next_start(tmp_path: Path) -> None:
    """A home as an older gateway left it: its journal, notes and facts hold the texts that once took minutes or for ever.

    The start is as quick as ever, and the gateway answers while the memory reads all of it.
    """
    once = [
        "[0123abcd] " + "#L1-L1 (" * 125_000,
        "# a" + " " * 2500 + "b",
        "?" * 20_000 + "a",
        "/memory a" + " " * 100_000 + "b",
        "- a\n" + " " * 50_000 + "b",
        *(make(60_000) for make in TEXTS.values()),
    ]
    texts = [text.encode("utf-8", "replace").decode() for text in once]
    write(tmp_path, told(texts))
    notes = tmp_path / "workspace" / "memory"
    notes.mkdir(parents=True)
    for number, text in enumerate(texts):
        (notes / f"{number}.md").write_text(text)
    (tmp_path / "workspace" / "MEMORY.md").write_text("\n".join(text[:2000] for text in texts))
    assert (tmp_path / "sessions" / f"{SESSION}.jsonl").stat().st_size > 5_000_000
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps([{"content": text[:LONGEST], "pinned": True} for text in texts]))
    call = Invocation(Home(tmp_path), tmp_path / "config.toml", {}, io.StringIO())
    await asyncio.to_thread(import_facts, call, facts)
    assert (tmp_path / "facts.jsonl").read_bytes().count(b'"content":') > len(texts) / 2, "few are refused"
    settings = {"EXUVIA__MEMORY__EMBEDDING__PROVIDER": '"none"'}
    async with gateway_process(tmp_path, settings=settings) as running, aiohttp.ClientSession() as http:
        client = await running.connect(http)
        async with deadline():
            assert await client.chat("what of the kettles?", session="other") == "what of the kettles?"
            assert await client.chat("and on it goes", session="main") == "and on it goes"
        slowest, loop = 0.0, asyncio.get_running_loop()
        until = loop.time() + DEADLINE
        while True:
            begun = loop.time()
            async with deadline(), http.get(f"http://127.0.0.1:{running.port}/healthz") as answer:
                assert answer.status == 200
            slowest = max(slowest, loop.time() - begun)
            async with deadline(), http.get(f"http://127.0.0.1:{running.port}/api/notes", headers=HEADERS) as answer:
                index = (await answer.json())["index"]
            if (
                index[0].isdigit()
                and int(index.split()[0].replace(",", "")) == len(texts) + 1
                and " 0 sessions" not in index
            ):
                break
            assert loop.time() < until, index
            await asyncio.sleep(0.05)
        assert slowest < 10, "the unit's watchdog waits for so long at least"
        assert await running.stop() == 0
