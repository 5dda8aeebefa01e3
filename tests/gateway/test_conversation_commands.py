"""`/sessions`, `/title`, `/archive` and `/delete`, and the commands of the command line about whole conversations."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from plugins.api.command import CommandFailed, ConversationEntry
from plugins.commands.conversation_commands import LISTED, Archive, Delete, Sessions
from plugins.testing.command_checks import StaticConversation
from sessions.files.home_lock import HomeLock
from tests.faults.gateway_process import gateway_process
from tests.gateway.gateways import TOKEN, Client, gateway
from tests.gateway.test_deletions import BY_WORDS, places, sing
from tests.gateway.test_forks_and_titles import listed
from tests.gateway.test_people import ANA
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("unhurried_recall")


def sessions(home: Path, *arguments: str, typed: str = "") -> Result:
    """Return the result of a command of `exuvia sessions`."""
    return CliRunner().invoke(cli, ["sessions", *arguments, "--home", str(home)], input=typed)


def entry(key: str, at: str = "2026-11-21T03:12:41.603Z", **more: Any) -> ConversationEntry:
    return ConversationEntry(key=key, title=more.pop("title", ""), at=at, **more)


async def test_conversations_are_listed_pinned_ones_first_and_archived_ones_only_if_searched_for() -> None:
    view = StaticConversation()
    view.others = (
        entry("main"),
        entry("new", "2026-11-22T03:12:41.603Z", title="Crabs `walk`"),
        entry("old", pinned=True, running=True),
        entry("past", title="Past crabs", archived=True),
    )
    shown = (await Sessions().run("", view)).splitlines()
    assert [line.split(",")[0] for line in shown] == ["- `old`", "- `new` `Crabs ´walk´`", "- `main`"]
    assert shown[0].endswith("pinned, running")
    assert shown[2].endswith("this one")
    assert (await Sessions().run("PAST crab", view)).endswith("archived")
    assert await Sessions().run("lobster", view) == "No conversation has these words."
    view.others = tuple(entry(f"k{number}") for number in range(LISTED + 2))
    assert (await Sessions().run("", view)).endswith("- and 2 more")


async def test_a_deletion_is_asked_about_and_unknown_words_are_refused() -> None:
    view = StaticConversation()
    assert "`/delete yes`" in await Delete().run("", view)
    assert view.done == []
    for argument in ("no", "yes please"):
        with pytest.raises(CommandFailed):
            await Delete().run(argument, view)
    with pytest.raises(CommandFailed):
        await Archive().run("on", view)
    await Delete().run("yes facts", view)
    await Archive().run("off", view)
    assert view.done == [("delete", True), ("archive", False)]


async def test_a_conversation_is_named_archived_and_deleted_by_commands(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("one")
        await client.chat("two", session="other")
        assert await client.command("/title") == "This conversation has no title."
        assert await client.command("/title The \u202e garden") == "The title is `The garden`."
        assert "`main` `The garden`" in await client.command("/sessions", session="other")
        await client.command("/archive")
        assert (await listed(client))["main"]["archived"] is True
        assert "main" not in await client.command("/sessions", session="other")
        assert await client.command("/archive off") == "It is in your list again."
        assert await client.command("/title none") == "This conversation has no title."
        await client.command("/delete")
        assert set(await listed(client)) == {"main", "other"}
        assert "as soon as this answer is delivered" in await client.command("/delete yes")
        deleted = await client.until_type("deleted")
        assert (deleted["session"], deleted["removed"]["sessions"]) == ("main", 1)
        assert set(await listed(client)) == {"other"}


async def test_a_message_and_a_conversation_are_erased_after_a_question(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        for text in ("My first canary sings.", "The second one is quiet."):
            await client.chat(text)
        await client.chat("A third canary elsewhere.", session="other")
        asked = await client.command("/forget message")
        assert "quiet" not in asked, "a part of a text would stay in the log"
        (number,) = re.findall(r"`/forget message (\d+) yes`", asked)
        for wrong in (
            "/forget message 1 yes",
            "/forget message yes",
            f"/forget message {number}",
            "/forget conversation no",
        ):
            answer = await client.command(wrong)
            assert answer.startswith(("None of the last", "Write /forget")), answer
        assert "erased as soon as" in await client.command(f"/forget message {number} yes")
        await until(lambda: b"quiet" not in _journals(tmp_path))
        assert b"first canary" in _journals(tmp_path)
        assert "[erased]" in await client.command("/history")
        assert "/forget conversation yes" in await client.command("/forget conversation")
        assert "erased as soon as" in await client.command("/forget conversation yes")
        assert (await client.until_type("deleted"))["session"] == "main"
        assert b"first canary" not in _journals(tmp_path)
        assert b"third canary" in _journals(tmp_path)
        assert set(await listed(client)) == {"other"}


def _journals(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("*.jsonl"))


PEOPLE = f'[people.ana]\ntoken = "{ANA}"\n'


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the commands of this process the owner's token."""
    monkeypatch.setenv("EXUVIA_TOKEN", TOKEN)


