"""Deleting conversations: what is removed, what remains, and who is told."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from gateway.backup.ledger import outstanding
from gateway.conversations.deletion import deletions
from gateway.conversations.deletion.deletion_log import RemovalRequested
from gateway.conversations.deletion.deletions import Deletions
from gateway.conversations.erasure.erasures import Erasures
from gateway.conversations.routing import removals
from gateway.conversations.routing.removals import Removals
from gateway.support.errors import OwnedElsewhere
from gateway.support.home import Home
from sessions.events.errors import StorageFailed
from sessions.files.journals import Journals
from tests.gateway.gateways import TOKEN, Client, Frame, Gateway, gateway, replies_wait
from tests.gateway.test_facts_story import filled
from tests.gateway.test_people import ANA
from tests.waiting import deadline, until

pytestmark = pytest.mark.usefixtures("unhurried_recall")

CANARY = "zyxwvutsrq9canary"
BY_WORDS = {"memory.embedding.provider": "none", "compaction.memory_flush.enabled": False}


def places(home: Path) -> set[str]:
    """Return the files of a home that have the canary, in either case."""
    found = set()
    for path in home.rglob("*"):
        if path.is_file() and CANARY.encode() in path.read_bytes().lower():
            found.add(path.relative_to(home).as_posix())
    return found


async def delete(client: Client, session: str = "main", **fields: Any) -> Frame:
    """Send a `delete` and return its answer."""
    await client.say("delete", id="d", session=session, **fields)
    return await client.until(lambda frame: frame.get("id") == "d")


async def hits(running: Gateway, query: str) -> list[Frame]:
    """Return the hits of a search of the memory."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with running.http.get(f"{running.url}/api/memory", params={"q": query}, headers=headers) as response:
        found: list[Frame] = (await response.json())["hits"]
        return found


async def sing(running: Gateway) -> None:
    """Bring the canary into every place that a conversation reaches: journals, the catalog, attachments and the index."""
    client = await running.connect()
    await client.say("rename", id="r", session="main", title="")
    attachment = {"data": base64.b64encode(f"in a file: {CANARY}".encode()).decode(), "name": f"{CANARY}.txt"}
    await client.say("send", id="1", session="main", text=f"Listen: {CANARY}", attachments=[attachment])
    await client.until_event("turn_ended")
    await client.say("rename", id="r", session="main", title=f"About {CANARY}")
    await client.until_type("settings", id="r")
    await client.chat("unrelated words about crabs", session="other")
    await client.command("/new")
    await client.chat(f"Again: {CANARY}")
    async with deadline():
        while not await hits(running, CANARY):
            await asyncio.sleep(0.05)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        search = f"{running.url}/api/conversations/search"
        async with running.http.get(search, params={"q": CANARY}, headers=headers) as response:
            assert (await response.json())["hits"]


