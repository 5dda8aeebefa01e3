"""A disk that is full or fails: what is refused is said, what was accepted stays, and the gateway recovers or ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.faults.gateway_process import gateway_process, journals, verify
from tests.waiting import deadline, until


def journal_of(home: Path) -> Path:
    (path,) = (home / "sessions").glob("*.jsonl")
    return path


async def talk_once(home: Path) -> None:
    """A first run, so that the session's journal has a name that strace can be told."""
    async with gateway_process(home) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        await client.chat("hello")
        assert await gateway.stop() == 0


def check_each_message_once(home: Path, accepted: set[str]) -> None:
    (lines,) = journals(home)
    received = Counter(event["id"] for event in lines if event["kind"] == "message_received")
    assert set(received.values()) == {1}
    assert accepted <= set(received)
    answered = [event for event in lines if event["kind"] == "turn_ended"]
    assert len(answered) == len(received)


async def test_after_a_failed_write_the_message_is_refused_and_the_session_recovers_by_itself(tmp_path: Path) -> None:
    await talk_once(tmp_path)
    faults = ["-P", str(journal_of(tmp_path)), "-e", "inject=pwrite64:error=EIO:when=2"]
    accepted = set()
    async with gateway_process(tmp_path, faults=faults) as gateway, aiohttp.ClientSession() as http:
        refused = 0
        for number in range(12):
            client = await gateway.connect(http)
            id_ = f"m{number}"
            for _ in range(20):
                await client.send("hi", id_=id_)
                frame = await client.until_answered(id_)
                if frame["type"] == "accepted":
                    accepted.add(id_)
                    break
                assert frame["code"] == "storage_failed"
                refused += 1
                await asyncio.sleep(0.2)
        await until(lambda: Counter(e["kind"] for e in journals(tmp_path)[0])["turn_ended"] >= 13)
        assert len(accepted) == 12
        assert await gateway.stop() == 0
        assert "Traceback" not in gateway.log.read_text()
    assert await verify(tmp_path) == 0
    check_each_message_once(tmp_path, accepted)


async def test_after_a_failed_sync_nothing_more_is_acknowledged_and_the_gateway_ends(tmp_path: Path) -> None:
    await talk_once(tmp_path)
    faults = ["-P", str(journal_of(tmp_path)), "-e", "inject=fdatasync:error=EIO:when=2+"]
    accepted = set()
    async with gateway_process(tmp_path, faults=faults) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        for number in range(50):
            id_ = f"m{number}"
            await client.send("hi", id_=id_)
            frame = await client.until_answered(id_)
            if frame["type"] == "error":
                assert frame["code"] == "storage_failed"
                break
            accepted.add(id_)
        else:
            raise AssertionError("no sync failed")
        async with deadline():
            while True:
                async with http.get(f"http://127.0.0.1:{gateway.port}/readyz") as answer:
                    if answer.status == 503:
                        break
                await asyncio.sleep(0.02)
        async with deadline():
            assert await gateway.process.wait() == 1
        assert "Traceback" not in gateway.log.read_text()
    async with gateway_process(tmp_path) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        for id_ in (*accepted, "after"):
            await client.send("hi", id_=id_)
            frame = await client.until_type("accepted", id=id_)
            assert frame["duplicate"] == (id_ in accepted)
        async with deadline():
            while not (counts := Counter(e["kind"] for e in journals(tmp_path)[0])) or (
                counts["turn_ended"] < counts["message_received"]
            ):
                await asyncio.sleep(0.05)
        assert await gateway.stop() == 0
    assert await verify(tmp_path) == 0
    check_each_message_once(tmp_path, accepted | {"after"})


async def test_nothing_is_acknowledged_after_the_folder_was_moved_away_and_the_gateway_ends(tmp_path: Path) -> None:
    async with gateway_process(tmp_path) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        await client.chat("hello")
        (tmp_path / "sessions").rename(tmp_path / "moved")
        (journal,) = (tmp_path / "moved").iterdir()
        before = journal.read_bytes()
        await client.send("and now?", id_="x")
        error = await client.until_answered("x")
        assert (error["type"], error["code"]) == ("error", "storage_failed")
        assert f"The folder {tmp_path / 'sessions'} is missing" in error["message"]
        async with http.get(f"http://127.0.0.1:{gateway.port}/readyz") as answer:
            assert answer.status == 503
        async with deadline():
            assert await gateway.process.wait() == 1
        assert journal.read_bytes() == before
        assert not (tmp_path / "sessions").exists()
        assert "Traceback" not in gateway.log.read_text()
    (tmp_path / "moved").rename(tmp_path / "sessions")
    async with gateway_process(tmp_path) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        assert await client.chat("back again") == "back again"
        assert await gateway.stop() == 0
    assert await verify(tmp_path) == 0
    assert len(journals(tmp_path)) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A home on a file system of 400 kB."""
    home = tmp_path / "small"
    home.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs", str(home)], check=False).returncode
    ):
        pytest.skip("a file system of its own needs root and the right to mount")
    try:
        yield home
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


async def test_on_a_full_disk_messages_are_refused_and_accepted_again_when_there_is_space(small_disk: Path) -> None:
    filler = small_disk / "filler"
    async with gateway_process(small_disk) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        await client.chat("hello")
        try:
            filler.write_bytes(b"x" * 1024 * 1024)
        except OSError:
            assert filler.stat().st_size > 10_000
        await client.send("y" * 50_000, id_="big")
        assert (await client.until_type("error", id="big"))["code"] == "storage_failed"
        filler.unlink()
        async with deadline():
            while True:
                await client.send("y" * 50_000, id_="big")
                frame = await client.until_answered("big")
                if frame["type"] == "accepted":
                    break
                await asyncio.sleep(0.2)
        assert frame["duplicate"] is False
        await client.until_event("turn_ended")
        assert await client.chat("and on") == "and on"
        assert await gateway.stop() == 0
        assert "Traceback" not in gateway.log.read_text()
    assert await verify(small_disk) == 0
    check_each_message_once(small_disk, {"big"})


@pytest.mark.parametrize("with_checkpoint", [False, True])
async def test_a_damaged_journal_stops_only_its_key_and_is_left_unchanged(tmp_path: Path, with_checkpoint: bool) -> None:
    async with gateway_process(tmp_path) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        await client.chat("hello")
        await (gateway.stop() if with_checkpoint else gateway.kill())
    path = journal_of(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:2], lines[2].replace(b'"turn":1', b'"turn":2'), *lines[3:]])
    path.write_bytes(damaged)
    assert await verify(tmp_path) == 1
    async with gateway_process(tmp_path) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        await client.send("anybody there?", id_="x")
        error = await client.until_type("error", id="x")
        assert error["code"] == "storage_failed"
        assert "line 3" in error["message"]
        assert "/new" in error["message"]
        assert await client.chat("hi", session="other") == "hi"
        await client.command("/new")
        assert await client.chat("back again") == "back again"
        assert path.read_bytes() == damaged
        await client.send("back again", id_="y")
        assert (await client.until_type("accepted", id="y"))["session_id"] != path.stem
        await gateway.kill()
    async with gateway_process(tmp_path) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        await client.send("still here")  # the turn that was killed may be answered first
        await client.until(lambda frame: frame.get("event", {}).get("text") == "still here" and "reply" in frame["event"])
        assert path.read_bytes() == damaged
