"""Forks and titles of sessions over the websocket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from gateway.cli.main import cli
from sessions.events.events import SettingChanged
from tests.gateway.gateways import Client, Frame, gateway, replies_wait
from tests.gateway.test_people import ANA
from tests.sessions.journal_files import write_journal
from tests.waiting import deadline


async def fork(client: Client, **fields: Any) -> Frame:
    """Send a `fork` and return its answer."""
    await client.say("fork", id="f", session=fields.pop("session", "main"), **fields)
    return await client.until(lambda frame: frame.get("id") == "f")


async def listed(client: Client) -> dict[str, Frame]:
    """Return the sessions by their keys."""
    await client.say("sessions", id="s")
    frame = await client.until_type("sessions", id="s")
    return {row["session"]: row for row in frame["sessions"]}


async def test_a_fork_goes_on_from_a_past_moment_while_its_parent_goes_on_too(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        for text in ("one", "two"):
            await client.chat(text)
        second = next(e for _, e in client.events() if e["kind"] == "message_received" and e["text"] == "two")
        made = await fork(client, upto=second["seq"] - 1)
        assert (made["type"], made["session"], made["parent_seq"]) == ("forked", "main-fork", second["seq"] - 1)
        assert await client.chat("another two", session="main-fork") == "another two"
        assert await client.chat("three") == "three"
        said = {
            key: [e["text"] for e in events if e["kind"] == "message_received"] for key, events in running.journals().items()
        }
        assert said == {made["parent"]: ["one", "two", "three"], made["session_id"]: ["one", "another two"]}


async def test_a_fork_in_the_middle_of_a_turn_ends_before_it(tmp_path: Path) -> None:
    async with gateway(tmp_path, script=[{"text": "first"}, {"text": "a b c d e f"}]) as running:
        client = await running.connect()
        await client.chat("one")
        end = client.events()[-1][1]["seq"]
        with replies_wait() as go_on:
            await client.send("two")
            await client.until_type("delta")
            made = await fork(client)
            assert made["parent_seq"] == end
            assert running.journals()[made["session_id"]][-1]["kind"] == "session_forked"
            go_on.set()
            await client.until_event("turn_ended")


async def test_a_fork_before_the_turn_of_a_message_that_waited_has_the_turn_before_and_not_the_message(
    tmp_path: Path,
) -> None:
    script: list[Frame] = [
        {"text": "first"},
        {"text": "a b c d"},
        {"text": "third"},
        {"text": "in the fork"},
    ]
    async with gateway(tmp_path, script=script) as running:
        client = await running.connect()
        await client.chat("alpha")
        with replies_wait() as go_on:
            await client.send("beta")
            await client.until_type("delta")
            await client.until_answered(await client.send("gamma"))
            go_on.set()
            await client.until_event("turn_ended")
            taken = await client.until_event("turn_started")
            ended = await client.until_event("turn_ended")
            made = await fork(client, upto=taken["seq"] - 1)
            assert made["parent_seq"] == taken["seq"] - 1
            behind = await fork(client, upto=ended["seq"])
            assert behind["parent_seq"] == ended["seq"]
            shown = await client.command("/history", session=made["session"])
            assert [text in shown for text in ("alpha", "first", "beta", "a b c d", "gamma", "third")] == [True] * 4 + [
                False
            ] * 2
    async with gateway(tmp_path, script=script[3:]) as running:  # nothing waits in the fork, also after a restart
        client = await running.connect()
        assert await client.chat("delta", session=made["session"]) == "in the fork"
        turns = [e["takes"] for e in running.journals()[made["session_id"]] if e["kind"] == "turn_started"]
        assert len(turns) == 3
    listed_ = CliRunner().invoke(cli, ["sessions", "show", made["session"], "--home", str(tmp_path)]).stdout
    assert f"forked from {made['parent']}" in listed_
    assert "waited" in listed_


async def test_a_fork_survives_a_restart_and_forks_have_keys_of_their_own(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("one")
        made = [await fork(client) for _ in range(2)] + [await fork(client, key="elsewhere")]
        assert [frame["session"] for frame in made] == ["main-fork", "main-fork-2", "elsewhere"]
        again = await fork(client, key="elsewhere")
        assert (again["type"], again["code"]) == ("error", "bad_request")
        assert (await fork(client, session="nobody"))["code"] == "unknown_session"
        assert (await fork(client, session_id="20261121-000000-aaaaaa"))["code"] == "unknown_session"
    async with gateway(tmp_path) as running:
        client = await running.connect()
        assert list(await listed(client)) == ["elsewhere", "main", "main-fork", "main-fork-2"]
        assert await client.chat("two", session="main-fork-2") == "two"


async def test_forks_that_are_made_at_once_are_all_whole(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("one")
        for number in range(8):
            await client.say("fork", id=f"f{number}", session="main")
        made = [await client.until(lambda frame: frame["type"] == "forked") for _ in range(8)]
        assert len({frame["session"] for frame in made}) == 8
        assert await asyncio.gather(*(client_of(running, frame["session"]) for frame in made)) == ["two"] * 8


async def client_of(running: Any, key: str) -> str:
    client: Client = await running.connect()
    return await client.chat("two", session=key)


async def test_nobody_forks_or_renames_what_is_anothers(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"people.ana.token": ANA}) as running:
        owner, ana = await running.connect(), await running.connect(ANA)
        await owner.chat("one")
        await ana.chat("hers")
        parent = next(s for s, events in running.journals().items() if events[0]["person"] == "owner")
        assert (await fork(ana, session_id=parent))["code"] == "unknown_session"
        await ana.say("rename", id="r", session="main", title="Hers")
        await ana.until_type("settings", id="r")
        assert (await listed(owner))["main"]["title"] == ""


async def test_a_title_is_told_to_everybody_who_follows_and_outlives_a_restart_and_new(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client, other = await running.connect(), await running.connect()
        await client.chat("one")
        await other.say("subscribe", id="s", session="main")
        assert (await other.until_type("settings", id="s"))["title"] == ""
        await client.say("rename", id="r", session="main", title="The \n garden\u202e ")
        assert (await client.until_type("settings", id="r"))["title"] == "The garden"
        assert (await other.until_type("settings"))["title"] == "The garden"
        assert (await listed(client))["main"]["title"] == "The garden"
        await client.command("/new")
        assert (await listed(client))["main"]["title"] == "The garden"
    (tmp_path / "catalog.sqlite").unlink()
    async with gateway(tmp_path) as running:
        client = await running.connect()
        async with deadline():  # a lost catalog is made again behind the start
            while (await listed(client))["main"]["title"] != "The garden":
                await asyncio.sleep(0.02)
        await client.say("rename", id="r", session="main", title="")
        assert (await client.until_type("settings", id="r"))["title"] == ""
        assert (await listed(client))["main"]["title"] == ""


async def test_the_list_has_what_a_sidebar_shows(tmp_path: Path) -> None:
    script: list[Frame] = [{"text": "first"}, {"text": "a b c d e f"}]
    async with gateway(tmp_path, script=script) as running:
        client = await running.connect()
        await client.chat("one")
        row = (await listed(client))["main"]
        began = next(e for _, e in client.events() if e["kind"] == "turn_ended")
        opened = running.journals()[row["session_id"]][0]["at"]
        assert row | {"head": 0, "at": ""} == {
            "session": "main", "session_id": row["session_id"], "head": 0, "at": "", "title": "", "created": opened,
            "beginning": "one", "replied": began["seq"],
        }  # fmt: skip
        await client.command("/new")
        successor = (await listed(client))["main"]
        assert (successor["created"], successor["session_id"] == row["session_id"]) == (opened, False)
        made = await fork(client, session_id=row["session_id"])
        assert (await listed(client))["main-fork"]["origin"] == {
            "session_id": row["session_id"], "seq": made["parent_seq"], "session": "main"
        }  # fmt: skip
        with replies_wait() as go_on:
            await client.send("two", session="main-fork")
            await client.until_type("delta")
            assert {key for key, row in (await listed(client)).items() if row.get("running")} == {"main-fork"}
            go_on.set()
            await client.until_event("turn_ended")
            await client.say("sessions", id="later")
            rows = (await client.until_type("sessions", id="later"))["sessions"]
            assert ["running" in row for row in rows] == [False, False]


async def test_a_conversation_is_pinned_and_archived_for_all_its_sessions_but_not_its_forks(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client, other = await running.connect(), await running.connect()
        await client.chat("one")
        await other.say("subscribe", id="s", session="main")
        before = await other.until_type("settings", id="s")
        assert (before["pinned"], before["archived"]) == (False, False)
        await client.say("pin", id="p", session="main", pinned=True)
        assert (await client.until_type("settings", id="p"))["pinned"] is True
        assert (await other.until_type("settings"))["pinned"] is True
        await client.say("archive", id="a", session="main", archived=True)
        assert (await client.until_type("settings", id="a"))["archived"] is True
        assert (await other.until_type("settings"))["archived"] is True
        await fork(client)
        await client.command("/new")
        rows = await listed(client)
        assert (rows["main"]["pinned"], rows["main"]["archived"]) == (True, True)
        assert {"pinned", "archived"} & rows["main-fork"].keys() == set()
    (tmp_path / "catalog.sqlite").unlink()
    async with gateway(tmp_path) as running:
        client = await running.connect()
        async with deadline():  # a lost catalog is made again behind the start
            while not (await listed(client))["main"].get("archived"):
                await asyncio.sleep(0.02)
        assert {"pinned", "archived"} & (await listed(client))["main-fork"].keys() == set()
        for kind, field in (("pin", "pinned"), ("archive", "archived")):
            await client.say(kind, id=kind, session="main", **{field: False})
            assert (await client.until_type("settings", id=kind))[field] is False
        assert {"pinned", "archived"} & (await listed(client))["main"].keys() == set()


async def test_titles_of_earlier_versions_are_read(tmp_path: Path) -> None:
    write_journal(tmp_path / "sessions", 1, SettingChanged(name="title", value="Crabs", by="owner"))
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.say("subscribe", id="s", session="main")
        assert (await client.until_type("settings", id="s"))["title"] == "Crabs"


async def test_without_a_title_a_list_has_the_beginning_of_the_first_message(tmp_path: Path) -> None:
    first = "Which roses\n\tare pruned in winter, and " + "how far " * 40
    shown = "Which roses are pruned in winter, and how far how far how…"
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.command("/status")
        assert "beginning" not in (await listed(client))["main"]
        await client.chat(first)
        await client.chat("thanks")
        assert (await listed(client))["main"]["beginning"] == shown
        assert f"- `main` `{shown}`, " in await client.command("/sessions roses")
        await fork(client)
        assert (await listed(client))["main-fork"]["beginning"] == shown
    async with gateway(tmp_path) as running:
        client = await running.connect()
        assert (await listed(client))["main"]["beginning"] == shown
        await client.command("/title Roses")
        row = (await listed(client))["main"]
        assert (row["title"], "beginning" in row) == ("Roses", False)
        await client.command("/title none")
        assert (await listed(client))["main"]["beginning"] == shown
