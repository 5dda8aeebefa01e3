"""However many sessions begin under a key at once, the key has one current session, also after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.routing.switchboard import Switchboard
from gateway.protocol.slash_commands import parse_command
from sessions.events.errors import StorageFailed
from sessions.files.append_file import AppendFile
from tests.gateway.elsewhere import LINES, Elsewhere
from tests.gateway.gateways import TOKEN, Frame, Gateway, gateway
from tests.gateway.test_channels import serving
from tests.gateway.test_recovering import damage
from tests.shelf import Shelf
from tests.stories import received
from tests.waiting import deadline

ROUNDS = 6
BEGINNERS = ("message", "new", "completion", "channel", "fork", "unnamed_fork", "rename")


class Beginners:
    """Ways to begin a session under a key. Each returns the ids of the acknowledged messages."""

    def __init__(self, running: Gateway, service: Elsewhere, *, first: int = 1) -> None:
        self._running = running
        self._service = service
        self._taken: dict[str, asyncio.Event] = {}
        self._ids = itertools.count(first)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Collect the channel's acknowledgements while the block runs."""
        task = asyncio.create_task(self._listen())
        try:
            yield
        finally:
            task.cancel()

    async def _listen(self) -> None:
        while True:
            heard = await self._service.heard.get()
            if "ok" in heard:
                self._taken[heard["ok"]].set()

    async def ask(self, type_: str, **fields: str) -> Frame:
        """Send a frame and return its answer, on a connection of its own, since the frames of one are handled in order."""
        client = await self._running.connect()
        id_ = f"{type_}-{next(self._ids)}"
        await client.say(type_, id=id_, **fields)
        answer = await client.until(lambda frame: frame.get("id") == id_)
        await client.socket.close()
        return answer

    async def message(self, key: str) -> list[str]:
        answer = await self.ask("send", session=key, text="hello")
        assert answer["type"] == "accepted", answer
        return [answer["id"]]

    async def new(self, key: str) -> list[str]:
        answer = await self.ask("send", session=key, text="/new")
        assert answer["type"] == "accepted", answer
        return [answer["id"]]

    async def completion(self, key: str) -> list[str]:
        id_ = f"completion-{next(self._ids)}"
        headers = {"Authorization": f"Bearer {TOKEN}", "X-Exuvia-Session": key, "Idempotency-Key": id_}
        body = {"model": "exuvia", "messages": [{"role": "user", "content": "hello"}]}
        async with self._running.http.post(
            f"{self._running.url}/v1/chat/completions", json=body, headers=headers
        ) as response:
            assert response.status == 200, await response.text()
        return [id_]

    async def channel(self, key: str) -> list[str]:
        id_ = f"{next(self._ids)}"
        taken = self._taken[id_] = asyncio.Event()
        await self._service.say("hello", id_=id_, room=key.removeprefix("lines:"))
        await taken.wait()
        return [f"lines:{id_}"]

    async def fork(self, key: str) -> list[str]:
        answer = await self.ask("fork", session="parent", key=key)
        assert answer["type"] == "forked" or "choose another key" in answer["message"], answer
        return []

    async def unnamed_fork(self, key: str) -> list[str]:
        answer = await self.ask("fork", session=key.removesuffix("-fork"))
        assert answer["type"] == "forked", answer
        return []

    async def rename(self, key: str) -> list[str]:
        """Rename the session: that begins none, and must not hide one that another begins."""
        await self.ask("rename", session=key, title="A name")
        return []


def lineages(running: Gateway) -> dict[str, list[list[str]]]:
    """Return by key, for each session without a successor, the ids of its messages and of those before it."""
    journals, began = running.journals(), dict[str, Frame]()
    for session, events in journals.items():
        began[session] = next(e for e in reversed(events) if e["kind"] in ("session_opened", "session_forked"))
    before = {session: (event.get("succeeds") or {}).get("session", "") for session, event in began.items()}
    found: dict[str, list[list[str]]] = {}
    for end in set(journals) - set(before.values()):
        line, session = list[str](), end
        while session:
            line += [event["id"] for event in journals[session] if event["kind"] == "message_received"]
            session = before[session]
        found.setdefault(began[end]["key"], []).append(line)
    return found


