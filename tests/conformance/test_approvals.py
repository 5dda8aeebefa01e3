"""The same story at every front end: a tool call is asked about, shown exactly, and runs only as it was approved."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ports import free_port
from gateway.conversations.channels import channel_runner
from tests.conformance.front_ends import NAMES, Answer, FrontEnd, front_end
from tests.gateway.elsewhere import LINES, Elsewhere
from tests.gateway.gateways import Gateway, gateway
from tests.gateway.launching import LAUNCHING, launches, launching
from tests.shelf import Shelf

SHOWN = ("launch --to moon", "+go", "Nobody named this target.")


class Home:
    """A home whose gateway can be restarted on the same port."""

    def __init__(self, folder: Path, elsewhere: Elsewhere) -> None:
        self.folder, self.elsewhere = folder, elsewhere
        self.path = folder / "home"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self, script: list[dict[str, object]], **settings: Any) -> AsyncIterator[Gateway]:
        file = (
            '[plugins]\nallow = ["lines", "launching"]\nsenders = { "lines:ana" = "owner" }\n'
            f"[plugins.lines]\nport = {self.elsewhere.port}\n[approvals]\n"
        )
        wanted = {"gateway.port": self.port, **settings}
        async with gateway(self.path, file=file, script=script, settings=wanted) as g:
            yield g

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        lines = [
            line for path in sorted((self.path / "sessions").glob("*.jsonl")) for line in path.read_bytes().splitlines()
        ]
        return [event for line in lines if (event := json.loads(line))["kind"] == kind]


@pytest.fixture
async def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Home]:
    shelf = Shelf(tmp_path / "shelf", monkeypatch)
    shelf.install("exuvia_lines", "lines", LINES)
    shelf.install("exuvia_launching", "launching", LAUNCHING)
    monkeypatch.setattr(channel_runner, "PAUSES", (0.05,))
    service = Elsewhere()
    await service.open()
    yield Home(tmp_path, service)
    service.close()


async def ask(person: FrontEnd) -> None:
    await person.say("Launch it.")
    await person.sees(*SHOWN)


@pytest.mark.parametrize("name", NAMES)
async def test_an_approved_call_runs_once(home: Home, name: str) -> None:
    async with home.running(launching("moon")) as _, front_end(name, home) as person:
        await ask(person)
        assert await person.offers() == {"once", "session", "always", "deny"}
        assert launches(home.path) == []
        await person.answers("once")
        await person.hears("It is done.")
    (given,) = home.events("approval_given")
    assert {field: given[field] for field in ("decision", "scope", "by", "channel")} == {
        "decision": "approve",
        "scope": "once",
        "by": "owner",
        "channel": person.channel,
    }
    assert launches(home.path) == ["moon"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_denied_call_does_not_run_and_the_model_is_told(home: Home, name: str) -> None:
    async with home.running(launching("moon")) as _, front_end(name, home) as person:
        await ask(person)
        await person.answers("deny")
        await person.hears("It is done.")
    (returned,) = home.events("tool_returned")
    assert (returned["outcome"], launches(home.path)) == ("refused", [])
    assert "denied" in returned["output"]


@pytest.mark.parametrize("name", NAMES)
async def test_an_approval_for_the_session_covers_the_same_command_only(home: Home, name: str) -> None:
    async with home.running(launching("moon", "moon", "mars")) as _, front_end(name, home) as person:
        await ask(person)
        await person.answers("session")
        await person.sees("launch --to mars")
        assert launches(home.path) == ["moon", "moon"]
        await person.answers("deny")
        await person.hears("It is done.")
    assert len(home.events("approval_asked")) == 2


@pytest.mark.parametrize("name", NAMES)
async def test_an_approval_for_ever_outlives_the_gateway(home: Home, name: str) -> None:
    async with home.running(launching("moon")) as _, front_end(name, home) as person:
        await ask(person)
        await person.answers("always")
        await person.hears("It is done.")
    async with home.running(launching("moon", last="Again.")) as g:
        client = await g.connect()
        assert await client.chat("Again.", session="another") == ""
        assert "exactly the command `launch --to moon`" in await client.command("/approvals")
    assert launches(home.path) == ["moon", "moon"]
    assert len(home.events("approval_asked")) == 1


@pytest.mark.parametrize("name", NAMES)
async def test_the_question_is_answered_after_a_restart(home: Home, name: str) -> None:
    async with AsyncExitStack() as stack:
        async with AsyncExitStack() as first:
            await first.enter_async_context(home.running(launching("moon")))
            person = await stack.enter_async_context(front_end(name, home))
            await ask(person)
        await stack.enter_async_context(home.running(launching()))
        await person.restarted()
        await person.sees(*SHOWN)
        await person.answers("once")
        await person.hears("It is done.")
    assert launches(home.path) == ["moon"]
    assert len(home.events("approval_asked")) == 1


@pytest.mark.parametrize("name", NAMES)
async def test_a_call_that_must_not_be_remembered_is_approved_once_only(home: Home, name: str) -> None:
    async with home.running(launching("sun")) as _, front_end(name, home) as person:
        await person.say("Launch it.")
        await person.sees("launch --to sun")
        offered: set[Answer] = {"once", "deny"}
        assert await person.offers() == offered
        await person.answers("once")
        await person.hears("It is done.")
    assert launches(home.path) == ["sun"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_call_whose_basis_changed_after_it_was_asked_about_is_refused(home: Home, name: str) -> None:
    async with home.running(launching("moon")) as _, front_end(name, home) as person:
        await ask(person)
        (home.path / "workspace" / "plan").write_text("mars")
        await person.answers("session")
        await person.hears("It is done.")
    (returned,) = home.events("tool_returned")
    assert (returned["outcome"], launches(home.path)) == ("refused", [])
    assert "changed" in returned["output"]
