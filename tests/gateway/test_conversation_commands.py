"""`/sessions`, `/title`, `/archive` and `/delete`, and the commands of the command line about whole conversations."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from plugins.api.command import CommandFailed, ConversationEntry
from plugins.commands.conversation_commands import LISTED, Archive, Delete, Sessions
from plugins.testing.command_checks import StaticConversation
from tests.faults.gateway_process import gateway_process
from tests.gateway.gateways import gateway
from tests.gateway.test_deletions import BY_WORDS, places, sing
from tests.gateway.test_forks_and_titles import listed
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


async def test_the_command_line_deletes_nothing_while_a_gateway_runs(tmp_path: Path) -> None:
    async with gateway_process(tmp_path):
        for command in (("delete", "main", "--yes"), ("archive", "main")):
            refused = await asyncio.to_thread(sessions, tmp_path, *command)
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
    done = await asyncio.to_thread(sessions, tmp_path, "delete", "main", "--yes")
    assert (done.exit_code, done.stdout.startswith("main is deleted, 2 sessions.")) == (0, True)
    assert not any(place.startswith("sessions/") or place == "catalog.sqlite" for place in places(tmp_path))
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        client = await running.connect()
        await until(lambda: "deletion_finished" in (tmp_path / "deletions.jsonl").read_text())
        await client.say("subscribe", id="s", session="other")
        assert (await client.until_type("settings", id="s"))["archived"] is True
        assert set(await listed(client)) == {"other"}
        assert places(tmp_path) == set()
