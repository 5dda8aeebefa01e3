"""`exuvia import`: conversations become journals that are found and continued, the same after every interruption."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.cli.main import IMPORTED
from gateway.conversations.imports.programs import PROGRAMS, reader_of
from tests.faults.gateway_process import gateway_process
from tests.gateway.gateways import TOKEN, gateway
from tests.imports.sources import LISBON, chatgpt, events, imported, journals, lisbon, node, run, spoken, tree
from tests.waiting import DEADLINE

KEY = "chatgpt-weekend-in-lisbon-a03fdc"
SESSION = "20231114-221320-d3axm9"
SHOWN = ["What shall I see in Lisbon?", "The tram 28.", "And to eat?", "Pastel de nata."]


def test_the_command_names_all_programs_that_can_be_read() -> None:
    assert tuple(PROGRAMS) == IMPORTED
    assert all(callable(reader_of(program)) for program in IMPORTED)


def test_a_conversation_keeps_its_times_its_title_and_the_names_of_its_models(tmp_path: Path) -> None:
    home = tmp_path / "home"
    report = imported(home, "chatgpt", chatgpt(tmp_path / "export.zip", lisbon()))
    assert report["items"] == {"conversations": {"new": 1}}
    assert report["messages"] == 4
    found = [{name: value for name, value in event.items() if name != "sum"} for event in events(home, SESSION)]
    envelope = {"turn": None}
    origin = {"program": "chatgpt", "conversation": "11111111-aaaa"}
    asked = {"kind": "message_imported", "sender": "owner"}
    said = {"kind": "reply_imported", "model": "gpt-4o"}
    began = "2023-11-14T22:13:20.500Z"
    opened = {"kind": "session_opened", "format": 1, "session": SESSION, "key": KEY, "person": "owner", "imported": origin}
    assert found == [
        {"seq": 1, "at": began, **envelope, **opened},
        {"seq": 2, "at": began, **envelope, "kind": "session_titled", "title": "Weekend in Lisbon", "by": "owner"},
        {"seq": 3, "at": began, **envelope, **asked, "id": "a", "text": SHOWN[0]},
        {"seq": 4, "at": "2023-11-14T22:13:25.500Z", **envelope, **said, "id": "b", "text": SHOWN[1]},
        {"seq": 5, "at": "2023-11-14T22:14:20.500Z", **envelope, **asked, "id": "c", "text": SHOWN[2]},
        {"seq": 6, "at": "2023-11-14T22:14:23.500Z", **envelope, **said, "id": "d", "text": SHOWN[3]},
    ]
    assert run("sessions", "verify", "--home", home).exit_code == 0


def test_a_dry_run_reports_the_same_and_writes_nothing(tmp_path: Path) -> None:
    home, export = (
        tmp_path / "home",
        chatgpt(tmp_path / "export.zip", lisbon(node("d2", "c", "assistant", "Grilled sardines."))),
    )
    planned = imported(home, "chatgpt", export, "--dry-run")
    assert not home.exists()
    done = imported(home, "chatgpt", export)
    assert {**planned, "dry_run": False} == done
    assert imported(home, "chatgpt", export, "--dry-run")["items"] == {
        "conversations": {"unchanged": 1},
        "branches": {"unchanged": 1},
    }


def test_a_second_run_adds_nothing_and_a_newer_export_adds_the_rest(tmp_path: Path) -> None:
    home, old = tmp_path / "home", chatgpt(tmp_path / "old.zip", lisbon())
    imported(home, "chatgpt", old)
    before = journals(home)
    assert imported(home, "chatgpt", old)["items"] == {"conversations": {"unchanged": 1}}
    assert journals(home) == before
    more = lisbon(node("e", "d", "user", "And by train?", LISBON + 99), current="e")
    report = imported(
        home, "chatgpt", chatgpt(tmp_path / "new.zip", more, tree("2", "Other", node("x", None, "user", "Hello")))
    )
    assert report["items"] == {"conversations": {"continued": 1, "new": 1}}
    assert spoken(home)[KEY] == [*SHOWN, "And by train?"]
    assert imported(home, "chatgpt", old)["items"] == {"conversations": {"unchanged": 1}}


def test_branches_become_forks(tmp_path: Path) -> None:
    home = tmp_path / "home"
    children = (node("c2", "b", "user", "And with children?", LISBON + 90), node("d2", "c2", "assistant", "The aquarium."))
    report = imported(home, "chatgpt", chatgpt(tmp_path / "export.zip", lisbon(*children, current="d2")))
    assert report["items"] == {"conversations": {"new": 1}, "branches": {"forked": 1}}
    shown, other = spoken(home).items()
    if shown[0] != KEY:
        shown, other = other, shown
    assert shown == (KEY, [*SHOWN[:2], "And with children?", "The aquarium."])
    assert other[0].startswith(KEY)
    assert other[1] == SHOWN


def test_archived_conversations_stay_archived_and_hidden_nodes_are_left_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    hidden = node("h", "a", "user", "Secret instructions", is_visually_hidden_from_conversation=True)
    tool = node("t", "h", "tool", "rows of a table")
    nodes = (node("a", None, "user", "Hello"), hidden, tool, node("b", "t", "assistant", "Good day."))
    report = imported(home, "chatgpt", chatgpt(tmp_path / "export.zip", tree("9", "Old", *nodes, is_archived=True)))
    assert list(spoken(home).values()) == [["Hello", "Good day."]]
    (session,) = (path.stem for path in (home / "sessions").glob("*.jsonl"))
    assert [event["kind"] for event in events(home, session)][1:3] == ["session_titled", "session_archived"]
    assert {each["reason"] for each in report["left_out"]} == {"hidden in ChatGPT", "outputs of tools whose call is missing"}


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the commands of this process the owner's token."""
    monkeypatch.setenv("EXUVIA_TOKEN", TOKEN)


