"""Recovery of a chat after a failure: nobody waits forever, nothing is left unfinished, nothing goes unseen."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

import sessions.files.append_file
from benchmarks.stage import Model, Stage, hangs_after
from gateway.conversations.approvals.open_questions import OpenQuestions
from gateway.conversations.context.conversation_config import standing_instructions
from gateway.conversations.deletion.deletions import Deletions
from gateway.conversations.facts.fact_extraction import FactExtraction
from gateway.conversations.routing import switchboard
from gateway.conversations.routing.person_erasure import PersonErasures
from gateway.conversations.routing.removals import Removals
from gateway.conversations.schedules.heartbeat import Heartbeats
from gateway.conversations.schedules.scheduler import Scheduler
from gateway.wiring import daemon
from plugins.mcp.mcp_client import McpClient
from sessions.events.codec import encode
from sessions.events.errors import StorageFailed
from sessions.events.events import MessageReceived, ModelReplied, Recorded, TurnEnded
from sessions.files.append_file import AppendFile
from sessions.store.catalog import SoleClaims
from sessions.store.recorder import open_session
from tests.gateway.gateways import Client, Gateway, gateway
from tests.stories import AT
from tests.waiting import DEADLINE, deadline, until

SLOW: list[dict[str, Any]] = [
    {"text": "one two three four five six seven eight nine ten " * 4, "delay_ms": 50},
    *[{"purpose": "flush", "text": "NO_REPLY"}] * 4,
]


def kinds(running: Gateway, session: str) -> list[str]:
    return [event["kind"] for event in running.journals()[session]]


async def leave_something_to_finish(client: Client) -> str:
    """Leave a turn running in the old session after `/new`; return that session."""
    await client.send("go")
    accepted = await client.until_type("accepted")
    await client.until_type("delta")
    await client.send("/new")
    await client.until_event("command_answered")
    session: str = accepted["session_id"]
    return session


def damage(home: Path) -> Path:
    [path] = (home / "sessions").glob("*.jsonl")
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    return path


async def test_an_old_session_that_fails_while_it_finishes_is_reopened_and_its_reader_sees_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path / "home", script=SLOW) as running:
        client = await running.connect()
        old = await leave_something_to_finish(client)
        failures: list[int] = []
        write = sessions.files.append_file.AppendFile._write

        def fail_once(self: Any, chunk: bytes) -> None:
            if old in str(self._path) and b"model_replied" in chunk and not failures:
                failures.append(1)
                raise OSError(28, "No space left on device")
            write(self, chunk)

        monkeypatch.setattr(sessions.files.append_file.AppendFile, "_write", fail_once)
        await until(lambda: "session_closed" in kinds(running, old))
        await client.until_event("session_closed")

        assert failures == [1]
        assert [e["seq"] for s, e in client.events() if s == old][1:] == [
            event["seq"] for event in running.journals()[old][2:]
        ]


async def test_a_turn_without_a_free_descriptor_is_retried_and_not_logged_as_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []

    def fail_once(*arguments: Any) -> str:
        if not failures:
            failures.append(1)
            raise OSError(errno.EMFILE, "Too many open files")
        return standing_instructions(*arguments)

    monkeypatch.setattr("gateway.conversations.context.conversation_config.standing_instructions", fail_once)
    monkeypatch.setattr(switchboard, "REOPEN_SECONDS", (0.05,))
    with capture_logs() as logs:
        async with gateway(tmp_path) as running:
            assert await (await running.connect()).chat("hi") == "hi"
    dropped = [entry["reason"] for entry in logs if entry["event"] in ("conversation_dropped", "conversation_failed")]
    assert dropped == ["[Errno 24] Too many open files"]


@pytest.mark.parametrize("failure", [StorageFailed("no"), RuntimeError("can't start new thread"), KeyError("a fault")])
async def test_an_interrupted_turn_is_resumed_although_its_session_cannot_be_opened_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    home, held = tmp_path / "home", [{"text": "one two three four", "delay_ms": 60_000}]
    async with gateway(home, script=held, settings={"gateway.stop_within": "0s"}) as running:
        client = await running.connect()
        await client.send("go")
        await client.until_event("turn_started")
    failures: list[int] = []

    async def fail_twice(*arguments: Any) -> Any:
        if len(failures) < 2:
            failures.append(1)
            raise failure
        return await open_session(*arguments)

    monkeypatch.setattr(switchboard, "open_session", fail_twice)
    monkeypatch.setattr(switchboard, "REOPEN_SECONDS", (0.05,))
    async with gateway(home) as running:
        [session] = running.journals()
        await until(lambda: "turn_ended" in kinds(running, session))
        assert len(failures) == 2


async def test_a_conversation_is_opened_again_when_threads_run_out_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []
    write = AppendFile.write

    def fail_once(self: AppendFile, chunk: bytes) -> None:
        if b"model_replied" in chunk and not failures:
            failures.append(1)
            raise StorageFailed("No space left on device")
        write(self, chunk)

    async def no_thread(*arguments: Any) -> Any:
        if len(failures) == 1:
            failures.append(1)
            raise RuntimeError("can't start new thread")
        return await open_session(*arguments)

    monkeypatch.setattr(AppendFile, "write", fail_once)
    monkeypatch.setattr(switchboard, "open_session", no_thread)
    monkeypatch.setattr(switchboard, "REOPEN_SECONDS", (0.05,))
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.send("hi")
        await client.until_event("turn_ended")
        assert len(failures) == 2


async def test_idle_conversations_are_closed_although_one_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boards: list[switchboard.Switchboard] = []
    unload = switchboard.Switchboard._unload_if_idle

    async def fail_once(self: switchboard.Switchboard, name: Any, chat: Any) -> None:
        if not boards:
            boards.append(self)
            raise RuntimeError("can't start new thread")
        await unload(self, name, chat)

    monkeypatch.setattr(switchboard, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(switchboard, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(switchboard.Switchboard, "_unload_if_idle", fail_once)
    async with gateway(tmp_path) as running:
        client = await running.connect()
        for key in ("a", "b"):
            await client.chat("hi", session=key)
            await client.say("unsubscribe", session=key)
        await until(lambda: boards and not boards[0].load().conversations)


RESUMING: list[tuple[type, str]] = [
    (McpClient, "reconfigure"),
    (Removals, "resume_erasures"),
    (SoleClaims, "unowned"),
    (Removals, "resume_deletions"),
    (Removals, "resume_requests"),
    (PersonErasures, "resume"),
    (Heartbeats, "start"),
]


async def leave_a_turn_to_resume(home: Path) -> None:
    held = [{"text": "one two three four", "delay_ms": 60_000}]
    async with gateway(home, script=held, settings={"gateway.stop_within": "0s"}) as running:
        client = await running.connect()
        await client.send("go")
        await client.until_event("turn_started")


@pytest.mark.parametrize(("owner", "step"), RESUMING)
async def test_a_step_of_the_start_that_fails_unexpectedly_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    await leave_a_turn_to_resume(tmp_path)
    attempts, complete = list[int](), list[int]()
    done = getattr(owner, step)

    def fail_once(*given: Any) -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("can't start new thread")
        return done(*given)

    monkeypatch.setattr(owner, step, fail_once)
    monkeypatch.setattr(daemon, "RESUME_SECONDS", 0.01)
    monkeypatch.setattr(OpenQuestions, "complete", lambda _: complete.append(len(attempts)))
    async with gateway(tmp_path) as running:
        [session] = running.journals()
        await until(lambda: "turn_ended" in kinds(running, session) and complete)
        status = await (await running.connect()).command("/status")
    assert complete == [2]
    assert "background task" not in status


async def test_the_start_goes_on_without_the_steps_that_keep_failing_and_tries_the_sessions_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_a_turn_to_resume(tmp_path)
    fails, reached = True, list[str]()

    def failing(step: Any) -> Any:
        def attempt(*given: Any) -> Any:
            if fails:
                raise RuntimeError("can't start new thread")
            return step(*given)

        return attempt

    def noted(name: str, step: Any) -> Any:
        def call(*given: Any) -> Any:
            reached.append(name)
            return step(*given)

        return call

    for owner, step in RESUMING:
        monkeypatch.setattr(owner, step, failing(getattr(owner, step)))
    monkeypatch.setattr(daemon, "RESUME_SECONDS", 0.01)
    monkeypatch.setattr(Scheduler, "start", noted("scheduler", Scheduler.start))
    monkeypatch.setattr(OpenQuestions, "complete", noted("questions", OpenQuestions.complete))
    async with gateway(tmp_path) as running:
        await until(lambda: reached == ["scheduler", "questions"])
        status = await (await running.connect()).command("/status", session="other")
        assert "A background task has ended because of a fault (resume_erasures)" in status
        assert "(resume_sessions)" not in status
        [session] = [name for name, events in running.journals().items() if events[0]["key"] == "main"]
        assert "turn_ended" not in kinds(running, session)
        fails = False
        await until(lambda: "turn_ended" in kinds(running, session))


async def test_a_gateway_of_a_cluster_adopts_although_its_own_start_keeps_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "RESUME_SECONDS", 0.0)
    adopting, reported = asyncio.Event(), list[str]()

    async def fail(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    async def adopt() -> None:
        adopting.set()

    removals = SimpleNamespace(
        resume_erasures=fail, resume_deletions=fail, resume_requests=fail, watch_requests=asyncio.Event().wait
    )
    services = SimpleNamespace(heartbeat=SimpleNamespace(start=fail), questions=SimpleNamespace(complete=lambda: None))
    starting: Any = SimpleNamespace(
        switchboard=SimpleNamespace(removals=removals, resume_all=fail, adopt=adopt),
        dependencies=SimpleNamespace(command_services=services),
        persons=SimpleNamespace(resume=fail),
        scheduler=SimpleNamespace(start=lambda: None),
        problems=SimpleNamespace(task_failed=reported.append),
        cluster=object(),
    )
    of_daemon: Any = SimpleNamespace(_start_mcp_servers=fail)
    resuming = asyncio.create_task(daemon.Daemon._resume(of_daemon, starting))
    async with deadline():
        await adopting.wait()
    resuming.cancel()
    await asyncio.wait([resuming])
    assert reported == [
        *("start_mcp_servers", "resume_erasures", "resume_deletions", "resume_erasures_of_persons", "resume_requests"),
        "start_heartbeat",
    ]


async def test_a_deletion_that_fails_unexpectedly_keeps_no_other_from_being_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, finished = Deletions.finish, list[str]()

    async def fail(*_: Any) -> Any:
        raise StorageFailed("The disk failed.")

    async def fail_once(self: Deletions, begun: Any) -> Any:
        finished.append(begun.event.deletion)
        if len(finished) == 1:
            raise RuntimeError("can't start new thread")
        return await finish(self, begun)

    with monkeypatch.context() as patch:
        patch.setattr(Deletions, "finish", fail)
        async with gateway(tmp_path) as running:
            client = await running.connect()
            for key in ("a", "b"):
                await client.chat("hi", session=key)
                await client.say("delete", id=key, session=key)
                await client.until_type("error", id=key)
    monkeypatch.setattr(Deletions, "finish", fail_once)
    async with gateway(tmp_path) as running:
        await until(lambda: b"deletion_finished" in (tmp_path / "deletions.jsonl").read_bytes())
        status = await (await running.connect()).command("/status")
    assert len(set(finished)) == 2
    assert "A deletion could not be finished; the next start tries again." in status


async def test_what_a_start_finds_before_the_search_fails_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await leave_a_turn_to_resume(tmp_path)
    unowned, searches = SoleClaims.unowned, list[int]()

    async def fails_after_the_first(self: SoleClaims) -> AsyncIterator[Any]:
        searches.append(1)
        async for name in unowned(self):
            yield name
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(SoleClaims, "unowned", fails_after_the_first)
    monkeypatch.setattr(daemon, "RESUME_SECONDS", DEADLINE)
    with capture_logs() as logs:
        async with gateway(tmp_path) as running:
            [session] = running.journals()
            await until(lambda: "turn_ended" in kinds(running, session))
    [failed] = [entry for entry in logs if entry["event"] == "start_step_failed"]
    assert (failed["step"], failed["reason"], len(searches)) == ("resume_sessions", "can't start new thread", 1)


async def test_a_start_goes_on_although_an_opened_session_cannot_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_a_turn_to_resume(tmp_path)
    complete = list[int]()

    async def fail(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(switchboard.Switchboard, "_unload_if_idle", fail)
    monkeypatch.setattr(OpenQuestions, "complete", lambda _: complete.append(1))
    with capture_logs() as logs:
        async with gateway(tmp_path):
            await until(lambda: complete)
    found = [entry["event"] for entry in logs if entry["event"] in ("session_not_closed", "start_step_failed")]
    assert found == ["session_not_closed"]


async def test_a_background_task_that_has_ended_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(FactExtraction, "run", fail)
    with capture_logs() as logs:
        async with gateway(tmp_path) as running:
            status = await (await running.connect()).command("/status")
    assert "A background task has ended because of a fault (" in status
    [failed] = [entry for entry in logs if entry["event"] == "background_task_failed"]
    assert (failed["kind"], failed["reason"]) == ("RuntimeError", "a fault")


async def test_an_older_session_that_cannot_be_opened_does_not_block_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    async with gateway(home, script=SLOW, settings={"gateway.stop_within": "0.1s"}) as running:
        old = await leave_something_to_finish(await running.connect())
    failures: list[int] = []

    async def fail_once(journals: Any, catalog: Any, session: str) -> Any:
        if session == old and not failures:
            failures.append(1)
            raise StorageFailed("a moment's trouble")
        return await open_session(journals, catalog, session)

    monkeypatch.setattr("gateway.conversations.routing.switchboard.open_session", fail_once)
    async with gateway(home) as running:
        client = await running.connect()
        assert await client.chat("still there?")
        await until(lambda: "session_closed" in kinds(running, old))
        assert failures == [1]


async def test_a_message_after_a_new_that_a_stop_left_unanswered_belongs_to_the_next_session(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with gateway(home) as running:
        await (await running.connect()).chat("hi")
    [path] = (home / "sessions").glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    asked = MessageReceived(
        id="n", client="c", sender="owner", channel="websocket", chat="private", text="/new", attachments=()
    )
    line, _ = encode(Recorded(seq=len(lines) + 1, at=AT, turn=None, event=asked), lines[-1][-19:-3])
    path.write_bytes(b"".join([*lines, line]))
    async with gateway(home) as running:
        client = await running.connect()
        answer = await client.until_answered(await client.send("what now"))
        assert answer["session_id"] != path.stem


async def test_a_new_whose_own_session_fails_meanwhile_has_one_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switchboard, "REOPEN_SECONDS", (0.05,))
    writing, go_on, failing = threading.Event(), threading.Event(), threading.Event()
    sync, write = AppendFile.sync, AppendFile._write

    def slow_sync(self: AppendFile) -> None:
        if self._fresh:
            writing.set()
            go_on.wait(DEADLINE)
        sync(self)

    def full(self: AppendFile, chunk: bytes) -> None:
        if failing.is_set():
            failing.clear()
            raise OSError(28, "No space left on device")
        write(self, chunk)

    async with gateway(tmp_path, script=SLOW) as running:
        client = await running.connect()
        await client.send("go")
        old = (await client.until_type("delta"))["session_id"]
        monkeypatch.setattr(AppendFile, "sync", slow_sync)
        monkeypatch.setattr(AppendFile, "_write", full)
        await client.send("/new")
        await asyncio.to_thread(writing.wait, DEADLINE)  # the next session's first line is on its way
        failing.set()
        await client.say("cancel", session="main")  # which the old session cannot write down any more
        await until(lambda: not failing.is_set())
        await asyncio.sleep(0.05)
        go_on.set()
        while (await client.until_answered(await client.send("hello")))["type"] != "accepted":
            await asyncio.sleep(0.02)
        await until(lambda: "session_closed" in kinds(running, old))
        [first, second] = running.journals().values()
    assert [event["text"] for event in first if event["kind"] == "message_received"] == ["go", "/new"]
    assert [event["text"] for event in second if event["kind"] == "message_received"] == ["hello"]
    assert second[0]["succeeds"]["session"] == old


async def test_a_subscription_to_a_damaged_session_is_answered(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with gateway(home) as running:
        await (await running.connect()).chat("hi")
    path = damage(home)
    async with gateway(home) as running:
        client = await running.connect()
        await client.say("subscribe", id="s", session="main", after=0)
        settings = await client.until_type("settings", id="s")
        assert (settings["session_id"], settings["queue"], settings["archived"]) == (path.stem, "followup", False)


async def test_two_clients_that_leave_a_damaged_session_at_once_get_one_new_session(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with gateway(home) as running:
        await (await running.connect()).chat("hi")
    path = damage(home)
    async with gateway(home) as running:
        clients = [await running.connect() for _ in range(4)]
        await asyncio.gather(*(client.send("/new", id_="same") for client in clients))
        answers = [await client.until_answered("same") for client in clients]
        assert sorted(answer["duplicate"] for answer in answers) == [False, True, True, True]
        [session] = {answer["session_id"] for answer in answers}
        answered = await clients[0].until_event("command_answered")
        assert answered["answer"] == "A new session has begun."
        assert await clients[1].chat("hello")
        assert set(running.journals()) == {path.stem, session}


async def test_many_clients_that_leave_a_damaged_session_are_all_answered(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with gateway(home) as running:
        await (await running.connect()).chat("hi")
    damage(home)
    async with gateway(home) as running:
        clients, asked = [await running.connect() for _ in range(6)], []
        for client in clients:
            await client.send("/new")
            asked.append(await client.send("hello"))
        for client, id_ in zip(clients, asked, strict=True):
            assert (await client.until_answered(id_))["type"] == "accepted"


async def test_damage_that_is_found_before_a_session_is_opened_is_reported(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with gateway(home) as running:
        await (await running.connect()).chat("hi")
    damage(home)
    async with gateway(home) as running:
        client = await running.connect()
        assert (await client.until_answered(await client.send("x")))["code"] == "storage_failed"
    assert len(list((home / "quarantine").glob("*.damage"))) == 1


async def test_a_journal_that_cannot_be_read_is_answered_with_a_sentence(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with gateway(home) as running:
        await (await running.connect()).chat("hi")
    [path] = (home / "sessions").glob("*.jsonl")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    async with gateway(home) as running:
        client = await running.connect()
        answer = await client.until_answered(await client.send("x"))
        assert answer["code"] == "storage_failed"
        assert await client.chat("x", session="other")


async def test_an_abandoned_answer_is_not_shown_to_later_clients(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home", script=[{"text": "half an answer", "error": "bad_request"}]) as running:
        client = await running.connect()
        await client.send("go")
        await client.until_type("delta")
        assert (await client.until_event("turn_ended"))["outcome"] == "failed"
        late = await running.connect()
        await late.say("subscribe", session="main")
        await late.say("ping", id="p")
        await late.until_type("pong")
        assert not [frame for frame in late.frames if frame["type"] == "delta"]


async def test_a_turn_stops_as_soon_as_its_journal_has_failed() -> None:
    stage = Stage(Model(hangs_after("some")))
    running = asyncio.create_task(stage.conversation.run())
    stage.hear("hi")
    await stage.until(lambda: stage.streaming.current is not None and stage.streaming.current.text == "some")
    stage.log.fail()
    with pytest.raises(StorageFailed):
        async with deadline():
            await running
    assert not stage.told(ModelReplied)
    assert not stage.told(TurnEnded)
