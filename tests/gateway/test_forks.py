"""Forks from the command line, and the list of a session's compactions."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from sessions.files.home_lock import HomeLock
from tests.gateway.gateways import Gateway, gateway
from tests.gateway.test_cli_sessions import opened, write

LONG = "The parser in src/parser.py reads one line at a time and tells the caller where it stopped. " * 12
SETTINGS = {"agent.context_window": 20_000, "compaction.summarizer": "extract"}


def sessions(home: Path, *arguments: str) -> Result:
    with ThreadPoolExecutor(1) as thread:  # the command has an event loop of its own
        return thread.submit(CliRunner().invoke, cli, ["sessions", *arguments, "--home", str(home)]).result()


def told(home: Path, *arguments: str) -> Any:
    result = sessions(home, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def shown(running: Gateway, session: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in running.journals()[session] if event["kind"] == kind]


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """Create a home whose session `main` had five turns, a compaction, a reverted one, and another turn."""
    async with gateway(tmp_path, settings=SETTINGS) as running:
        client = await running.connect()
        for number in range(5):
            await client.chat(f"{number}: {LONG}")
        await client.command("/compact the parser")
        for number in range(3):
            await client.chat(f"again {number}: {LONG}")
        await client.command("/compact")
        assert "Reverted compaction" in await client.command("/revert 2")
        await client.send("the last word", id_="an-id-of-the-parent")
        await client.until_event("turn_ended")
    return tmp_path


async def test_compactions_are_listed_with_everything_that_is_known_of_them(home: Path) -> None:
    first, second = told(home, "compactions", "main")
    assert (first["number"], first["why"], first["by"], first["in_force"]) == (1, "requested", "extract", True)
    assert (second["number"], second["in_force"]) == (2, False)
    assert first["tokens_before"] > first["tokens_after"] > 0
    assert first["messages"] > 0
    assert "src/parser.py" in first["kept"]
    assert first["summary"]
    text = sessions(home, "compactions", "main").stdout
    assert f"1. {first['at']} (requested), in force\n" in text
    assert (
        f"   {first['messages']} messages, {first['tokens_before']:,} → {first['tokens_after']:,} tokens, by extract" in text
    )
    assert f"2. {second['at']} (requested), reverted\n" in text
    assert "   kept src/parser.py\n" in text


def test_a_session_without_compactions_says_so(tmp_path: Path) -> None:
    write(tmp_path, "20261121-090000-bbbbbb", 21, [opened("20261121-090000-bbbbbb", "main")])
    assert sessions(tmp_path, "compactions", "main").stdout == "No compactions in this session.\n"
    assert told(tmp_path, "compactions", "main") == []
    assert sessions(tmp_path, "compactions", "nobody").exit_code == 2


async def test_a_fork_is_talked_to_compacted_and_taken_back_like_any_session(home: Path) -> None:
    made = told(home, "fork", "main")
    assert made["key"] == "main-fork"
    assert [listing["key"] for listing in told(home, "list")] == ["main", "main-fork"]
    assert told(home, "list")[1]["parent"] == made["parent"]
    assert sessions(home, "verify").exit_code == 0
    before = (home / "sessions" / f"{made['parent']}.jsonl").read_bytes()
    async with gateway(home, settings=SETTINGS) as running:
        client = await running.connect()
        await client.say("sessions", id="s")
        listed = await client.until_type("sessions")
        assert [(each["session"], each["session_id"]) for each in listed["sessions"]] == [
            ("main", made["parent"]),
            ("main-fork", made["session"]),
        ]
        await client.send("the last word", session="main-fork", id_="an-id-of-the-parent")
        assert (await client.until_answered("an-id-of-the-parent"))["duplicate"] is False
        await client.until_event("turn_ended")
        for number in range(3):
            await client.chat(f"in the fork {number}: {LONG}", session="main-fork")
        assert "Complete" in await client.command("/compact", session="main-fork")
        assert "Reverted compaction" in await client.command("/revert 3", session="main-fork")
        assert "**3**" in await client.command("/compactions", session="main-fork")
        last = shown(running, made["session"], "request_sent")[-1]
        copied = shown(running, made["parent"], "request_sent")
    assert (home / "sessions" / f"{made['parent']}.jsonl").read_bytes() == before
    assert last["seq"] > copied[-1]["seq"]
    async with gateway(home, settings=SETTINGS) as running:  # and it is there after another start, also by its checkpoint
        client = await running.connect()
        await client.chat("still there?", session="main-fork")
        assert "answer" not in await client.command("/new", session="main-fork")
    assert sessions(home, "verify").exit_code == 0
    for turn in ("1", "9", "10", "13", "14"):
        result = CliRunner().invoke(cli, ["context", made["session"], "--turn", turn, "--home", str(home)])
        assert (result.exit_code, "DIFFERS" in result.stdout) == (0, False)
    assert [entry["in_force"] for entry in told(home, "compactions", made["session"])] == [True, False, False]


async def test_a_fork_may_begin_at_a_past_event_and_under_any_free_key(home: Path) -> None:
    past = told(home, "compactions", "main")[0]
    ends = [entry["seq"] for entry in told(home, "show", "main") if entry["who"] == "assistant"]
    at = ends[2] + 1  # the third turn's end
    made = told(home, "fork", "main", "--at", str(at), "--key", "what-if")
    assert (made["parent_seq"], made["key"]) == (at, "what-if")
    assert told(home, "compactions", "what-if") == []
    assert past["number"] == 1
    keys = [told(home, "fork", "what-if")["key"], told(home, "fork", "what-if")["key"]]
    assert keys == ["what-if-fork", "what-if-fork-2"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("main", "--key", "work"), "A session 'work' exists already; choose another key."),
        (("main", "--key", "no key"), "'no key' is not a valid key; a key is letters from A to Z, digits, dots, "),
        (("main", "--at", "9"), "has no event 9; its last is 1."),
        (("nobody",), "There is no session 'nobody'"),
    ],
)
def test_what_cannot_be_forked_is_refused_with_a_sentence(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    for session, key in (("20261121-090000-bbbbbb", "main"), ("20261121-090000-cccccc", "work")):
        write(tmp_path, session, 21, [opened(session, key)])
    result = sessions(tmp_path, "fork", *arguments)
    assert (result.exit_code, sentence in result.output) == (2, True), result.output
    assert len(list((tmp_path / "sessions").iterdir())) == 2


def test_a_fork_stays_its_persons_whose_keys_alone_are_in_its_way(tmp_path: Path) -> None:
    anna = msgspec.structs.replace(opened("20261121-090000-bbbbbb", "main"), person="anna")
    write(tmp_path, "20261121-090000-bbbbbb", 21, [anna])
    write(tmp_path, "20261121-090000-cccccc", 21, [opened("20261121-090000-cccccc", "main-fork")])
    made = told(tmp_path, "fork", "20261121-090000-bbbbbb")
    assert [(each["person"], each["key"]) for each in told(tmp_path, "list") if each["session"] == made["session"]] == [
        ("anna", "main-fork")
    ]


def test_a_long_key_is_shortened_so_that_its_fork_has_one_too(tmp_path: Path) -> None:
    write(tmp_path, "20261121-090000-bbbbbb", 21, [opened("20261121-090000-bbbbbb", "k" * 64)])
    assert told(tmp_path, "fork", "k" * 64)["key"] == "k" * 59 + "-fork"


def test_while_a_gateway_has_the_home_nothing_is_forked(tmp_path: Path) -> None:
    write(tmp_path, "20261121-090000-bbbbbb", 21, [opened("20261121-090000-bbbbbb", "main")])
    with HomeLock(tmp_path / "lock"):
        result = sessions(tmp_path, "fork", "main")
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert "is in use by another gateway" in result.output
    assert len(list((tmp_path / "sessions").iterdir())) == 1
    assert sessions(tmp_path, "fork", "main").output.startswith("main-fork (")