@pytest.mark.usefixtures("owner")
async def test_beside_a_running_gateway_it_is_found_continued_and_forked(tmp_path: Path) -> None:
    home, old = tmp_path / "home", chatgpt(tmp_path / "old.zip", lisbon())
    async with gateway_process(home, script=[{"text": "From Oriente."}]) as running, aiohttp.ClientSession() as http:
        report = await asyncio.to_thread(imported, home, "chatgpt", old)
        assert report["items"] == {"conversations": {"new": 1}}
        search = f"http://127.0.0.1:{running.port}/api/conversations/search?q=nata"
        async with http.get(search, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            (hit,) = (await response.json())["hits"]
        assert (hit["session"], hit["title"], hit["at"]) == (KEY, "Weekend in Lisbon", "2023-11-14T22:14:23.500Z")
        client = await running.connect(http)
        assert await client.chat("And by train?", session=KEY) == "From Oriente."
        assert "What shall I see in Lisbon?" in await client.command("/history", session=KEY)
        more = lisbon(node("e", "d", "user", "And the sea?", LISBON + 99), current="e")
        new = chatgpt(tmp_path / "new.zip", more)
        report = await asyncio.to_thread(imported, home, "chatgpt", new)
        assert report["items"] == {"conversations": {"forked": 1}}
        before = journals(home)
        report = await asyncio.to_thread(imported, home, "chatgpt", new)
        assert report["items"] == {"conversations": {"unchanged": 1}}
        assert journals(home) == before
        imports, headers = f"http://127.0.0.1:{running.port}/api/imports", {"Authorization": f"Bearer {TOKEN}"}
        async with http.post(imports, json={"program": "../x", "facts": []}, headers=headers) as response:
            assert (response.status, "The program is one of openclaw" in await response.text()) == (400, True)
    texts = spoken(home)
    assert texts.pop(KEY) == SHOWN
    assert list(texts.values()) == [[*SHOWN, "And the sea?"]]


@pytest.mark.usefixtures("owner")
async def test_a_conversation_that_is_open_in_a_client_is_left_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with gateway_process(home) as running, aiohttp.ClientSession() as http:
        await asyncio.to_thread(imported, home, "chatgpt", chatgpt(tmp_path / "old.zip", lisbon()))
        client = await running.connect(http)
        await client.say("subscribe", session=KEY, after=0)
        await client.until_event("reply_imported")
        more = lisbon(node("e", "d", "user", "And the sea?", LISBON + 99), current="e")
        new = chatgpt(tmp_path / "new.zip", more)
        report = await asyncio.to_thread(imported, home, "chatgpt", new)
        assert [each["reason"] for each in report["left_out"]] == ["it is open in a client; close it and import again"]
        assert spoken(home)[KEY] == SHOWN
    assert imported_items(home, new) == {"conversations": {"continued": 1}}


def imported_items(home: Path, export: Path) -> Any:
    with ThreadPoolExecutor() as threads:  # a test's event loop runs in this one
        return threads.submit(imported, home, "chatgpt", export).result()["items"]


async def test_the_model_is_shown_what_was_imported(tmp_path: Path) -> None:
    home, export = tmp_path / "home", chatgpt(tmp_path / "export.zip", lisbon())
    await asyncio.to_thread(imported, home, "chatgpt", export)
    async with gateway(home, script=[{"text": "Yes."}]) as running:
        client = await running.connect()
        await client.chat("Sure?", session=KEY)
    shown = await asyncio.to_thread(run, "context", SESSION, "--home", home, "--json")
    asked = [message["text"] for message in json.loads(shown.output)["requests"][0]["context"]["messages"]]
    assert asked == [*SHOWN, "Sure?"]


def test_an_import_that_was_interrupted_anywhere_is_completed_to_the_same_bytes(tmp_path: Path) -> None:
    branch = node("d2", "c", "assistant", "Grilled sardines.", LISBON + 70)
    export = chatgpt(
        tmp_path / "export.zip", lisbon(branch), tree("2", "", node("x", None, "user", "Hello"), is_archived=True)
    )
    whole = tmp_path / "whole"
    imported(whole, "chatgpt", export)
    expected = journals(whole)
    for journal in sorted((whole / "sessions").glob("*.jsonl")):
        lines = journal.read_bytes().splitlines(keepends=True)
        for kept in range(len(lines)):
            home = tmp_path / f"{journal.stem}-{kept}"
            (home / "sessions").mkdir(parents=True, mode=0o700)
            (home / "sessions" / journal.name).write_bytes(b"".join(lines[:kept]) + lines[kept][:20])
            if b"session_forked" in b"".join(lines[: kept + 1]) or journal.stem != SESSION:
                first = whole / "sessions" / f"{SESSION}.jsonl"
                (home / "sessions" / first.name).write_bytes(first.read_bytes())
            if b"session_forked" in b"".join(lines) and b"session_forked" not in b"".join(lines[:kept]):
                continue  # a fork is copied at once
            imported(home, "chatgpt", export)
            assert journals(home) == expected, (journal.stem, kept)


def test_an_import_that_is_killed_and_repeated_gives_the_same(tmp_path: Path) -> None:
    talks = [
        tree(str(number), f"Talk {number}", node("a", None, "user", f"Word {number} " * 50, LISBON)) for number in range(60)
    ]
    export, whole, home = chatgpt(tmp_path / "export.zip", *talks), tmp_path / "whole", tmp_path / "home"
    imported(whole, "chatgpt", export)
    arguments = [sys.executable, "-m", "exuvia", "import", "chatgpt", str(export), "--home", str(home)]
    for wanted in (1, 20, 45):
        with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            until = time.monotonic() + DEADLINE
            while len(list((home / "sessions").glob("*.jsonl"))) < wanted and process.poll() is None:
                assert time.monotonic() < until
            process.send_signal(signal.SIGKILL)
    imported(home, "chatgpt", export)
    assert journals(home) == journals(whole)


def test_what_was_deleted_here_does_not_come_back(tmp_path: Path) -> None:
    home, export = tmp_path / "home", chatgpt(tmp_path / "export.zip", lisbon())
    imported(home, "chatgpt", export)
    assert run("sessions", "delete", KEY, "--home", home, "--yes").exit_code == 0
    for options in ((), ("--dry-run",)):
        report = imported(home, "chatgpt", export, *options)
        assert (report["items"], report["left_out"][0]["reason"]) == ({}, "deleted here")
    assert journals(home) == {}


def test_an_erased_message_takes_its_reply_along_and_does_not_come_back(tmp_path: Path) -> None:
    home, export = tmp_path / "home", chatgpt(tmp_path / "export.zip", lisbon())
    imported(home, "chatgpt", export)
    done = run("erase", "message", KEY, "3", "--home", home, "--yes")
    assert done.exit_code == 0, done.output
    assert spoken(home)[KEY] == ["[erased]", "[erased]", *SHOWN[2:]]
    assert imported(home, "chatgpt", export)["items"] == {"conversations": {"unchanged": 1}}
    assert run("sessions", "verify", "--home", home).exit_code == 0
    assert not any(b"tram 28" in path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_two_people_import_the_same_export_each_for_themselves(tmp_path: Path) -> None:
    home, export = tmp_path / "home", chatgpt(tmp_path / "export.zip", lisbon())
    imported(home, "chatgpt", export)
    assert imported(home, "chatgpt", export, "--person", "ana")["items"] == {"conversations": {"new": 1}}
    assert len(journals(home)) == 2


def test_a_text_too_long_for_a_line_is_cut_and_reported(tmp_path: Path) -> None:
    home = tmp_path / "home"
    long = node("a", None, "user", "“" * 1_000_000, LISBON)
    report = imported(home, "chatgpt", chatgpt(tmp_path / "export.zip", tree("1", "Long", long)))
    assert [each["reason"] for each in report["left_out"]] == ["too long, so that they were cut"]
    (text,) = next(iter(spoken(home).values()))
    assert "bytes left out" in text


@pytest.mark.parametrize("content", [b"", b"[", b'[{"id": "1"', b"\x00\xff", b"{}", b'"text"', b"[1, null, []]"])
def test_what_is_no_export_is_refused_or_left_out_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "conversations.json").write_bytes(content)
    for kind in ("chatgpt", "claude"):
        result = run("import", kind, tmp_path, "--home", tmp_path / "home")
        assert result.exit_code in (0, 2)
        assert "Traceback" not in result.output
        if result.exit_code:
            assert len([line for line in result.output.splitlines() if line.startswith("exuvia: ")]) == 1
    assert journals(tmp_path / "home") == {}
