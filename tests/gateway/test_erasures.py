"""Erasing messages and conversations: nothing of them is left in any byte of the home, and everything else is."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from gateway.conversations.erasure import erasures
from gateway.conversations.erasure.erasure_plan import Chosen
from gateway.conversations.erasure.erasures import Erasures
from gateway.conversations.notes.day_notes import as_section, digest_of
from gateway.conversations.routing import removals
from gateway.conversations.routing.chat import Chat
from gateway.conversations.routing.conversation_runner import ConversationRunner
from gateway.conversations.routing.switchboard import Switchboard
from gateway.support.errors import Conflict
from gateway.support.home import Home
from gateway.support.storage import session_logs
from gateway.wiring.offline_erasure import open_erasures
from plugins.api.chat import ChatRequest, StreamPart
from plugins.api.fact_values import Fact, FactOrigin
from plugins.facts.fact_events import FactEdited, FactForgotten, FactsDistilled, FactsExtracted, FactsOpened
from plugins.providers.scripted import Scripted
from sessions.attachments.store import Attachments
from sessions.events.codec import FIRST, encode, encode_line
from sessions.events.errors import StorageFailed
from sessions.events.events import (
    ApprovalAsked,
    CallRef,
    ChangedFile,
    CommandAnswered,
    CompactionBegan,
    ContextCompacted,
    Event,
    InstructionsSet,
    LoadedNote,
    MemoryFlushed,
    MemoryRecalled,
    MessageReceived,
    ModelReplied,
    NoteAppended,
    RecalledHit,
    Recorded,
    RequestedCall,
    RequestSent,
    SessionForked,
    SessionOpened,
    SessionTitled,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from sessions.events.messages import Attachment
from sessions.files.journal_folder import JournalFolder
from sessions.store.catalog import Catalog
from sessions.store.reading import StoredLog
from tests.gateway.gateways import TOKEN, Client, Frame, Gateway, gateway
from tests.gateway.test_deletions import read_fails_once
from tests.servers.postgres_server import postgres_server
from tests.waiting import DEADLINE, until

MAIN, FORK, OTHER = "20261120-090000-aaaaaa", "20261121-090000-bbbbbb", "20261121-100000-cccccc"
CANARY = "canary"
MESSAGE = 8
"""The seq of the message to erase."""


def canary(place: str) -> str:
    """A text that stands in one place only."""
    return f"the {CANARY} of {place} sings zqxj{place.replace(' ', '')}"


KEPT = "kept words about crabs"
FLUSHED = f"- {canary('flush')}\n- {canary('second flush line')}"
SUMMARY = f"## Context\n\n{canary('summary')}"
SECTION = as_section("Summary 1 of main", SUMMARY)


def said(text: str, id_: str, attachments: tuple[Attachment, ...] = ()) -> MessageReceived:
    return MessageReceived(
        id=id_, client="phone", sender="owner", channel="websocket", chat="private", text=text, attachments=attachments
    )


def began(takes: int) -> TurnStarted:
    return TurnStarted(takes=(takes,), provider="scripted", model="m", window=100_000, reserve=1000)


def request() -> RequestSent:
    return RequestSent(purpose="answer", sha256="a" * 64, messages=1, tokens=10)


def reply(number: int, text: str, calls: tuple[RequestedCall, ...] = (), reasoning: str = "") -> ModelReplied:
    stop = "calls" if calls else "end"
    return ModelReplied(reply=number, model="m", text=text, calls=calls, stop=stop, usage=None, reasoning=reasoning)  # type: ignore[arg-type]


def opened(session: str, key: str) -> SessionOpened:
    return SessionOpened(format=1, session=session, key=key, person="owner")


Story = list[tuple[int | None, Event]]


def shared_story(files: dict[str, Attachment]) -> Story:
    """The beginning that the fork shares: a turn to keep, and the turn to erase."""
    call = RequestedCall(id="c", tool="write", arguments=json.dumps({"text": canary("arguments")}))
    return [
        (None, opened(MAIN, "main")),
        (None, said(f"First: {KEPT}", "m1")),
        (1, began(2)),
        (1, request()),
        (1, reply(1, f"Answer with {KEPT}")),
        (1, TurnEnded(outcome="replied", millis=5)),
        (None, SessionTitled(title="A kept title", by="")),
        (None, said(canary("message"), "m2", (files["upload"],))),
        (2, began(MESSAGE)),
        (2, MemoryRecalled(query=canary("query"), hits=(), mark="mark", millis=1)),
        (2, request()),
        (2, reply(1, canary("first reply"), (call,), canary("reasoning"))),
        (
            2,
            ApprovalAsked(
                approval="a1",
                call=CallRef(of=12, index=0),
                tool="write",
                what=canary("what"),
                digest="d",
                choices=("once",),
                expires="2026-11-30T00:00:00.000Z",
                detail=canary("detail"),
            ),
        ),
        (2, ToolCalled(call=CallRef(of=12, index=0), repeatable=False)),
        (
            2,
            ToolReturned(
                call=CallRef(of=12, index=0),
                outcome="returned",
                output=canary("output"),
                diff=canary("diff"),
                cut_from=10,
                whole=files["whole"].sha256,
                changes=(ChangedFile(path="a.txt", before=files["before"].sha256, after=None),),
            ),
        ),
        (2, request()),
        (2, reply(2, canary("second reply"))),
        (2, TurnEnded(outcome="replied", millis=5)),
        (None, SessionTitled(title=canary("title"), by="")),
    ]


def rest_of_main() -> Story:
    return [
        (None, said("/history 1", "m3")),
        (None, CommandAnswered(answers=20, answer=f"> {canary('message')}", failed=False)),
        (None, CompactionBegan(compaction=1, trigger="command", keep_from=26, tokens_before=100)),
        (None, MemoryFlushed(
            compaction=1, outcome="written", covers_to=21, path="memory/2026-11-20.md", text=FLUSHED,
            digest=digest_of(FLUSHED),
        )),
        (None, NoteAppended(of=23, path="memory/2026-11-20.md")),
        (None, said(f"Second: {KEPT}", "m4")),
        (3, began(25)),
        (3, request()),
        (3, reply(1, f"Later answer with {KEPT}")),
        (3, TurnEnded(outcome="replied", millis=5)),
        (None, ContextCompacted(
            compaction=1, keep_from=26, summary=SUMMARY, by="model", tokens_before=100, tokens_after=50,
            kept=(canary("kept"),), path="memory/2026-11-20.md",
        )),
        (None, NoteAppended(of=30, path="memory/2026-11-20.md")),
        (None, InstructionsSet(
            text="Be kind.", tools=(), parameters={},
            notes=(LoadedNote(path="memory/2026-11-20.md", digest="d", text=f"# Day\n\n{FLUSHED}\n\n- {KEPT}"),),
        )),
    ]  # fmt: skip


def other_story() -> Story:
    """A session that recalled what is erased."""
    hits = (
        RecalledHit(path=f"sessions/{MAIN}.jsonl", lines=(8, 17), digest="x", text=canary("message"), score=1.0),
        RecalledHit(path=f"sessions/{MAIN}.jsonl", lines=(8, 17), digest="p", text=canary("message")[4:18], score=1.0),
        RecalledHit(path="memory/2026-11-20.md", lines=(1, 2), digest="y", text=f"Noted: {FLUSHED}", score=0.9),
        RecalledHit(path="facts.jsonl", lines=(2, 2), digest="f-erased", text=canary("fact"), score=0.8),
        RecalledHit(path=f"sessions/{MAIN}.jsonl", lines=(2, 5), digest="z", text=KEPT, score=0.7),
    )
    return [
        (None, opened(OTHER, "other")),
        (None, said("What do you know?", "o1")),
        (1, began(2)),
        (1, MemoryRecalled(query="What do you know?", hits=hits, mark="mark", millis=1)),
        (1, request()),
        (1, reply(1, f"A lot, such as {KEPT}")),
        (1, TurnEnded(outcome="replied", millis=5)),
    ]


def write(path: Path, story: Story, first: int = 1, previous: bytes = FIRST) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for seq, (turn, event) in enumerate(story, first):
            line, previous = encode(
                Recorded(seq=seq, at=f"2026-11-20T09:00:{seq:02d}.000Z", turn=turn, event=event), previous
            )
            file.write(line)
    return previous


def a_fact(id_: str, content: str, seq: int, made_of: tuple[str, ...] = ()) -> Fact:
    origin = None if made_of else FactOrigin(session=MAIN, seq=seq)
    return Fact(
        id=id_,
        content=content,
        created="2026-11-20T09:00:00.000Z",
        source="auto-extracted",
        owner="owner",
        origin=origin,
        made_of=made_of,
    )


async def a_home(root: Path) -> Home:
    """Make a home in which each place has a canary of its own."""
    home = Home(root)
    home.make()
    attachments = Attachments(home.attachments)
    files = {}
    for name in ("upload", "whole", "before"):
        files[name] = await attachments.store(
            canary(f"file {name}").encode(), "owner", claimed="text/plain", name=canary(name)
        )
        await attachments.settle("owner", (files[name],))
    shared = shared_story(files)
    write(home.sessions / f"{MAIN}.jsonl", [*shared, *rest_of_main()])
    digest = write(home.sessions / f"{FORK}.jsonl", shared)
    fork: Event = SessionForked(session=FORK, key="main-fork", parent=MAIN, parent_seq=len(shared))
    write(home.sessions / f"{FORK}.jsonl", [(None, fork)], len(shared) + 1, digest)
    write(home.sessions / f"{OTHER}.jsonl", other_story())
    facts = [
        FactsOpened(format=1),
        FactsExtracted(
            session=MAIN,
            ordinal=2,
            upto=18,
            entries=(a_fact("f-erased", canary("fact"), MESSAGE), a_fact("f-gone", canary("forgotten"), MESSAGE)),
        ),
        FactsExtracted(session=MAIN, ordinal=1, upto=6, entries=(a_fact("f-kept", KEPT, 2),)),
        FactForgotten(id="f-gone", by="owner"),
        FactEdited(id="f-erased", content=canary("edited fact"), by="owner"),
        FactsDistilled(taken=("f-erased",), entries=(a_fact("f-distilled", canary("distilled"), 0, ("f-erased",)),)),
    ]
    previous = FIRST
    with home.facts.open("wb") as log:
        for seq, fact in enumerate(facts, 1):
            line, previous = encode_line(seq, "2026-11-20T09:00:00.000Z", None, fact, previous)
            log.write(line)
    marks = [f"<!-- exuvia {digest_of(text)} -->" for text in (FLUSHED, SECTION)]
    note = f"# Day\n\n- {KEPT}\n\n{FLUSHED}\n\n{marks[0]}\n\n{SECTION}\n\n{marks[1]}\n\nMine: {KEPT}\n"
    (home.root / "workspace/memory").mkdir()
    (home.root / "workspace/memory/2026-11-20.md").write_text(note)
    home.quarantine.mkdir()
    (home.quarantine / f"{MAIN}-20261120T090000.000000Z-10.tail").write_text(canary("torn tail"))
    return home


def places(home: Path) -> set[str]:
    """The files of a home that have a canary, in either case."""
    found = set()
    for path in home.rglob("*"):
        if path.is_file() and (CANARY.encode() in path.read_bytes().lower() or b"zqxj" in path.read_bytes().lower()):
            found.add(path.relative_to(home).as_posix())
    return found


def check_rest(home: Home) -> None:
    """Everything that was not erased is there, and every log verifies."""
    check_logs(home)
    assert (home.root / "workspace/memory/2026-11-20.md").read_text() == f"# Day\n\n- {KEPT}\n\nMine: {KEPT}\n"


def check_logs(home: Home) -> None:
    """What was not erased is in the logs, which verify."""
    logs = session_logs(home)
    for session in (MAIN, FORK, OTHER):
        StoredLog(logs, session).verify()
    main = list(StoredLog(logs, MAIN).events())
    texts = msgspec.json.encode([each.event for each in main]).decode()
    assert texts.count(KEPT) == 5
    assert texts.count('"sha256":"aaaa') == 1  # of the request before
    assert KEPT in home.facts.read_text()
    assert [type(each.event).__name__ for each in main[:32]] == [
        type(event).__name__ for _, event in [*shared_story(_NO_FILES), *rest_of_main()]
    ]
    assert main[32].event.seqs[0] == (8, 8)  # type: ignore[union-attr]


_NO_FILES = {name: Attachment(sha256="0" * 64, media="text/plain", bytes=1) for name in ("upload", "whole", "before")}

SETTINGS = {
    "memory.embedding.provider": "none",
    "compaction.memory_flush.enabled": False,
    "memory.facts.auto_extract": False,
    "memory.facts.distill_interval_hours": 0,
}


def exuvia(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "exuvia", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=DEADLINE, check=False)


async def test_nothing_of_an_erased_message_is_left_without_a_gateway(tmp_path: Path) -> None:
    home = await a_home(tmp_path / "home")
    assert len(places(home.root)) > 8
    done = await asyncio.to_thread(exuvia, "erase", "message", "main", str(MESSAGE), "--home", home.root, "--yes")
    assert done.returncode == 0, done.stderr
    assert places(home.root) == set()
    check_rest(home)
    verified = await asyncio.to_thread(exuvia, "sessions", "verify", "--home", home.root)
    assert verified.returncode == 0, verified.stdout
    async with gateway(home.root, settings=SETTINGS) as running:
        client = await running.connect()
        await client.chat("And now?")
    assert places(home.root) == set()


def is_about(key: str, frame: Frame) -> bool:
    return frame.get("session") == key


async def test_a_running_gateway_erases_a_message_everywhere(tmp_path: Path) -> None:
    home = await a_home(tmp_path / "home")
    async with gateway(home.root, settings=SETTINGS) as running:
        client = await running.connect()
        for key in ("main", "main-fork", "other"):
            await client.say("subscribe", id=key, session=key, after=0)
            await client.until(partial(is_about, key))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for path in ("/api/conversations/search?q=sings", "/api/memory?q=sings"):
            async with running.http.get(running.url + path, headers=headers) as response:
                assert "sings" in await response.text()
        assert {"messages.sqlite", "memory.sqlite"} <= {place.removesuffix("-wal") for place in places(home.root)}
        wanted = {"session": "main", "message": MESSAGE}
        async with running.http.post(f"{running.url}/api/erasures", json=wanted, headers=headers) as response:
            assert response.status == 200, await response.text()
            receipt = await response.json()
        assert (receipt["sessions"], receipt["facts"], receipt["attachments"]) == (3, 3, 3)
        erased: dict[str, Any] = {}
        while len(erased) < 3:
            frame = await client.until(lambda frame: frame.get("event", {}).get("kind") == "journal_erased")
            erased[frame["session"]] = frame["event"]["seqs"]
        assert (erased["main"][0], erased["main-fork"][0], erased["other"]) == ([8, 8], [8, 8], [[4, 5]])
        for path in ("/api/conversations/search?q=sings", "/api/memory?q=sings"):
            async with running.http.get(running.url + path, headers=headers) as response:
                assert CANARY not in await response.text()
        await client.chat("And now?")
        assert places(home.root) == set()
    assert places(home.root) == set()
    check_rest(home)


async def test_a_backup_from_before_is_restored_without_what_was_erased(tmp_path: Path) -> None:
    home = await a_home(tmp_path / "home")
    for target in ("one", "two"):
        done = await asyncio.to_thread(exuvia, "backup", tmp_path / target, "--home", home.root)
        assert done.returncode == 0, done.stderr
    erased = await asyncio.to_thread(
        exuvia, "erase", "message", "main", str(MESSAGE), "--home", home.root, "--yes", "--json"
    )
    assert erased.returncode == 0, erased.stderr
    assert [str(tmp_path / "one") in each for each in json.loads(erased.stdout)["remains"]] == [True, False, False]
    assert places(tmp_path / "one")
    restored = await asyncio.to_thread(exuvia, "restore", tmp_path / "one", "--home", tmp_path / "again")
    assert restored.returncode == 0, restored.stderr
    assert b"Erasures and deletions applied again: 1." in restored.stdout
    assert places(tmp_path / "again") == set()
    check_rest(Home(tmp_path / "again"))
    (tmp_path / "two/erased.jsonl").unlink()  # as if it had been kept elsewhere
    ledger = home.deletions
    restored = await asyncio.to_thread(exuvia, "restore", tmp_path / "two", "--home", tmp_path / "third", "--ledger", ledger)
    assert restored.returncode == 0, restored.stderr
    assert places(tmp_path / "third") == set()
    await asyncio.to_thread(exuvia, "backup", tmp_path / "one", "--home", home.root)
    assert places(tmp_path / "one") == set()


STEPS = (
    "gateway.conversations.deletion.deletion_log.ErasureFinished",
    "gateway.conversations.deletion.deletion_log.rechained",
    "gateway.conversations.erasure.erasures.Erasures._erase_facts",
    "gateway.conversations.erasure.erasures.erase_from_notes",
    "gateway.conversations.erasure.erasures.Erasures._rewrite",
    "gateway.conversations.erasure.erasures.Erasures._refresh_catalog",
    "gateway.conversations.erasure.erasures.Erasures._remove_set_aside",
    "sessions.attachments.store.Attachments.release",
    "gateway.conversations.erasure.derived_data.ClosedIndexes.purge",
    "sessions.files.journals.write_new",
    "sessions.files.journals.sync_folder",
)

KILLED = """
import os, signal, sys
from importlib import import_module

