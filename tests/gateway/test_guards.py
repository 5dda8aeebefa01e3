"""Preconditions between two steps of the gateway."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSCloseCode, WSMsgType, web

from benchmarks.stage import Instrument, MemoryLog, Model, Stage, says
from gateway.auth.access import Access
from gateway.auth.signed_tokens import LINK_SECONDS, SignedOut, TokenSigner
from gateway.conversations.deletion.deletions import Deletions
from gateway.conversations.routing import chat as chats
from gateway.conversations.routing import forks
from gateway.conversations.routing.conversation_runner import CatalogWriter
from gateway.conversations.routing.removals import Removals
from gateway.conversations.routing.switchboard import Switchboard
from gateway.conversations.turn import tool_calls
from gateway.http.outbox import Outbox
from gateway.http.uploads import Uploads
from gateway.http.websocket_connection import Connection
from gateway.models.call import CALLS_LIMIT, REPLY_LIMIT
from gateway.support.errors import OwnedElsewhere
from plugins.api.chat import CallDraft, ChatRequest, Delta, Reply
from plugins.facts.fact_book import FactBook
from plugins.facts.fact_events import FactsOpened
from plugins.facts.fact_log import FactLog
from plugins.testing.contexts import NOON
from sessions.catalog.sqlite_catalog import SqliteCatalog
from sessions.events.errors import StorageFailed
from sessions.events.events import (
    CommandAnswered,
    ModelReplied,
    Recorded,
    SettingChanged,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnJoined,
    TurnStarted,
)
from sessions.files.append_file import AppendFile
from sessions.files.journal_folder import JournalFolder
from sessions.files.journals import Journal
from sessions.state.transcript import Transcript
from sessions.store.catalog import Claim, Name, SoleClaims
from sessions.store.fork import ForkRefused, fork
from sessions.store.protocols import START
from sessions.store.receipts import Receipts
from sessions.store.recorder import Recorder
from tests.gateway.gateways import TOKEN, Client, Gateway, gateway, syncs_wait
from tests.gateway.test_access import access
from tests.gateway.test_inbox import Between, Now
from tests.sessions.journal_stories import SESSION, journals_in
from tests.stories import opened
from tests.waiting import deadline, until


@pytest.mark.parametrize("repeatable", [False, True])
async def test_the_call_of_an_unrepeatable_tool_is_durable_before_the_tool_runs(*, repeatable: bool) -> None:
    durable: list[bool] = []
    tool = Instrument("tool", lambda: durable.append(stage.log.durable == stage.log.end), repeatable=repeatable)
    stage = Stage(Model(says("", "tool"), says("done")), tool)
    stage.log.steps = 50
    async with stage.playing():
        await stage.say("go")
    assert len(stage.told(ToolCalled)) == 1
    assert durable == [not repeatable], "a repeatable tool is not waited for"


async def test_a_turn_takes_what_is_durable_and_no_more() -> None:
    stage = Stage(Model(says("one"), says("two")), queue="collect")
    stage.log.steps = 50
    durable: list[int] = []
    stage.recorder.on_event(lambda event: durable.append(stage.recorder.durable) if is_turn(event) else None)
    async with stage.playing():
        first = stage.hear("one", "1")
        for _ in range(25):
            await asyncio.sleep(0)
        second = stage.hear("two", "2")
        await stage.until_settled()
    assert [event.takes for event in stage.told(TurnStarted)] == [(first,), (second,)]
    assert durable[0] == first
    assert durable[1] >= second


def is_turn(recorded: Recorded) -> bool:
    return isinstance(recorded.event, TurnStarted | TurnJoined)


async def test_a_message_joins_a_running_turn_once_it_is_durable() -> None:
    gate, durable = asyncio.Event(), list[int]()
    stage = Stage(Model(says("", "tool"), says("done")), Instrument("tool", gate.wait), queue="steer")
    stage.recorder.on_event(lambda event: durable.append(stage.recorder.durable) if is_turn(event) else None)
    async with stage.playing():
        stage.hear("one", "1")
        await stage.until(lambda: bool(stage.told(ToolCalled)))
        stage.log.steps = 50
        gate.set()
        second = stage.hear("two", "2")
        await stage.until_settled()
    assert [event.takes for event in stage.told(TurnJoined)] == [(second,)]
    assert durable[1] >= second


async def test_a_message_interrupts_a_turn_once_it_is_durable() -> None:
    ended: list[int] = []

    async def talks(_: ChatRequest) -> AsyncIterator[Delta | Reply]:
        try:
            yield Delta("And then")
            await asyncio.Event().wait()
        finally:
            ended.append(stage.recorder.durable)

    stage = Stage(Model(talks, says("two")), queue="interrupt")
    async with stage.playing():
        stage.hear("one", "1")
        await stage.until(lambda: stage.streaming.current is not None)
        stage.log.steps = 50
        second = stage.hear("two", "2")
        await stage.until_settled()
    assert len(ended) == 1
    assert ended[0] >= second


@pytest.mark.parametrize("command", [Now(), Between()], ids=lambda command: command.name)
async def test_a_command_runs_once_it_is_durable(command: Between, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    async def run(*_: object) -> str:
        ran.append(stage.recorder.durable)
        return "done"

    monkeypatch.setattr(type(command), "run", run)
    stage = Stage(Model(says("one")), commands={command.name: command})
    stage.log.steps = 50
    async with stage.playing():
        seq = stage.hear(f"/{command.name}")
        await stage.until(lambda: bool(stage.told(CommandAnswered)))
    assert len(ran) == 1
    assert ran[0] >= seq


async def test_a_fact_is_recorded_and_read_once_it_is_durable() -> None:
    log = MemoryLog()
    log.steps = 50
    facts = FactLog(log, START, FactBook(), lambda: NOON)
    event = FactsOpened(format=1)
    await facts.append_durable(event)
    assert log.durable == log.end
    seq = facts.append(event, urgent=True)
    assert [(each.seq, each.event) for each in await facts.events([seq])] == [(seq, event)]
    assert log.durable == log.end


async def test_a_reply_with_more_calls_than_are_taken_ends_the_turn_and_runs_none() -> None:
    tool = Instrument("tool")
    stage = Stage(Model(says("", *["tool"] * (CALLS_LIMIT + 1))), tool)
    async with stage.playing():
        stage.hear("go")
        await stage.until(lambda: bool(stage.told(TurnEnded)))
    (ended,) = stage.told(TurnEnded)
    assert (ended.outcome, ended.error.code) == ("failed", "bad_answer")
    assert (tool.runs, stage.told(ToolReturned)) == (0, [])


async def test_as_many_calls_as_are_taken_run() -> None:
    tool = Instrument("tool", repeatable=True)
    stage = Stage(Model(says("", *["tool"] * CALLS_LIMIT), says("done")), tool)
    async with stage.playing():
        await stage.say("go")
    assert tool.runs == CALLS_LIMIT


async def babbles(request: ChatRequest) -> AsyncIterator[Delta | Reply]:
    """Return a model whose stream is longer than allowed."""
    for _ in range(5):
        yield Delta("x" * (REPLY_LIMIT // 2))
    yield Reply(text="It is done.", model=request.model, stop="end")


async def test_an_answer_is_cut_where_it_becomes_too_long() -> None:
    stage = Stage(Model(babbles))
    async with stage.playing():
        await stage.say("go")
    (replied,) = stage.told(ModelReplied)
    assert (replied.stop, len(replied.text)) == ("length", REPLY_LIMIT)


async def test_a_reply_with_more_arguments_than_are_taken_ends_the_turn_and_runs_nothing() -> None:
    tool = Instrument("tool")

    async def answer(request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        call = CallDraft(id="c", tool="tool", arguments=json.dumps({"a": "x" * (REPLY_LIMIT // 2)}))
        yield Reply(text="", model=request.model, stop="calls", calls=(call, call))

    stage = Stage(Model(answer), tool)
    async with stage.playing():
        stage.hear("go")
        await stage.until(lambda: bool(stage.told(TurnEnded)))
    (ended,) = stage.told(TurnEnded)
    assert (ended.outcome, ended.error.code, tool.runs) == ("failed", "bad_answer", 0)


async def test_the_output_of_a_tool_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "OUTPUT_CHARS", 10)
    stage = Stage(Model(says("", "tool"), says("done")), Instrument("tool", lambda: "x" * 1234))
    async with stage.playing():
        await stage.say("go")
    (returned,) = stage.told(ToolReturned)
    assert returned.output == "x" * 10 + "\n[cut: the tool returned 1,234 characters]"


async def test_a_session_whose_disk_does_not_keep_up_takes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chats, "PENDING_BYTES", 1000)
    async with gateway(tmp_path) as g:
        client = await g.connect()
        assert await client.chat("hello") == "hello"
        with syncs_wait() as go_on:
            first = await client.send("x" * 2000)
            second = await client.send("and this?")
            await client.say("ping", id="p")
            await client.until_type("pong")
            (refused,) = [frame for frame in client.frames if frame.get("id") == second]
            assert (refused["type"], refused["code"]) == ("error", "busy")
            go_on.set()
            assert (await client.until_answered(first))["type"] == "accepted"


async def test_nothing_is_accepted_or_shown_before_it_is_durable(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        with syncs_wait() as go_on:
            before = len(client.frames)
            sent = await client.send("and this?")
            await client.round_trips()
            assert {frame["type"] for frame in client.frames[before:]} == {"pong"}
            go_on.set()
            assert (await client.until_answered(sent))["type"] == "accepted"


async def test_a_message_over_openais_api_is_accepted_once_it_is_durable(tmp_path: Path, texts: list[str]) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")

        async def ask() -> str:
            body = {"model": "exuvia", "stream": True, "messages": [{"role": "user", "content": "and this?"}]}
            headers = {"Authorization": f"Bearer {TOKEN}", "X-Exuvia-Session": "main"}
            async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as answer:
                return answer.headers["X-Exuvia-Duplicate"]

        with syncs_wait() as go_on:
            asked = asyncio.create_task(ask())
            await until(lambda: "and this?" in texts)
            await client.round_trips()
            assert not asked.done()
            go_on.set()
            assert await asked == "false"


@pytest.fixture
async def recorder(tmp_path: Path) -> AsyncIterator[Recorder]:
    """Return the recorder of an open session with one durable message."""
    async with journals_in(tmp_path) as journals:
        recorder = Recorder(await journals.create(SESSION), START, Transcript(), lambda: NOON)
        await recorder.append_durable(opened(SESSION))
        await recorder.append_durable(TurnEnded(outcome="replied", millis=1))
        yield recorder
        await recorder.close()


@asynccontextmanager
async def standings_of(home: Path) -> AsyncIterator[tuple[CatalogWriter, SqliteCatalog]]:
    async with SqliteCatalog(home / "catalog.sqlite", JournalFolder(home / "sessions")) as catalog:
        yield CatalogWriter(catalog), catalog


async def test_the_catalog_is_told_of_what_is_durable_alone(tmp_path: Path, recorder: Recorder) -> None:
    async with standings_of(tmp_path) as (standings, catalog):
        recorder.append(SettingChanged(name="title", value="Crabs", by="owner"))
        standings.put(recorder)
        row = catalog.row(SESSION)
        assert row is not None
        assert (row.head, row.title, row.settled) == (2, "", True)


async def test_a_session_whose_journal_is_not_as_it_was_written_is_not_settled(tmp_path: Path, recorder: Recorder) -> None:
    async with standings_of(tmp_path) as (standings, catalog):
        with (tmp_path / "sessions" / f"{SESSION}.jsonl").open("ab") as journal:
            journal.write(b"{")
        standings.put(recorder)
        row = catalog.row(SESSION)
        assert row is not None
        assert not row.settled


@pytest.mark.parametrize("failed", [False, True])
async def test_after_a_failure_a_session_is_not_settled_and_no_checkpoint_is_kept(
    tmp_path: Path, recorder: Recorder, *, failed: bool
) -> None:
    async with standings_of(tmp_path) as (standings, catalog):
        recorder.failure = StorageFailed("the disk is gone") if failed else None
        standings.end(recorder, Receipts())
        row = catalog.row(SESSION)
        assert row is not None
        assert row.settled is not failed
        await recorder.close()
    async with SqliteCatalog(tmp_path / "catalog.sqlite", JournalFolder(tmp_path / "sessions")) as catalog:
        assert ((await catalog.checkpoint(SESSION)) is None) is failed


async def test_a_new_title_is_told_once_it_is_durable(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client, other = await g.connect(), await g.connect()
        await client.chat("hello")
        with syncs_wait() as go_on:
            told = asyncio.create_task(client.until_type("settings", id="r"))
            await client.say("rename", id="r", session="main", title="Crabs")
            await other.round_trips()
            assert not told.done()
            go_on.set()
            assert (await told)["title"] == "Crabs"


async def test_no_frame_is_read_of_a_client_for_which_too_many_answers_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, frames = asyncio.Event(), list[str]()
    take = Connection._receive

    async def note(self: Connection, text: str) -> None:
        frames.append(text)
        await take(self, text)

    async def wait(self: Outbox) -> None:
        await room.wait()

    monkeypatch.setattr(Connection, "_receive", note)
    monkeypatch.setattr(Outbox, "until_room", wait)
    room.set()
    async with gateway(tmp_path) as g:
        client = await g.connect()
        room.clear()
        await client.say("ping", id="1")  # this one is waited for already
        await client.until_type("pong")
        await client.say("ping", id="2")
        async with g.http.get(f"{g.url}/healthz") as answer:  # by now it has been read, if it is
            assert answer.status == 200
        assert len(frames) == 1
        room.set()
        await client.until_type("pong", id="2")


@pytest.fixture
def switchboards(monkeypatch: pytest.MonkeyPatch) -> list[Switchboard]:
    """Collect the switchboards of the gateways that a test starts."""
    made: list[Switchboard] = []
    init = Switchboard.__init__

    def note(self: Switchboard, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        made.append(self)

    monkeypatch.setattr(Switchboard, "__init__", note)
    return made


async def test_a_message_that_never_reached_the_disk_is_taken_when_it_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switchboards: list[Switchboard]
) -> None:
    def fail(*_: object) -> None:
        raise StorageFailed("the disk is full")

    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        (chat,) = switchboards[0]._chats.values()
        before = chat.current
        with monkeypatch.context() as broken:
            broken.setattr(AppendFile, "write", fail)
            await client.send("again", id_="again")
            assert (await client.until_answered("again"))["code"] == "storage_failed"
        await until(lambda: chat.current not in (None, before))
        await client.send("again", id_="again")
        accepted = await client.until_answered("again")
        assert (accepted["type"], accepted.get("duplicate")) == ("accepted", False)


async def test_a_message_that_is_not_in_the_journal_of_a_closed_session_is_not_acknowledged(
    tmp_path: Path, switchboards: list[Switchboard]
) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        await client.socket.close()
        (chat,) = switchboards[0]._chats.values()
        assert chat.current is not None
        session = chat.current.session
        async with deadline():
            while not await let_go(switchboards[0]):
                await asyncio.sleep(0.01)
        head = chat.head(session) or 0
        await chat.until_durable(chats.AcceptedMessage(session=session, seq=head, duplicate=True))
        with pytest.raises(StorageFailed, match="send it again"):
            await chat.until_durable(chats.AcceptedMessage(session=session, seq=head + 1, duplicate=False))


async def test_a_conversation_is_opened_again_once_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switchboards: list[Switchboard]
) -> None:
    close, closing, go_on = Journal.close, asyncio.Event(), asyncio.Event()

    async def wait(self: Journal) -> None:
        closing.set()
        await go_on.wait()
        await close(self)

    async with gateway(tmp_path) as g:
        await left_conversation(g, switchboards[0])
        monkeypatch.setattr(Journal, "close", wait)
        letting_go = asyncio.create_task(let_go(switchboards[0]))
        async with deadline():
            await closing.wait()
        locked = switchboards[0]._lock(("owner", "main")).locked()
        client = await g.connect()
        await client.send("and again", id_="again")
        await (await g.connect()).round_trips()
        go_on.set()
        assert (locked, await letting_go) == (True, True)
        assert (await client.until_answered("again"))["type"] == "accepted"


async def left_conversation(on: Gateway, switchboard: Switchboard) -> None:
    """Have a conversation that is idle, and that nobody reads any more."""
    client = await on.connect()
    await client.chat("hello")
    await client.socket.close()
    await until(lambda: all(chat.idle and not chat.subscribers for chat in switchboard._chats.values()))


async def let_go(switchboard: Switchboard) -> bool:
    """Close the only conversation if it is idle, as happens after a while; return True if it was."""
    ((name, chat),) = switchboard._chats.items()
    await switchboard._unload_if_idle(name, chat)
    return name not in switchboard._chats


async def test_a_change_is_answered_although_its_conversation_is_closed_meanwhile(
    tmp_path: Path, switchboards: list[Switchboard]
) -> None:
    """As at a start that has lost the catalog: every conversation is opened, and the idle ones are closed at once."""
    async with gateway(tmp_path) as g:
        await left_conversation(g, switchboards[0])
        client = await g.connect()
        with syncs_wait() as go_on:
            await client.say("rename", id="r", session="main", title="A title")
            await client.say("configure", id="c", session="main", name="verbose", value="on")
            (chat,) = switchboards[0]._chats.values()
            await until(lambda: chat.current is not None and chat.current.title)
            closing = asyncio.create_task(switchboards[0]._unload_if_idle(chat.name, chat))
            await until(lambda: not switchboards[0]._chats)
            go_on.set()
            answers = [await client.until_type("settings", id=id_) for id_ in ("r", "c")]
        await closing
        assert [(answer["title"], answer["verbose"]) for answer in answers] == [("A title", False), ("A title", True)]


async def test_a_message_to_a_conversation_that_is_kept_closed_waits_and_is_accepted(
    tmp_path: Path, switchboards: list[Switchboard]
) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        await until(lambda: all(chat.idle for chat in switchboards[0]._chats.values()))
        async with switchboards[0].emptied(("owner", "main")):
            await client.send("and again", id_="again")
            await (await g.connect()).round_trips()
        assert (await client.until_answered("again"))["type"] == "accepted"
        await until(lambda: all(chat.idle for chat in switchboards[0]._chats.values()))
        async with switchboards[0].closed("owner", "main"):
            await client.send("and once more", id_="once")
            await (await g.connect()).round_trips()
        assert (await client.until_answered("once"))["type"] == "accepted"


async def test_a_subscription_for_which_no_thread_is_left_ends_and_the_connection_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_thread(*_: object, **__: object) -> list[bytes]:
        raise RuntimeError("can't start new thread")

    async with gateway(tmp_path) as g:
        await (await g.connect()).chat("hello")
    async with gateway(tmp_path) as g:
        client = await g.connect()
        with monkeypatch.context() as patch:
            patch.setattr(chats.Chat, "lines", no_thread)
            await client.say("subscribe", session="main", after=0)
            ended = await client.until_type("error", session="main")
        assert (ended["code"], "thread" in ended["message"]) == ("storage_failed", True)
        await client.say("subscribe", session="main", after=0)
        assert (await client.until_event("model_replied"))["text"] == "hello"


@pytest.mark.parametrize("failure", [OwnedElsewhere("", ""), RuntimeError("a fault")], ids=["moved", "fault"])
async def test_a_deletion_that_fails_is_answered_or_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(Removals, "delete", fail)
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        await client.say("delete", id="d", session="main")
        if isinstance(failure, OwnedElsewhere):
            assert (await client.until_type("error", id="d"))["code"] == "busy"
        else:
            assert await client.closed() == WSCloseCode.INTERNAL_ERROR


async def test_a_conversation_that_is_deleted_while_it_is_looked_up_does_not_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switchboards: list[Switchboard]
) -> None:
    remove, removing, go_on = Deletions.remove_sessions, asyncio.Event(), asyncio.Event()

    async def wait(self: Deletions, begun: Any) -> bool:
        removing.set()
        await go_on.wait()
        return await remove(self, begun)

    monkeypatch.setattr(Deletions, "remove_sessions", wait)
    async with gateway(tmp_path) as g:
        client, other = await g.connect(), await g.connect()
        await client.chat("hello")
        await until(lambda: all(chat.idle for chat in switchboards[0]._chats.values()))
        await client.say("delete", id="d", session="main")
        async with deadline():
            await removing.wait()
        looking = asyncio.create_task(switchboards[0].chat("owner", "main", create=False))
        await other.round_trips()
        go_on.set()
        await client.until_type("deleted", id="d")
        assert (await looking, g.journals(), switchboards[0]._chats) == (None, {}, {})


async def test_a_closed_conversation_leaves_no_lock_behind(tmp_path: Path, switchboards: list[Switchboard]) -> None:
    async with gateway(tmp_path) as g:
        await left_conversation(g, switchboards[0])
        assert await let_go(switchboards[0])
        assert not len(switchboards[0]._locks)


async def test_a_closed_conversation_leaves_memory(tmp_path: Path, switchboards: list[Switchboard]) -> None:
    async with gateway(tmp_path) as g:
        await left_conversation(g, switchboards[0])
        recorders = [weakref.ref(each.recorder) for chat in switchboards[0]._chats.values() for each in chat.conversations]
        assert await let_go(switchboards[0])
        await until(lambda: gc.collect() >= 0 and not any(recorder() for recorder in recorders))


async def test_a_conversation_that_somebody_reads_is_not_closed(tmp_path: Path, switchboards: list[Switchboard]) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        assert not await let_go(switchboards[0])
        await client.socket.close()
        async with deadline():
            while not await let_go(switchboards[0]):
                await asyncio.sleep(0.01)


async def test_a_conversation_whose_turn_runs_is_not_closed(tmp_path: Path, switchboards: list[Switchboard]) -> None:
    settings = {"gateway.stop_within": "0s"}
    async with gateway(tmp_path, script=[{"text": "a story " * 1000, "delay_ms": 100}], settings=settings) as g:
        client = await g.connect()
        await client.send("go")
        await client.until_type("delta")
        await client.socket.close()
        (chat,) = switchboards[0]._chats.values()
        await until(lambda: not chat.subscribers)
        assert not await let_go(switchboards[0])


async def test_a_token_that_is_replaced_during_the_upgrade_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path) as g:
        monkeypatch.setattr(Access, "still_admits", lambda self, admission: False)
        client = Client(await g.http.ws_connect(f"{g.url}/ws", headers={"Authorization": f"Bearer {TOKEN}"}))
        assert await client.closed(at_once=True) == 4401
        assert client.frames == []


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Collect the connections of the gateways that a test starts."""
    made: list[Connection] = []
    init = Connection.__init__

    def note(self: Connection, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        made.append(self)

    monkeypatch.setattr(Connection, "__init__", note)
    return made


async def test_a_token_that_is_replaced_while_a_message_is_taken_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: list[Connection], texts: list[str]
) -> None:
    waiting, go_on = asyncio.Event(), asyncio.Event()
    take = Uploads.store

    async def waits(self: Uploads, *arguments: Any) -> Any:
        waiting.set()
        await go_on.wait()
        return await take(self, *arguments)

    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        monkeypatch.setattr(Uploads, "store", waits)
        await client.send("and this?")
        async with deadline():
            await waiting.wait()
        connections[0].revoke()
        await until(lambda: connections[0]._closed)
        go_on.set()
        assert await client.closed() == 4401
    assert texts == ["hello"]