@pytest.mark.usefixtures("owner")
async def test_beside_a_running_gateway_the_command_line_asks_it(tmp_path: Path) -> None:
    async with gateway_process(tmp_path) as running, aiohttp.ClientSession() as http:
        client = await running.connect(http)
        for session in ("main", "other"):
            await client.chat("one", session=session)

        async def changed(*arguments: str) -> str:
            result = await asyncio.to_thread(sessions, tmp_path, *arguments)
            assert result.exit_code == 0, result.output
            return result.stdout

        assert await changed("title", "main", "The \u202e garden") == "The title of main is 'The garden'.\n"
        assert (await listed(client))["main"]["title"] == "The garden"
        assert await changed("title", "main", "") == "main has no title.\n"
        assert await changed("archive", "main") == "main is archived.\n"
        assert (await listed(client))["main"]["archived"] is True
        assert await changed("archive", "main", "--undo") == "main is in the list again.\n"
        assert (await changed("fork", "main")).startswith("main-fork (")
        assert json.loads(await changed("fork", "main", "--key", "third", "--json"))["key"] == "third"
        assert set(await listed(client)) == {"main", "main-fork", "third", "other"}
        done = await changed("delete", "main", "--yes")
        assert done.startswith("main is deleted, 1 session.\nThis remains:\n- Forks that hold a copy of its beginning: ")
        assert (await client.until_type("deleted"))["session"] == "main"
        assert set(await listed(client)) == {"main-fork", "third", "other"}


@pytest.mark.usefixtures("owner")
async def test_what_a_running_gateway_refuses_the_command_line_says_in_the_same_words(tmp_path: Path) -> None:
    async with (
        gateway_process(tmp_path, script=[{"text": "slow", "delay_ms": 600_000}]) as running,
        aiohttp.ClientSession() as http,
    ):
        client = await running.connect(http)
        await client.send("one")
        await client.until_event("turn_started")
        for arguments, sentence in (
            (("delete", "nothing", "--yes"), "owner has no conversation 'nothing'; `exuvia sessions list`"),
            (("archive", "nothing"), "owner has no conversation 'nothing'; `exuvia sessions list`"),
            (("title", "main", "x", "--person", "bob"), "bob is not in [people]"),
            (("fork", "main", "--key", "main"), "A session 'main' exists already; choose another key."),
            (("fork", "nothing"), "There is no session 'nothing'"),
            (("delete", "main", "--yes"), "turn"),
        ):
            refused = await asyncio.to_thread(sessions, tmp_path, *arguments)
            assert (refused.exit_code, sentence in refused.stderr) == (2, True), refused.output
        assert set(await listed(client)) == {"main"}


@pytest.mark.usefixtures("owner")
async def test_the_command_line_changes_another_persons_conversation_as_that_person(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(PEOPLE)
    async with gateway_process(tmp_path) as running, aiohttp.ClientSession() as http:
        client = await running.connect(http)
        await client.chat("one")
        headers = {"Authorization": f"Bearer {ANA}"}
        ana = Client(await http.ws_connect(f"http://127.0.0.1:{running.port}/ws", headers=headers))
        await ana.chat("two")
        done = await asyncio.to_thread(sessions, tmp_path, "delete", "main", "--person", "ana", "--yes")
        assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "main is deleted, 1 session.")
        assert set(await listed(ana)) == set()
        assert set(await listed(client)) == {"main"}


def test_a_home_that_something_else_holds_is_left_alone(tmp_path: Path) -> None:
    with HomeLock(tmp_path / "lock"):
        for command in (("delete", "main", "--yes"), ("archive", "main"), ("title", "main", "x")):
            refused = sessions(tmp_path, *command)
            assert (refused.exit_code, "in use by another gateway" in refused.stderr) == (2, True)


def test_the_command_line_asks_before_it_deletes(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    assert sessions(tmp_path, "delete", "main", typed="n\n").exit_code == 1
    unknown = sessions(tmp_path, "delete", "main", "--yes")
    assert (unknown.exit_code, "has no conversation 'main'" in unknown.stderr) == (2, True)


async def test_what_the_command_line_did_is_there_after_the_next_start(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        await sing(running)
    archived = await asyncio.to_thread(sessions, tmp_path, "archive", "other")
    assert (archived.exit_code, archived.stdout) == (0, "other is archived.\n")
    titled = await asyncio.to_thread(sessions, tmp_path, "title", "other", "The \u202e garden")
    assert (titled.exit_code, titled.stdout) == (0, "The title of other is 'The garden'.\n")
    done = await asyncio.to_thread(sessions, tmp_path, "delete", "main", "--yes")
    assert (done.exit_code, done.stdout.startswith("main is deleted, 2 sessions.")) == (0, True)
    assert not any(place.startswith("sessions/") or place == "catalog.sqlite" for place in places(tmp_path))
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        client = await running.connect()
        await until(lambda: "deletion_finished" in (tmp_path / "deletions.jsonl").read_text())
        await client.say("subscribe", id="s", session="other")
        assert (await client.until_type("settings", id="s"))["archived"] is True
        assert {key: row["title"] for key, row in (await listed(client)).items()} == {"other": "The garden"}
        assert places(tmp_path) == set()