name, calls = sys.argv.pop(1), int(sys.argv.pop(1))
place = name.split(".")
for length in range(len(place) - 1, 0, -1):
    try:
        owner = import_module(".".join(place[:length]))
    except ImportError:
        continue
    for part in place[length:-1]:
        owner = getattr(owner, part)
    break
original, seen = getattr(owner, place[-1]), 0


def killing(*given, **named):
    global seen
    seen += 1
    if seen == calls:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*given, **named)


setattr(owner, place[-1], killing)
from exuvia import main
main()
"""


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("call", [1, 2])
async def test_an_erasure_that_was_killed_is_finished_by_the_next_start(tmp_path: Path, step: str, call: int) -> None:
    home = await a_home(tmp_path / "home")
    command = [sys.executable, "-c", KILLED, step, str(call)]
    arguments = ["erase", "message", "main", str(MESSAGE), "--home", str(home.root), "--yes"]
    killed = await asyncio.to_thread(
        subprocess.run, [*command, *arguments], capture_output=True, timeout=DEADLINE, check=False
    )
    assert killed.returncode in {-9, 0}, killed.stderr
    if killed.returncode == 0:  # it is called once only
        assert call == 2
        return
    async with gateway(home.root, settings=SETTINGS) as running:
        client = await running.connect()
        await until(lambda: b"erasure_finished" in home.deletions.read_bytes())
        await client.chat("And now?", session="new")
    assert places(home.root) == set()
    assert b'"attachments"' not in home.deletions.read_bytes()
    check_rest(home)


async def test_an_erasure_whose_conversations_are_in_use_after_a_start_is_finished_once_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = await a_home(tmp_path / "home")
    command = [sys.executable, "-c", KILLED, "sessions.attachments.store.Attachments.release", "1"]
    arguments = ["erase", "message", "main", str(MESSAGE), "--home", str(home.root), "--yes"]
    killed = await asyncio.to_thread(
        subprocess.run, [*command, *arguments], capture_output=True, timeout=DEADLINE, check=False
    )
    assert killed.returncode == -9, killed.stderr
    carry_out, conflicts = removals.Removals._carry_out, [Conflict("A turn is running."), Conflict("A turn is running.")]

    async def conflict_twice(self: removals.Removals, *arguments: Any) -> Any:
        if conflicts:
            raise conflicts.pop()
        return await carry_out(self, *arguments)

    monkeypatch.setattr(removals, "RETRY_SECONDS", (0.01,))
    monkeypatch.setattr(removals.Removals, "_carry_out", conflict_twice)
    async with gateway(home.root, settings=SETTINGS):
        await until(lambda: b"erasure_finished" in home.deletions.read_bytes())
    assert (places(home.root), conflicts) == (set(), [])


@pytest.mark.parametrize("what", [["session", "main"], ["person", "owner"]])
async def test_an_erased_conversation_is_gone_with_what_forks_share_with_it(tmp_path: Path, what: list[str]) -> None:
    home = await a_home(tmp_path / "home")
    done = await asyncio.to_thread(exuvia, "erase", *what, "--home", home.root, "--yes")
    assert done.returncode == 0, done.stderr
    async with gateway(home.root, settings=SETTINGS) as running:
        client = await running.connect()
        await client.chat("And now?", session="new")
    assert places(home.root) == set()
    assert not (home.sessions / f"{MAIN}.jsonl").exists()
    assert (home.sessions / f"{OTHER}.jsonl").exists() == (what[0] == "session")
    verified = await asyncio.to_thread(exuvia, "sessions", "verify", "--home", home.root)
    assert verified.returncode == 0, verified.stdout


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


async def test_a_message_is_erased_from_a_database_and_a_backup_of_it_has_the_same_bytes(tmp_path: Path, url: str) -> None:
    home = await a_home(tmp_path / "home")
    copied = await asyncio.to_thread(exuvia, "store", "copy", "--from", home.root, "--to", url)
    assert copied.returncode == 0, copied.stdout
    for log in [*home.sessions.iterdir(), home.facts]:
        log.unlink()
    shutil.rmtree(home.attachments)
    file = f'[agent]\nmodel = "scripted:echo"\n[store]\nkind = "postgres"\nurl = "{url}"\n'
    (home.root / "config.toml").write_text(file)
    before = await asyncio.to_thread(exuvia, "backup", tmp_path / "before", "--home", home.root)
    assert before.returncode == 0, before.stderr
    restored = await asyncio.to_thread(exuvia, "restore", tmp_path / "before", "--home", tmp_path / "old")
    assert restored.returncode == 0, restored.stderr
    assert len([path for path in (tmp_path / "old/attachments").iterdir() if path.is_file()]) == 3
    async with gateway(home.root, file=file) as running:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        wanted = {"session": "main", "message": MESSAGE}
        async with running.http.post(f"{running.url}/api/erasures", json=wanted, headers=headers) as response:
            assert response.status == 200, await response.text()
            receipt = await response.json()
        assert (receipt["sessions"], receipt["facts"], receipt["attachments"]) == (3, 3, 3)
        client = await running.connect()
        await client.chat("And now?")
    assert places(home.root) == set()
    there = Home(tmp_path / "there")
    again = await asyncio.to_thread(exuvia, "store", "copy", "--from", url, "--to", there.root)
    assert again.returncode == 0, again.stdout
    assert places(there.root) == set()
    check_logs(there)
    backed = await asyncio.to_thread(exuvia, "backup", tmp_path / "backup", "--home", home.root)
    assert backed.returncode == 0, backed.stderr
    restored = await asyncio.to_thread(exuvia, "restore", tmp_path / "backup", "--home", tmp_path / "restored")
    assert restored.returncode == 0, restored.stderr
    for log in [*there.sessions.iterdir(), there.facts]:
        assert (tmp_path / "restored" / log.relative_to(there.root)).read_bytes() == log.read_bytes()


async def test_a_plan_is_made_again_only_after_a_log_has_changed(tmp_path: Path) -> None:
    home = await a_home(tmp_path / "home")
    async with open_erasures(home, home.workspaces(["workspace"])) as offline:
        made = offline._erasures
        order = await made.order("owner", {MAIN: Chosen(messages=frozenset({MESSAGE}))}, "owner")
        plan = await made.plan(order)
        assert await made.plan(order, plan) is plan
        (home.sessions / f"{OTHER}.jsonl").unlink()
        write(home.sessions / f"{OTHER}.jsonl", [(None, opened(OTHER, "other")), (None, said(KEPT, "m1"))])
        assert OTHER in plan.changing
        assert OTHER not in (await made.plan(order, plan)).changing


async def ask_to_erase(running: Gateway, key: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    headers, wanted = {"Authorization": f"Bearer {TOKEN}"}, {"session": key, **fields}
    async with running.http.post(f"{running.url}/api/erasures", json=wanted, headers=headers) as response:
        return response.status, await response.json()


async def test_a_conversation_of_several_sessions_is_erased_by_one_order(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=SETTINGS) as running:
        client = await running.connect()
        await client.chat(canary("first"), session="two")
        await client.command("/new", session="two")
        await client.chat("\n".join(f"the line with the number {each}" for each in range(300)), session="two")
        sessions = set(running.journals())
        status, receipt = await ask_to_erase(running, "two")
        assert (status, receipt["sessions"]) == (200, 2)
        assert "of the erased texts, where others quote them: only the 256 longest" in receipt["remains"][0]
        orders = [line for line in Home(tmp_path).deletions.read_text().splitlines() if "erasure_ordered" in line]
    (order,) = map(json.loads, orders)
    assert {each["session"] for each in order["sessions"]} == sessions
    assert len(sessions) == 2
    assert places(tmp_path) == set()


async def test_a_conversation_whose_erasure_fails_is_open_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switchboards: list[Switchboard] = []
    enter = Switchboard.__aenter__

    async def entered(self: Switchboard) -> Switchboard:
        switchboards.append(self)
        return await enter(self)

    async def fails(*_: object) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(Switchboard, "__aenter__", entered)
    async with gateway(tmp_path, settings=SETTINGS) as running:
        client = await running.connect()
        await client.chat("Hello.", session="two")
        monkeypatch.setattr(Erasures, "carry_out", fails)
        assert (await ask_to_erase(running, "two"))[0] == 503
        assert switchboards[0]._chats["owner", "two"].is_open


@pytest.mark.parametrize(
    ("owner", "function", "session"),
    [(Erasures, "_plan", MAIN), (Erasures, "_plan", OTHER), (erasures, "family", FORK)],
    ids=["of the message", "of a quotation", "of a fork"],
)
async def test_an_erasure_is_not_finished_if_a_journal_cannot_be_read_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, function: str, session: str
) -> None:
    home = await a_home(tmp_path / "home")
    async with gateway(home.root, settings=SETTINGS) as running:
        failed = read_fails_once(monkeypatch, owner, function, session)
        assert ((await ask_to_erase(running, "main", message=MESSAGE))[0], failed) == (503, [session])
        assert not home.deletions.exists() or "erasure_finished" not in home.deletions.read_text()
        assert (await ask_to_erase(running, "main", message=MESSAGE))[0] == 200
    assert places(home.root) == set()
    check_rest(home)


@pytest.mark.parametrize("cause", [StorageFailed("Too many open files"), RuntimeError("can't start new thread")])
async def test_conversations_whose_journals_cannot_be_read_during_an_erasure_keep_their_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: Exception
) -> None:
    catalogs: list[Catalog] = []
    row_of, carry_out = erasures._row_of, Erasures.carry_out

    class Unreadable(JournalFolder):
        def read(self, session: str) -> NoReturn:
            raise cause

    async def noted(self: Erasures, plan: Any) -> Any:
        catalogs.append(self._catalog)
        return await carry_out(self, plan)

    async with gateway(tmp_path, settings=SETTINGS) as running:
        client = await running.connect()
        await client.chat(canary("both"), session="two")
        await client.command("/new", session="two")
        await client.chat(canary("both"), session="two")
        before = running.journals()
        (message,) = [each["seq"] for each in list(before.values())[-1] if each["kind"] == "message_received"]
        monkeypatch.setattr(Erasures, "carry_out", noted)
        with monkeypatch.context() as broken:
            broken.setattr(erasures, "_row_of", lambda _, row: row_of(Unreadable(tmp_path), row))
            status, _ = await ask_to_erase(running, "two", message=message)
        (catalog,) = catalogs
        current = await catalog.current("owner", "two")
        assert current is not None
        assert [current.session, *(row.session for row in catalog.chain(current.session))] == list(before)[::-1]
        await client.chat("And now?", session="two")
        assert list(running.journals()) == list(before)
        assert "And now?" in str(running.journals()[current.session])
        assert status != 200 or "catalog.sqlite" not in places(tmp_path)


def with_another_sum(line: bytes) -> bytes:
    return line[:-19] + b"0" * 16 + line[-3:]


def as_noise(line: bytes) -> bytes:
    return b"#" * (len(line) - 1) + b"\n"


@pytest.fixture(params=[with_another_sum, as_noise])
def damage(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Damage the second line of a journal, which has nothing to erase: its sum, or all of it."""

    def damaged(journal: Path) -> None:
        lines = journal.read_bytes().splitlines(keepends=True)
        lines[1] = request.param(lines[1])
        journal.write_bytes(b"".join(lines))

    return damaged