async def test_a_frame_that_was_read_when_its_token_was_replaced_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: list[Connection]
) -> None:
    receive = web.WebSocketResponse.receive

    async def replaced_meanwhile(self: web.WebSocketResponse, *arguments: Any) -> Any:
        message = await receive(self, *arguments)
        if message.type is WSMsgType.TEXT and "rename" in message.data:
            connections[0].revoke()
            await until(lambda: connections[0]._closed)
        return message

    monkeypatch.setattr(web.WebSocketResponse, "receive", replaced_meanwhile)
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        await client.say("rename", id="r", session="main", title="another")
        assert await client.closed() == 4401
    (events,) = g.journals().values()
    assert "setting_changed" not in {event["kind"] for event in events}


async def test_a_connection_whose_token_was_replaced_follows_nothing_from_that_moment_on(
    tmp_path: Path, connections: list[Connection]
) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        assert connections[0]._outbox.follows("main")
        connections[0].revoke()
        assert not connections[0]._outbox.follows("main")


async def test_a_fork_is_of_a_session_of_ones_own_and_has_a_key_that_is_not_used(
    tmp_path: Path, switchboards: list[Switchboard]
) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        ((session, _),) = g.journals().items()
        made = switchboards[0]._forks
        with pytest.raises(ForkRefused, match="There is no session"):
            await made.name("ana", session, None)
        with pytest.raises(ForkRefused, match="already"):
            await made.name("owner", session, "main")
        assert await made.name("owner", session, None) == ("owner", "main-fork")