async def test_of_two_simultaneous_new_sessions_of_a_key_one_wins_and_has_every_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_lines", "lines", LINES)
    service = Elsewhere()
    await service.open()
    acknowledged: dict[str, set[str]] = {}
    pairs = list(itertools.combinations_with_replacement(BEGINNERS, 2))
    async with serving(tmp_path / "home", service) as running:
        beginners = Beginners(running, service)
        async with beginners.listening():
            await beginners.message("parent")
            for (one, other), number in itertools.product(pairs, range(ROUNDS)):
                key = f"lines:{one}-{other}-{number}-fork"
                if "unnamed_fork" in (one, other):
                    await beginners.message(key.removesuffix("-fork"))
                async with deadline():
                    ids = await asyncio.gather(getattr(beginners, one)(key), getattr(beginners, other)(key))
                acknowledged[key] = set(itertools.chain(*ids))
    found = lineages(running)
    begun = [key for key in acknowledged if key in found]
    assert {key: found[key] for key in begun if len(found[key]) != 1} == {}
    async with serving(tmp_path / "home", service) as running:
        beginners = Beginners(running, service, first=10_000)
        for key in begun:
            acknowledged[key].update(await beginners.message(key))
    found = lineages(running)
    assert {key: found[key] for key in begun if len(found[key]) != 1} == {}
    lost = {key: acknowledged[key].difference(found[key][0]) for key in begun}
    assert {key: ids for key, ids in lost.items() if ids} == {}
    service.close()


async def test_a_successor_of_a_damaged_session_is_used_even_if_its_client_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path) as running:
        await (await running.connect()).chat("hi")
    damage(tmp_path)
    boards: list[Switchboard] = []
    enter, sync = Switchboard.__aenter__, AppendFile.sync
    writing, go_on = threading.Event(), threading.Event()

    async def entered(self: Switchboard) -> Switchboard:
        boards.append(self)
        return await enter(self)

    def slow_sync(self: AppendFile) -> None:
        writing.set()
        go_on.wait(10)
        sync(self)

    monkeypatch.setattr(Switchboard, "__aenter__", entered)
    async with gateway(tmp_path) as running:
        (board,) = boards
        chat = await board.chat("owner", "main", create=True)
        assert chat is not None
        monkeypatch.setattr(AppendFile, "sync", slow_sync)
        leaving = asyncio.create_task(chat.receive(received("/new", "n"), parse_command("/new")))
        await asyncio.to_thread(writing.wait, 10)
        leaving.cancel()
        go_on.set()
        await asyncio.wait([leaving])
        client = await running.connect()
        answer = await client.until_answered(await client.send("/new"))
        assert answer["type"] == "accepted"
        assert await client.chat("hello") == "hello"
        journals = running.journals()
    succeeded = [events[0]["succeeds"]["session"] for events in journals.values() if events[0].get("succeeds")]
    assert len(journals) == 3
    assert len(set(succeeded)) == 2


async def test_a_session_whose_file_cannot_be_read_is_known_nevertheless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def failing(self: Path, **given: Any) -> Any:
        if self.suffix == ".jsonl":
            raise OSError(5, "Input/output error")
        return stat(self, **given)

    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("hello", session="parent")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "stat", failing)
            assert (await client.until_answered(await client.send("hello", session="work")))["type"] == "accepted"
        await client.say("fork", id="f", session="parent", key="work")
        answer = await client.until(lambda frame: frame.get("id") == "f")
    assert (answer["type"], answer.get("code")) == ("error", "bad_request")


async def test_nothing_is_forked_once_the_storage_has_failed(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("hello")
        running.daemon.readiness.stop(StorageFailed("The storage failed."))
        await client.say("fork", id="f", session="main")
        answer = await client.until(lambda frame: frame.get("id") == "f")
        assert (answer["type"], answer["code"]) == ("error", "storage_failed")
        assert len(running.journals()) == 1