async def test_a_damaged_journal_that_quotes_what_is_erased_is_named_in_the_receipt(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    home = await a_home(tmp_path / "home")
    journal = home.sessions / f"{OTHER}.jsonl"
    damage(journal)
    damaged = journal.read_bytes()
    async with gateway(home.root, settings=SETTINGS) as running:
        status, receipt = await ask_to_erase(running, "main", message=MESSAGE)
    assert (status, receipt["sessions"]) == (200, 2)
    assert f"Quotations in the damaged journal of {OTHER}, which was not changed." in receipt["remains"]
    assert "erasure_finished" in home.deletions.read_text()
    assert (places(home.root), journal.read_bytes()) == ({f"sessions/{OTHER}.jsonl"}, damaged)


async def test_everything_else_is_erased_if_the_journal_with_the_message_is_damaged(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    home = await a_home(tmp_path / "home")
    damage(home.sessions / f"{MAIN}.jsonl")
    for _ in range(2):
        done = await asyncio.to_thread(exuvia, "erase", "message", "main", str(MESSAGE), "--home", home.root, "--yes")
        assert done.returncode != 0
        assert f"{MAIN}.jsonl, line 2".encode() in done.stderr
        assert "erasure_finished" not in home.deletions.read_text()
        left = {place for place in places(home.root) if not place.startswith("attachments/")}
        assert left == {f"sessions/{MAIN}.jsonl", f"quarantine/{MAIN}-20261120T090000.000000Z-10.tail"}


class Attempts:
    """The conversations that kept an erasure from beginning, one for each attempt, and the sessions that were stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused_by: list[str] = []
        self.stopped: list[str] = []
        require, stop = Switchboard._require_idle, ConversationRunner.stop

        def noted(switchboard: Switchboard, chat: Chat) -> None:
            try:
                require(switchboard, chat)
            except Conflict:
                self.refused_by.append(chat.key)
                raise

        async def stopped(runner: ConversationRunner, session: str) -> None:
            self.stopped.append(session)
            await stop(runner, session)

        monkeypatch.setattr(Switchboard, "_require_idle", noted)
        monkeypatch.setattr(ConversationRunner, "stop", stopped)


async def forget_while_a_fork_is_busy(running: Gateway, fork: str) -> Client:
    """Ask for the erasure of a message that a fork has too, in which a turn runs now; return the client that asked."""
    client, other = await running.connect(), await running.connect()
    await client.chat("a canary that both have")
    asked = await client.command("/forget message")
    (number,) = re.findall(r"`/forget message (\d+) yes`", asked)
    await client.say("fork", id="f", session="main", key=fork)
    await client.until_type("forked", id="f")
    await other.send("a long story", session=fork)
    await other.until_event("turn_started")
    assert "erased as soon as" in await client.command(f"/forget message {number} yes")
    return client


@pytest.fixture
def story_waits(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Hold back the reply to `a long story` until this event is set."""
    go_on, stream = asyncio.Event(), Scripted.stream

    async def held(self: Scripted, request: ChatRequest) -> AsyncIterator[StreamPart]:
        if "a long story" in str(request.context.messages[-1]):
            await go_on.wait()
        async for part in stream(self, request):
            yield part

    monkeypatch.setattr(Scripted, "stream", held)
    return go_on


@pytest.mark.parametrize("fork", ["a-fork", "z-fork"])
async def test_an_erasure_that_reaches_a_busy_conversation_is_carried_out_after_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story_waits: asyncio.Event, fork: str
) -> None:
    monkeypatch.setattr(removals, "RETRY_SECONDS", (0.01,), raising=False)
    attempts = Attempts(monkeypatch)
    async with gateway(tmp_path, settings=SETTINGS) as running:
        await forget_while_a_fork_is_busy(running, fork)
        await until(lambda: attempts.refused_by)
        await (await running.connect()).chat("time passes", session="elsewhere")  # nothing changes in `main` any more
        assert (set(attempts.refused_by), attempts.stopped) == ({fork}, [])
        story_waits.set()
        await until(lambda: "both have" not in str(running.journals()))


async def test_an_erasure_that_reaches_a_busy_conversation_is_tried_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story_waits: asyncio.Event
) -> None:
    monkeypatch.setattr(removals, "RETRY_SECONDS", (3600.0,), raising=False)
    attempts = Attempts(monkeypatch)
    async with gateway(tmp_path, settings=SETTINGS) as running:
        client = await forget_while_a_fork_is_busy(running, "z-fork")
        await until(lambda: attempts.refused_by)
        for number in range(3):
            await client.command(f"/title Title {number}")
        assert attempts.refused_by == ["z-fork"]
        story_waits.set()
