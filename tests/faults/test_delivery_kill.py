"""Kill -9 while a channel delivers: what is settled is not tried again, and what was under way comes again with its id."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.faults.gateway_process import ROOT, gateway_process
from tests.waiting import until

PIGEON = '''
import asyncio, json
from exuvia import InboundMessage, Undeliverable, hookimpl


class Pigeon:
    """Takes the lines of `in` as messages, and writes each attempt to deliver an answer into `attempts`."""

    name = "pigeon"
    attempts_noted = True

    def fits(self, text):
        return len(text) <= 30

    def __init__(self, context):
        self.folder = context.folder

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def run(self, desk):
        for number, text in enumerate((self.folder / "in").read_text().splitlines()):
            await desk.receive(InboundMessage(id=str(number), sender="ana", chat="loft", text=text))
        await asyncio.Event().wait()

    async def deliver(self, delivery):
        with (self.folder / "attempts").open("a") as file:
            file.write(json.dumps({"id": delivery.id, "text": delivery.text, "again": delivery.again}) + "\\n")
        if delivery.text.startswith("never"):
            raise Undeliverable("The loft is shut.")
        if delivery.text.startswith("slow") and not (self.folder / "released").exists():
            await asyncio.Event().wait()
        return "taken"


@hookimpl
def register_channels():
    return [Pigeon]
'''


def install(shelf: Path, home: Path) -> dict[str, str]:
    """Lay the plugin where an import finds it; returns the environment of the gateway."""
    info = shelf / "pigeon-1.0.dist-info"
    info.mkdir(parents=True)
    (shelf / "pigeon.py").write_text(PIGEON)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[exuvia]\npigeon = pigeon\n")
    home.mkdir()
    (home / "config.toml").write_text('[plugins]\nallow = ["pigeon"]\nsenders = { "pigeon:*" = "owner" }\n')
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(shelf)])}


def attempts(home: Path) -> list[dict[str, Any]]:
    (folder,) = (home / "plugins").iterdir()
    path = folder / "attempts"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def noted(home: Path) -> list[dict[str, Any]]:
    lines = [line for path in (home / "sessions").glob("*.jsonl") for line in path.read_bytes().splitlines(keepends=True)]
    return [event for line in lines if line.endswith(b"\n") and (event := json.loads(line))["kind"] == "reply_delivered"]


@pytest.mark.parametrize("settled", [["never mind"], ["tea is ready"], ["never mind", "tea is ready", "never again"]])
async def test_after_a_kill_during_a_delivery_only_that_one_is_repeated(tmp_path: Path, settled: list[str]) -> None:
    home = tmp_path / "home"
    environment = install(tmp_path / "shelf", home)
    folder = home / "plugins" / "pigeon"
    folder.mkdir(parents=True)
    (folder / "in").write_text("\n".join([*settled, "slow coffee", "and cake"]))
    async with gateway_process(home, settings=environment) as gateway, aiohttp.ClientSession() as http:
        await gateway.ready(http)
        await until(lambda: [each for each in attempts(home) if each["text"] == "slow coffee"])
        await gateway.kill()
    (folder / "released").touch()
    async with gateway_process(home, settings=environment) as gateway, aiohttp.ClientSession() as http:
        await gateway.ready(http)
        await until(lambda: len(noted(home)) == len(settled) + 2)
        assert await gateway.stop() == 0
    assert [each["text"] for each in attempts(home)] == [*settled, "slow coffee", "slow coffee", "and cake"]
    first, second = (each["id"] for each in attempts(home) if each["text"] == "slow coffee")
    assert first == second
    assert [event.get("failed", "") for event in noted(home)] == [
        *("The loft is shut." if text.startswith("never") else "" for text in settled),
        "",
        "",
    ]


@pytest.mark.parametrize("stuck", [1, 2, 3])
async def test_after_a_kill_a_long_answer_continues_with_the_part_that_was_under_way(tmp_path: Path, stuck: int) -> None:
    home = tmp_path / "home"
    environment = install(tmp_path / "shelf", home)
    folder = home / "plugins" / "pigeon"
    folder.mkdir(parents=True)
    parts = [f"{'slow' if number == stuck else 'quick'} part number {number}." for number in range(1, 4)]
    (folder / "in").write_text("  ".join(parts))
    async with gateway_process(home, settings=environment) as gateway, aiohttp.ClientSession() as http:
        await gateway.ready(http)
        await until(lambda: len(attempts(home)) == stuck)
        await gateway.kill()
    (folder / "released").touch()
    async with gateway_process(home, settings=environment) as gateway, aiohttp.ClientSession() as http:
        await gateway.ready(http)
        await until(lambda: len(noted(home)) == 3)
        assert await gateway.stop() == 0
    tried = attempts(home)
    assert [each["text"] for each in tried] == [*parts[:stuck], *parts[stuck - 1 :]]
    assert [each["again"] for each in tried] == [number == stuck for number in range(4)]
    assert tried[stuck]["id"] == tried[stuck - 1]["id"]
    assert len({each["id"] for each in tried}) == 3
    assert [event.get("more", False) for event in noted(home)] == [True, True, False]
