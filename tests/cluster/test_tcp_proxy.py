"""The proxy: bytes pass, are delayed, dropped and halved, and connections are reset and refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from benchmarks.cluster.tcp_proxy import Passage, TcpProxy
from tests.waiting import deadline, until


class EchoServer:
    """A server on a unix socket that sends back what it receives."""

    def __init__(self) -> None:
        self.received = b""
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                self.received += data
                writer.write(data)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.open -= 1


@asynccontextmanager
async def proxied(folder: Path) -> AsyncIterator[tuple[EchoServer, TcpProxy]]:
    server = EchoServer()
    async with (
        await asyncio.start_unix_server(server.serve, folder / "echo"),
        TcpProxy(folder / "echo") as proxy,
        deadline(),
    ):
        yield server, proxy
        proxy.reset()
        await until(lambda: not server.open)


@asynccontextmanager
async def connected(proxy: TcpProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def test_bytes_pass_in_both_directions_however_many(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (_, proxy), connected(proxy) as (reader, writer):
        data = bytes(range(256)) * 20_000
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.write_eof()
        assert await reader.read() == b""


async def test_what_was_paused_arrives_later(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (server, proxy), connected(proxy) as (reader, writer):
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        proxy.passage = Passage.PAUSED
        writer.write(b"two")
        await writer.drain()
        async with connected(proxy) as (_, later):  # connects, and is held as well
            later.write(b"three")
            await until(lambda: proxy.connections == 2)
            assert server.received == b"one"
            proxy.passage = Passage.OPEN
            assert await reader.readexactly(3) == b"two"
            await until(lambda: server.received == b"onetwothree")


async def test_what_was_swallowed_is_missing_and_its_connection_is_reset_afterwards(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (server, proxy), connected(proxy) as (reader, writer):
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        proxy.passage = Passage.SWALLOWED
        writer.write(b"two")
        async with connected(proxy) as (_, other):
            other.write(b"three")
            await until(lambda: proxy.connections == 2)
            proxy.passage = Passage.OPEN
            with pytest.raises(ConnectionResetError):
                await reader.read()
        assert server.received == b"one"


async def test_the_first_half_arrives_and_then_the_connection_ends(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (server, proxy), connected(proxy) as (reader, writer):
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        proxy.halve()
        writer.write(b"four")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await until(lambda: server.received == b"onefo")


async def test_connections_are_reset_and_then_refused(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (_, proxy):
        async with connected(proxy) as (reader, writer):
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            proxy.passage = Passage.REFUSED
            with pytest.raises(ConnectionResetError):
                await reader.read()
        with pytest.raises(ConnectionResetError):
            async with connected(proxy) as (reader, _):
                await reader.read()


async def test_without_a_server_connections_are_reset(tmp_path: Path) -> None:
    async with TcpProxy(tmp_path / "nobody") as proxy, deadline():
        with pytest.raises(ConnectionResetError):
            async with connected(proxy) as (reader, _):
                await reader.read()