async def test_nothing_remains_of_a_deleted_conversation(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        await sing(running)
    before = places(tmp_path)
    assert {path.split("/")[0] for path in before} == {
        "sessions",
        "attachments",
        "catalog.sqlite",
        "memory.sqlite",
        "messages.sqlite",
    }
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        client, other = await running.connect(), await running.connect()
        size = sum(path.stat().st_size for path in (tmp_path / "sessions").iterdir())
        await other.say("subscribe", id="s", session="main")
        await other.until_type("settings", id="s")
        deleted = await delete(client)
        removed = deleted.pop("removed")
        assert deleted == {
            "type": "deleted", "id": "d", "session": "main",
            "remains": ["Copies that were made of the gateway's home, such as backups, are unchanged."],
        }  # fmt: skip
        assert (removed["sessions"], removed["attachments"], removed["facts"]) == (2, 1, 0)
        assert removed["chunks"] > 0
        assert 0 < removed["bytes"] < size
        told = await other.until_type("deleted")
        assert ("id" in told, told["removed"]) == (False, removed)
        assert places(tmp_path) == set()
        await client.say("sessions", id="l")
        assert [row["session"] for row in (await client.until_type("sessions"))["sessions"]] == ["other"]
        await client.say("subscribe", id="s2", session="main")
        assert (await client.until(lambda frame: frame.get("id") == "s2"))["code"] == "unknown_session"
        assert await client.chat("anew") == "anew"  # the key is free again
    assert places(tmp_path) == set()
    record = (tmp_path / "deletions.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in record] == ["session_deleted", "deletion_finished"]
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        client = await running.connect()
        assert "main" not in await client.command("/status", session="other")


async def test_a_conversation_is_not_deleted_while_a_turn_runs(tmp_path: Path) -> None:
    with replies_wait() as go_on:
        async with gateway(tmp_path, script=[{"text": "a b c d e f"}]) as running:
            client = await running.connect()
            await client.send("one")
            await client.until_type("delta")
            refused = await delete(client)
            assert (refused["type"], refused["code"]) == ("error", "conflict")
            go_on.set()
            await client.until_event("turn_ended")
            assert (await delete(client))["type"] == "deleted"
            assert running.journals() == {}
            assert (await delete(client))["code"] == "unknown_session"


async def test_nobody_deletes_what_is_anothers(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"people.ana.token": ANA}) as running:
        owner, ana = await running.connect(), await running.connect(ANA)
        await owner.chat("one")
        await ana.chat("hers")
        assert (await delete(ana))["type"] == "deleted"
        assert [events[0]["person"] for events in running.journals().values()] == ["owner"]
        await owner.round_trips()
        assert [frame for frame in owner.frames if frame["type"] == "deleted"] == []


async def test_what_stays_elsewhere_is_named(tmp_path: Path) -> None:
    call = {"tool": "write", "arguments": {"path": "a.txt", "content": "x"}}
    script: list[Frame] = [{"text": "", "calls": [call]}, {"text": "done"}, {"purpose": "flush", "text": "- Crabs walk."}]
    async with gateway(tmp_path, script=script) as running:
        client = await running.connect()
        await client.chat("one")
        await client.command("/new")
        note = (await client.until_event("note_appended"))["path"]
        await client.say("fork", id="f", session="main")
        await client.until_type("forked")
        await client.say("fork", id="f2", session="main-fork")
        await client.until_type("forked", id="f2")
        deleted = await delete(client)
        assert deleted["remains"] == [
            "Forks that hold a copy of its beginning: main-fork, main-fork-fork.",
            f"Notes that were written from it: {note}.",
            "Files of the workspace that its tools have written.",
            "Copies that were made of the gateway's home, such as backups, are unchanged.",
        ]
        deleted = await delete(client, session="main-fork-fork")
        assert "It was forked from main-fork, which holds the beginning that they share." in deleted["remains"]


async def test_files_that_another_conversation_has_too_are_kept(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        for key, names in (("main", "ab"), ("other", "b")):
            sent = [{"data": base64.b64encode(name.encode()).decode(), "name": f"{name}.txt"} for name in names]
            await client.say("send", id=key, session=key, text="see", attachments=sent)
            await client.until_event("turn_ended")
        assert (await delete(client))["removed"]["attachments"] == 1
        kept = [path for path in (tmp_path / "attachments").iterdir() if path.is_file()]
        assert [path.read_text() for path in kept] == ["b"]
        records = [path.name for path in (tmp_path / "attachments/owners/owner").iterdir()]
        assert records == [kept[0].name]


async def test_facts_are_forgotten_on_request(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home") as running:
        client = await running.connect()
        for key in ("main", "other"):
            await client.chat(key, session=key)
        origins = {events[0]["key"]: session for session, events in running.journals().items()}
    rows = [
        {"id": f"{key}-fact", "content": f"Crabs of {key} walk", "origin": {"session": session, "seq": 2}}
        for key, session in origins.items()
    ]
    await asyncio.to_thread(filled, tmp_path, *rows)
    async with gateway(tmp_path / "home") as running:
        client = await running.connect()
        first = await delete(client, session="other")
        assert (first["removed"]["facts"], first["remains"][0]) == (0, "1 fact that came from it; `/memory` lists them.")
        second = await delete(client, facts=True)
        assert second["removed"]["facts"] == 1
        assert "The log of the facts keeps the history of those that were forgotten." in second["remains"]


async def test_passages_that_were_found_for_other_conversations_are_told(tmp_path: Path) -> None:
    script: list[Frame] = [
        {"text": "", "calls": [{"tool": "memory_search", "arguments": {"query": CANARY}}]},
        {"text": "done"},
    ]
    async with gateway(tmp_path, script=script, settings=BY_WORDS) as running:
        await sing(running)
        client = await running.connect()
        await client.send("What do we know?", session="third")
        await client.until_event("turn_ended")
        deleted = await delete(client)
        assert "Passages of it that the memory found for 1 other session." in deleted["remains"]


async def test_a_deletion_that_fails_is_finished_by_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        await sing(running)

        async def fails(self: Journals, session: str, *, upto: int) -> bool:
            raise StorageFailed("The disk is gone.")

        client = await running.connect()
        with monkeypatch.context() as patch:
            patch.setattr(Journals, "remove", fails)
            refused = await delete(client)
        assert (refused["code"], refused["message"]) == ("storage_failed", "The disk is gone.")
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        client = await running.connect()
        await client.say("sessions", id="l")
        assert [row["session"] for row in (await client.until_type("sessions"))["sessions"]] == ["other"]
        await until(lambda: "deletion_finished" in (tmp_path / "deletions.jsonl").read_text())
        assert places(tmp_path) == set()


async def test_a_conversation_that_goes_on_after_its_deletion_failed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person was told that the deletion failed."""

    async def fails(self: Journals, session: str, *, upto: int) -> bool:
        raise StorageFailed("The disk is gone.")

    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("said before")
        with monkeypatch.context() as patch:
            patch.setattr(Journals, "remove", fails)
            assert (await delete(client))["code"] == "storage_failed"
        client = await running.connect()
        assert await client.chat("said after it") == "said after it"
    async with gateway(tmp_path) as running:
        await until(lambda: '"kept":true' in (tmp_path / "deletions.jsonl").read_text())
        client = await running.connect()
        assert await client.chat("and now") == "and now"
        (events,) = running.journals().values()
        assert [event["text"] for event in events if event["kind"] == "message_received"] == [
            "said before",
            "said after it",
            "and now",
        ]
    home = Home(tmp_path)
    assert outstanding(home, [], "").deletions == (), "a restored home keeps it, too"
    async with gateway(tmp_path) as running:
        assert (await delete(await running.connect()))["type"] == "deleted"
        assert running.journals() == {}
    assert len(outstanding(home, [], "").deletions) == 0


def fails_once(monkeypatch: pytest.MonkeyPatch, method: str, failure: Exception) -> list[Exception]:
    """Let the first call of a method of the deletions fail. Returns the failures so far."""
    works, raised = getattr(Deletions, method), list[Exception]()

    async def fails(self: Deletions, *arguments: Any, **named: Any) -> Any:
        if not raised:
            raised.append(failure)
            raise failure
        return await works(self, *arguments, **named)

    monkeypatch.setattr(Deletions, method, fails)
    monkeypatch.setattr(removals, "RETRY_SECONDS", (0.01,), raising=False)
    return raised


def read_fails_once(monkeypatch: pytest.MonkeyPatch, owner: object, function: str, session: str) -> list[str]:
    """Let the first read of a session within a function of `owner` fail. Returns the session once it has failed."""
    works, read, thread, failed = getattr(owner, function), Journals.read, threading.local(), list[str]()

    def noted(*arguments: Any, **named: Any) -> Any:
        thread.inside = True
        try:
            return works(*arguments, **named)
        finally:
            thread.inside = False

    def fails(self: Journals, name: str) -> Any:
        if name == session and getattr(thread, "inside", False) and not failed:
            failed.append(name)
            raise StorageFailed("Too many open files.")
        return read(self, name)

    monkeypatch.setattr(owner, function, noted)
    monkeypatch.setattr(Journals, "read", fails)
    return failed


async def test_a_conversation_that_cannot_be_read_for_a_moment_is_deleted_with_its_attachments_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        await sing(running)
        client = await running.connect()
        session = min(session for session, events in running.journals().items() if events[0]["key"] == "main")
        failed = read_fails_once(monkeypatch, deletions, "planned_deletion", session)
        refused = await delete(client)
        assert (refused.get("code"), failed) == ("storage_failed", [session])
        assert not (tmp_path / "deletions.jsonl").exists()
        assert (await delete(client))["removed"]["attachments"] == 1
    assert places(tmp_path) == set()


async def test_a_conversation_whose_deletion_does_not_begin_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("hi")
        fails_once(monkeypatch, "begin", StorageFailed("The disk is full."))
        refused = await delete(client)
        assert (refused["code"], refused["message"]) == ("storage_failed", "The disk is full.")
        assert await client.chat("again") == "again"
        assert len(running.journals()) == 1
        assert (await delete(client))["type"] == "deleted"
        assert running.journals() == {}
        assert await client.chat("anew") == "anew"


FAILURES = [
    OwnedElsewhere("", ""),
    RuntimeError("can't start new thread"),
    OSError("no memory"),
    StorageFailed("It is full."),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
@pytest.mark.parametrize(("command", "step"), [("/delete yes", "begin"), ("/forget conversation yes", "record")])
async def test_a_removal_by_a_command_that_is_not_recorded_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, command: str, step: str
) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("hi")
        raised = fails_once(monkeypatch, step, failure)
        assert "as soon as" in await client.command(command)
        assert (await client.until_type("deleted"))["session"] == "main"
        assert (raised, running.journals()) == ([failure], {})
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "deletions.jsonl").read_text().splitlines()]
    erased = ["erasure_ordered", "erasure_finished"] if step == "record" else []
    assert kinds == ["removal_requested", *erased, "session_deleted", "deletion_finished"]


async def confirm(client: Client, command: str) -> None:
    """Write a command, with the number of the last message if it needs one, and see that it is confirmed."""
    if "{number}" in command:
        (number,) = re.findall(r"`/forget message (\d+) yes`", await client.command("/forget message"))
        command = command.format(number=number)
    assert "as soon as" in await client.command(command)


REMOVALS = ["/delete yes", "/forget message {number} yes", "/forget conversation yes"]


@pytest.mark.parametrize("command", REMOVALS)
async def test_a_confirmed_removal_that_has_not_begun_survives_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    attempts = list[str]()

    async def full(*_: object, **__: object) -> None:
        attempts.append(command)
        raise StorageFailed("It is full.")

    with monkeypatch.context() as patch:
        patch.setattr(Deletions, "begin", full)
        patch.setattr(Deletions, "record", full)
        async with gateway(tmp_path, settings=BY_WORDS) as running:
            client = await running.connect()
            await client.chat(f"Listen: {CANARY}")
            await confirm(client, command)
            await until(lambda: attempts)
            assert CANARY in str(running.journals())
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        log = tmp_path / "deletions.jsonl"
        finished = "erasure_finished" if "message" in command else "deletion_finished"
        await until(lambda: finished in log.read_text())
        assert len(running.journals()) == ("message" in command)
    assert places(tmp_path) == set()
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        client = await running.connect()
        assert await client.chat("hi") == "hi"
        assert log.read_text().count("removal_requested") == 1
        assert "removal_ended" not in log.read_text()


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("command", REMOVALS)
async def test_a_removal_that_cannot_be_recorded_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, stored: bool
) -> None:
    """What was stored without being confirmed is ended: nobody knows that it would be carried out later."""
    request = Deletions.request

    async def fails(self: Deletions, asked: RemovalRequested) -> None:
        if stored:
            await request(self, asked)
        raise StorageFailed("It is full.")

    monkeypatch.setattr(Deletions, "request", fails)
    log = tmp_path / "deletions.jsonl"
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("hi")
        number = next(frame["event"]["seq"] for frame in client.frames if frame.get("event", {}).get("text") == "hi")
        assert "It is full." in await client.command(command.format(number=number))
        if stored:
            await until(lambda: "removal_ended" in log.read_text())
        assert await client.chat("and now?") == "and now?"
    async with gateway(tmp_path) as running:
        assert await (await running.connect()).chat("still here") == "still here"
        assert len(running.journals()) == 1


async def test_a_removal_ends_if_another_conversation_has_its_key_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commands may be confirmed before the first one begins, and a message may come after it."""
    log, places, carry_out = tmp_path / "deletions.jsonl", asyncio.Semaphore(0), Removals._carry_out_request

    async def held(*arguments: Any) -> None:
        await places.acquire()
        await carry_out(*arguments)

    monkeypatch.setattr(Removals, "_carry_out_request", held)
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("hi")
        await client.command("/delete yes")
        await client.command("/delete yes")
        places.release()
        await client.until_type("deleted")
        assert await client.chat("anew") == "anew"
        places.release()
        await until(lambda: "removal_ended" in log.read_text())
        assert len(running.journals()) == 1
        assert await client.chat("still here") == "still here"
    assert log.read_text().count("session_deleted") == 1


async def test_a_removal_that_failed_after_it_was_recorded_is_not_ordered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written since would be erased with it."""

    async def fails(*_: object) -> None:
        raise OSError("the disk is gone")

    log = tmp_path / "deletions.jsonl"
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        client = await running.connect()
        await client.chat(f"Listen: {CANARY}")
        with monkeypatch.context() as patch:
            patch.setattr(Erasures, "carry_out", fails)
            await client.command("/forget conversation yes")
            await until(lambda: "removal_ended" in log.read_text())
        assert await client.chat("written since") == "written since"
    async with gateway(tmp_path, settings=BY_WORDS) as running:
        await until(lambda: "erasure_finished" in log.read_text())
        assert "written since" in str(running.journals())
    assert (log.read_text().count("erasure_ordered"), places(tmp_path)) == (1, set())
