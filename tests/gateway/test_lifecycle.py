"""Notifications to plugins about the gateway's start and stop, and about turns."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from plugins.api.hookspecs import EndedTurn
from plugins.host.hooks import Hooks
from sessions.events.events import PluginFailed
from tests.gateway.gateways import gateway
from tests.shelf import Shelf
from tests.waiting import deadline, until

DIARY = """
import msgspec
from exuvia import hookimpl

class Settings(msgspec.Struct, frozen=True):
    word: str = "started"

class Diary:
    @hookimpl
    async def gateway_started(self, context):
        self.folder = context.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write(context.settings.word)

    @hookimpl
    async def turn_ended(self, turn):
        self.write(f"{turn.person} {turn.key} {turn.turn} {turn.outcome} {turn.code}".strip())

    @hookimpl
    async def gateway_stopping(self):
        self.write("stopping")

    def write(self, line):
        with (self.folder / "diary.txt").open("a") as file:
            file.write(line + "\\n")

plugin = Diary()
plugin.Settings = Settings
"""

GRUMPY = """
from exuvia import hookimpl

@hookimpl
async def turn_ended(turn):
    raise KeyboardInterrupt("no more turns")
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return Shelf(tmp_path / "shelf", monkeypatch)


async def test_a_plugin_is_notified_of_the_start_each_turn_and_the_stop(tmp_path: Path, shelf: Shelf) -> None:
    shelf.install("exuvia_diary:plugin", "diary", DIARY)
    settings = {"plugins.allow": ["diary"], "plugins.diary.word": "good morning"}

    async with gateway(tmp_path / "home", settings=settings, script=[{"text": "hi"}, {"error": "bad_request"}]) as g:
        client = await g.connect()
        await client.chat("hello")
        await client.send("again")
        await client.until_event("turn_ended")
        diary = tmp_path / "home" / "plugins" / "diary" / "diary.txt"
        async with deadline():  # the notices come behind the turns
            while "failed" not in diary.read_text():
                await asyncio.sleep(0.01)

    assert diary.read_text().splitlines() == [
        "good morning",
        "owner main 1 replied",
        "owner main 2 failed bad_request",
        "stopping",
    ]


async def test_a_plugin_is_notified_of_the_turns_after_one_whose_notification_failed_unexpectedly(
    tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.install("exuvia_diary:plugin", "diary", DIARY)
    notify, turns = Hooks.turn_ended, list[int]()

    async def fail_once(self: Hooks, turn: EndedTurn) -> tuple[PluginFailed, ...]:
        turns.append(turn.turn)
        if len(turns) == 1:
            raise RuntimeError("can't start new thread")
        return await notify(self, turn)

    monkeypatch.setattr(Hooks, "turn_ended", fail_once)
    diary = tmp_path / "home" / "plugins" / "diary" / "diary.txt"
    with capture_logs() as logs:
        async with gateway(tmp_path / "home", settings={"plugins.allow": ["diary"]}) as g:
            client = await g.connect()
            for _ in range(2):
                await client.chat("hello")
            await until(lambda: "owner main 2 replied" in diary.read_text())
    assert diary.read_text().splitlines() == ["started", "owner main 2 replied", "stopping"]
    [failed] = [each for each in logs if each["event"] == "turn_not_told"]
    assert (failed["turn"], failed["reason"]) == (1, "can't start new thread")


async def test_a_plugin_whose_notification_fails_is_logged_and_switched_off(tmp_path: Path, shelf: Shelf) -> None:
    shelf.install("exuvia_grumpy", "grumpy", GRUMPY)

    async with gateway(tmp_path / "home", settings={"plugins.allow": ["grumpy"]}) as g:
        client = await g.connect()
        failures = []
        for _ in range(3):
            assert await client.chat("hello") == "hello"
            failures.append(await client.until_event("plugin_failed"))
        status = await client.command("/status")

    assert [(f["hook"], f["sentence"], f.get("off", False)) for f in failures] == [
        ("turn_ended", "KeyboardInterrupt: no more turns", off) for off in (False, False, True)
    ]
    assert "'grumpy' (turn_ended) is not used: it is disabled until a restart" in status