async def test_forks_are_made_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switchboards: list[Switchboard]
) -> None:
    """Each one removes unfinished drafts, which would include those of another."""
    running, most, make = 0, 0, fork

    def slowly(*arguments: Any, **named: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.1)
        made = make(*arguments, **named)
        running -= 1
        return made

    monkeypatch.setattr(forks, "fork", slowly)
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        ((session, _),) = g.journals().items()
        await asyncio.gather(*(switchboards[0].fork("owner", session, key, None) for key in ("a", "b", "c")))
    assert most == 1


def test_a_link_is_good_for_some_minutes_only(tmp_path: Path) -> None:
    now = 1000.0
    passes, key = TokenSigner(lambda: now, SignedOut(tmp_path / "signed_out.json", lambda: now)), b"k" * 32
    link = passes.issue("link", "owner", key)
    now += LINK_SECONDS - 1
    assert passes.read("link", link, {"owner": key}.get)
    now += 1
    assert passes.read("link", link, {"owner": key}.get) is None


async def test_a_file_of_somebody_is_downloaded_and_runs_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/html"}
        async with g.http.post(f"{g.url}/attachments?name=a.html", data=b"<script>1</script>", headers=headers) as sent:
            digest = (await sent.json())["sha256"]
        async with g.http.get(f"{g.url}/attachments/{digest}", headers=headers) as given:
            assert given.headers["Content-Security-Policy"] == "sandbox"
            assert given.headers["Content-Disposition"].startswith("attachment;")
            assert given.headers["X-Content-Type-Options"] == "nosniff"


