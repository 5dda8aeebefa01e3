"""Everything at once: queue modes, `/new`, cancelling, messages sent again, a disk that refuses now and then, restarts.

What was accepted stands where it was said to stand, once, and is taken or answered once, in order.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.conversations.routing import switchboard
from gateway.conversations.turn.inbox import MODES
from sessions.files.append_file import AppendFile
from tests.gateway.gateways import Client, Frame, gateway
from tests.waiting import deadline

ROUNDS = 50
LIVES = 3
CLIENTS = 3
SCRIPT: list[dict[str, Any]] = [
    {"text": "", "calls": [{"tool": "read", "arguments": {"path": "."}}]},
    {"text": "done with it"},
    {"text": "and this too"},
]
SETTINGS = {"sessions.queue_limit": 50, "gateway.stop_within": "0.05s", "agent.tool_rounds": 50}

Accepted = dict[str, tuple[str, int]]
"""Session and seq of each message, by its id, as they were acknowledged."""


def refuse_now_and_then(monkeypatch: pytest.MonkeyPatch, dice: random.Random, failing: Callable[[], bool]) -> None:
    """Let one write in thirty fail as on a full disk."""
    write = AppendFile._write

    def sometimes(self: AppendFile, chunk: bytes) -> None:
        if failing() and dice.random() < 1 / 30:
            raise OSError(28, "No space left on device")
        write(self, chunk)

    monkeypatch.setattr(AppendFile, "_write", sometimes)
    monkeypatch.setattr(switchboard, "REOPEN_SECONDS", (0.01, 0.02, 0.05))


async def talk(client: Client, dice: random.Random, name: str, accepted: Accepted) -> None:
    """A person in a hurry, who waits for the answer to each message in the end; ends early where the gateway goes away."""
    waiting: set[str] = set()
    reading = asyncio.create_task(read(client, accepted, waiting))
    sent: list[tuple[str, str, str]] = []
    try:
        for number in range(ROUNDS):
            key, (id_, text) = f"k{dice.randrange(2)}", (f"{name}-{number}", f"{name} {number}")
            match dice.choices(("say", "new", "queue", "cancel", "again"), (70, 5, 7, 8, 10))[0]:
                case "new":
                    text = dice.choice(["/new", "/reset"])
                case "queue":
                    text = f"/queue {dice.choice(MODES)}"
                case "again" if sent:
                    id_, key, text = dice.choice(sent)
                case "cancel":
                    await client.say("cancel", session=key)
                    continue
            sent.append((id_, key, text))
            waiting.add(id_)
            await client.say("send", id=id_, session=key, text=text)
            await asyncio.sleep(dice.choice([0, 0, 0, 0.002, 0.02]))
        async with deadline():
            while waiting and not reading.done():
                await asyncio.sleep(0.01)
    except (ConnectionError, aiohttp.ClientError):
        pass
    finally:
        reading.cancel()
        await asyncio.wait([reading])
    if not reading.cancelled() and (error := reading.exception()):
        raise error


async def read(client: Client, accepted: Accepted, waiting: set[str]) -> None:
    """Note what is acknowledged or refused; what is acknowledged again stands where it stood."""
    while True:
        frame = await client.next()
        if frame["type"] in ("accepted", "error"):
            waiting.discard(frame.get("id", ""))
        if frame["type"] == "accepted":
            place = (frame["session_id"], frame["seq"])
            assert accepted.setdefault(frame["id"], place) == place


@pytest.mark.parametrize("seed", [1, 2])
async def test_under_all_faults_together_each_message_is_kept_and_answered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice, trouble, accepted = random.Random(seed), True, Accepted()
    refuse_now_and_then(monkeypatch, dice, lambda: trouble)
    for life in range(LIVES):
        async with gateway(tmp_path, script=SCRIPT * 400, settings=SETTINGS) as g:
            names = [f"{life}{number}" for number in range(CLIENTS)]
            people = [talk(await g.connect(), random.Random(f"{seed}{name}"), name, accepted) for name in names]
            await asyncio.gather(*people)
    trouble = False
    async with gateway(tmp_path, script=[{"text": "fine"}], settings=SETTINGS) as g, deadline():
        while unfinished(g.journals()):
            await asyncio.sleep(0.1)
        check(g.journals(), accepted)
        assert len(g.journals()) == len(list((tmp_path / "sessions").iterdir()))  # no empty one stays
    assert len(accepted) > ROUNDS


def taken(events: list[Frame]) -> list[int]:
    return [seq for event in events if event["kind"] in ("turn_started", "turn_joined") for seq in event["takes"]]


def answered(events: list[Frame]) -> list[int]:
    return [event["answers"] for event in events if event["kind"] == "command_answered"]


def unfinished(journals: dict[str, list[Frame]]) -> bool:
    for events in journals.values():
        kinds = Counter(event["kind"] for event in events)
        done = {*taken(events), *answered(events)}
        received = {event["seq"] for event in events if event["kind"] == "message_received"}
        if not received <= done or kinds["turn_started"] != kinds["turn_ended"]:
            return True
    return False


def check(journals: dict[str, list[Frame]], accepted: Accepted) -> None:
    places: dict[str, tuple[str, int]] = {}
    for session, events in journals.items():
        assert taken(events) == sorted(taken(events))
        assert max(Counter(taken(events) + answered(events)).values(), default=1) == 1
        for event in events:
            if event["kind"] == "message_received":
                assert event["id"] not in places
                places[event["id"]] = (session, event["seq"])
    assert {id_: places.get(id_) for id_ in accepted} == accepted
    successors = Counter(events[0]["succeeds"]["session"] for events in journals.values() if events[0].get("succeeds"))
    assert max(successors.values()) == 1
