"""A journal that is missing, or has lost its end, stops its key until a person confirms that this is intended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from gateway.cli.main import cli
from sessions.catalog.durability_check import acknowledged_heads
from tests.faults.gateway_process import gateway_process
from tests.gateway.gateways import TOKEN, Client, Gateway, gateway
from tests.waiting import deadline, until


def sessions(home: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["sessions", *words, "--home", str(home)])


async def talked(home: Path, *texts: str) -> Path:
    """Return the journal of a stopped gateway that answered these messages in `main`."""
    async with gateway(home) as g:
        client = await g.connect()
        for text in texts or ("one", "two"):
            await client.chat(text)
    (journal,) = (home / "sessions").glob("*.jsonl")
    return journal


async def refused(client: Client, text: str = "anybody there?") -> str:
    """Return the sentence with which a message to `main` is refused."""
    id_ = await client.send(text)
    error = await client.until_answered(id_)
    assert (error["type"], error["code"]) == ("error", "storage_failed"), error
    sentence: str = error["message"]
    return sentence


async def troubles(g: Gateway) -> list[str]:
    async with g.http.get(f"{g.url}/status.json", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
        return list((await answer.json())["troubles"])


async def test_the_key_of_a_journal_that_is_gone_is_refused_by_name_at_every_start(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    journal.unlink()
    for _ in range(2):
        async with gateway(tmp_path) as g:
            client = await g.connect()
            sentence = await refused(client)
            assert f"{journal.name}: it is missing" in sentence
            assert "/new starts another session" in sentence
            assert await client.chat("hi", session="other") == "hi"
            assert any("1 journal is damaged, missing or unreadable" in each for each in await troubles(g))
        assert not journal.exists()
        assert sessions(tmp_path, "verify").exit_code == 1


async def test_a_journal_that_is_gone_is_logged_at_the_start(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    journal.unlink()
    async with gateway_process(tmp_path) as running:
        log = running.log.read_text()
        assert f'"event": "journal_unreadable", "journal": "{journal.name}", "reason": "it is missing"' in log
        assert await running.stop() == 0


async def test_after_new_the_key_goes_on_and_the_loss_stays_known_until_it_is_forgotten(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    journal.unlink()
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await refused(client)
        await client.command("/new")
        assert await client.chat("back again") == "back again"
    async with gateway(tmp_path) as g:
        assert await (await g.connect()).chat("still here") == "still here"
        assert await troubles(g) != []
    assert sessions(tmp_path, "verify").exit_code == 1
    assert sessions(tmp_path, "forget", journal.stem).exit_code == 0
    assert sessions(tmp_path, "verify").exit_code == 0
    async with gateway(tmp_path) as g:
        assert await (await g.connect()).chat("and well") == "and well"
        assert await troubles(g) == []


async def test_after_the_loss_is_confirmed_the_key_starts_over(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    journal.unlink()
    done = sessions(tmp_path, "forget", journal.stem)
    assert (done.exit_code, journal.stem in done.output) == (0, True)
    async with gateway(tmp_path) as g:
        assert await (await g.connect()).chat("anew") == "anew"
        assert await troubles(g) == []


async def test_after_the_current_session_is_forgotten_a_new_one_succeeds_the_closed_one(tmp_path: Path) -> None:
    first = await talked(tmp_path)
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.command("/new")
        await client.chat("in the second")
        await until(lambda: b'"session_closed"' in first.read_bytes())
    (second,) = set((tmp_path / "sessions").iterdir()) - {first}
    before = first.read_bytes()
    second.unlink()
    assert sessions(tmp_path, "forget", second.stem).exit_code == 0
    async with gateway(tmp_path) as g:
        client = await g.connect()
        assert await client.chat("in the third") == "in the third"
        (third,) = (events for session, events in g.journals().items() if session != first.stem)
        assert third[0]["succeeds"]["session"] == first.stem
    assert first.read_bytes() == before


async def test_a_restored_journal_continues(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    journal.rename(tmp_path / "away")
    async with gateway(tmp_path) as g:
        await refused(await g.connect())
    (tmp_path / "away").rename(journal)
    async with gateway(tmp_path) as g:
        assert await (await g.connect()).chat("three") == "three"
        assert len(g.journals()) == 1
        assert await troubles(g) == []


async def test_a_journal_that_is_deleted_while_the_gateway_runs_takes_no_message_and_stops_its_key_alone(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("one")
        (journal,) = (tmp_path / "sessions").iterdir()
        journal.unlink()
        assert f"{journal.name} is missing" in await refused(client, "two")
        async with deadline():
            while "/new starts another session" not in await refused(client, "three"):
                await asyncio.sleep(0.1)  # it is opened again after a pause, and only then known to be lost
        assert await client.chat("hi", session="other") == "hi"
        assert any("missing" in each for each in await troubles(g))
        await client.command("/new")
        assert await client.chat("back again") == "back again"
        assert not journal.exists()


async def test_a_journal_that_lost_its_end_is_refused_also_without_a_checkpoint(tmp_path: Path) -> None:
    async with gateway_process(tmp_path) as running, aiohttp.ClientSession() as http:
        client = await running.connect(http)
        await client.chat("one")
        (journal,) = (tmp_path / "sessions").iterdir()
        async with deadline():
            while acknowledged_heads(tmp_path / "catalog.sqlite").get(journal.stem) != len(
                journal.read_bytes().splitlines()
            ):
                await asyncio.sleep(0.05)
        await running.kill()
    lines = journal.read_bytes().splitlines(keepends=True)
    cut = b"".join(lines[:-1])
    journal.write_bytes(cut)
    for _ in range(2):
        async with gateway(tmp_path) as g:
            assert "acknowledged events are missing" in await refused(await g.connect())
            assert any("journal" in each for each in await troubles(g))
        assert journal.read_bytes() == cut
        assert sessions(tmp_path, "verify").exit_code == 1
    assert f"continues from event {len(lines) - 1}" in sessions(tmp_path, "forget", journal.stem).output
    async with gateway(tmp_path) as g:
        assert await (await g.connect()).chat("two") == "two"
        assert await troubles(g) == []
    assert sessions(tmp_path, "verify").exit_code == 0


async def test_without_the_catalog_nothing_is_missing(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    journal.unlink()
    (tmp_path / "catalog.sqlite").unlink()
    async with gateway(tmp_path) as g:
        assert await (await g.connect()).chat("anew") == "anew"
        assert await troubles(g) == []


async def test_a_client_is_told_whatever_it_asks_of_a_session_whose_journal_is_gone(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    journal.unlink()
    async with gateway(tmp_path) as g:
        client = await g.connect()
        for type_, fields in (
            ("subscribe", {"session": "main", "after": 0}),
            ("history", {"session": "main", "id": "h", "before": 5}),
            ("fork", {"session": "main", "id": "f"}),
            ("rename", {"session": "main", "id": "r", "title": "T"}),
        ):
            await client.say(type_, **fields)
            error = await client.until_type("error")
            assert error["code"] in ("storage_failed", "bad_request"), error
        await client.say("sessions", id="s")
        listed = await client.until_type("sessions")
        assert [each["session"] for each in listed["sessions"]] == ["main"]


async def test_only_what_is_missing_is_forgotten_and_only_while_no_gateway_runs(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    whole = sessions(tmp_path, "forget", journal.stem)
    assert (whole.exit_code, "Nothing is missing from" in whole.stderr) == (2, True)
    unknown = sessions(tmp_path, "forget", "20200101-000000-aaaaaa")
    assert (unknown.exit_code, "has no session" in unknown.stderr) == (2, True)
    async with gateway_process(tmp_path):
        running = sessions(tmp_path, "forget", journal.stem)
        assert (running.exit_code, "in use by another gateway" in running.stderr) == (2, True)
    assert sessions(tmp_path, "verify").exit_code == 0


@pytest.mark.parametrize("left", [b"", b'{"seq":1,"at":"20'])
async def test_a_journal_whose_first_line_never_reached_the_disk_is_removed_and_said_once(
    tmp_path: Path, left: bytes
) -> None:
    await talked(tmp_path)
    begun = tmp_path / "sessions" / "20261121-031241-7k2m9q.jsonl"
    begun.write_bytes(left)
    for times in (1, 0):
        with capture_logs() as logs:
            async with gateway(tmp_path) as g:
                assert await troubles(g) == []
        assert [entry["journal"] for entry in logs if entry["event"] == "journal_not_begun"] == [begun.name] * times
        assert not begun.exists()
        assert [path.read_bytes() for path in (tmp_path / "quarantine").glob("*")] == [left] * bool(left)
    assert sessions(tmp_path, "verify").exit_code == 0