def test_an_origin_at_a_foreign_host_is_refused_even_if_the_host_header_matches() -> None:
    """Signing in and cookies rely on this check; the rule for all requests refuses such a `Host` before."""
    rules = access()
    assert rules.is_own_page("http://127.0.0.1:7117", "127.0.0.1:7117")
    assert not rules.is_own_page("http://elsewhere.example:7117", "elsewhere.example:7117")


async def test_a_key_is_claimed_as_long_as_its_chat_is_in_memory_and_no_longer_when_another_gateway_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switchboards: list[Switchboard]
) -> None:
    claimed: list[Name] = []
    released: list[Name] = []

    class Counted(SoleClaims):
        async def claim(self, name: Name) -> Claim:
            claimed.append(name)
            return Claim(name=name, epoch=len(claimed))

        async def release(self, claim: Claim, *, settled: bool, to: str = "") -> None:
            released.append(claim.name)

        def on_lost(self, lost: Callable[[Claim], None]) -> None:
            self.lost = lost
            boards.append(self)

    boards: list[Counted] = []
    monkeypatch.setattr("gateway.wiring.open_stores.SoleClaims", Counted)
    main, fork = ("owner", "main"), ("owner", "main-fork")
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        ((session, _),) = g.journals().items()
        assert (claimed, released) == ([main], [])
        await switchboards[0].fork("owner", session, None, None)
        assert (claimed, released) == ([main, fork], [fork])
        boards[0].lost(Claim(name=main, epoch=7))  # of an earlier owner of the same key
        assert list(switchboards[0]._chats) == [main]
        boards[0].lost(Claim(name=main, epoch=1))
        assert list(switchboards[0]._chats) == []
        await until(lambda: switchboards[0].load().conversations == 0)
        await (await g.connect()).chat("hello again")
        assert (claimed, released) == ([main, fork, main], [fork])
    assert released == [fork, main]
    assert [event["text"] for event in g.journals()[session] if event["kind"] == "message_received"] == [
        "hello",
        "hello again",
    ]
