"""A client that lists its conversations is told what happens in them, in those that it does not follow too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.routing.conversation_list import ListedConversation
from gateway.conversations.routing.live_sessions import LiveSessions
from tests.gateway.gateways import Client, Frame, gateway
from tests.gateway.test_people import ANA
from tests.waiting import deadline

KINDS = ["message_received", "turn_started", "turn_ended"]


async def lists(client: Client) -> Frame:
    await client.say("sessions", id="s", follow=True)
    return await client.until_type("sessions", id="s")


async def updates(client: Client, number: int) -> list[dict[str, Any]]:
    return [await client.until_type("session_update") for _ in range(number)]


async def test_a_client_is_told_of_each_durable_event_that_a_list_shows(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client, other = await running.connect(), await running.connect()
        assert (await lists(client))["sessions"] == []
        await other.chat("a secret", session="garden")
        told = await updates(client, len(KINDS))
        (session,) = running.journals()
        assert [(each["session"], each["session_id"], each["event"]["kind"]) for each in told] == [
            ("garden", session, kind) for kind in KINDS
        ]
        (row,) = (await lists(client))["sessions"]
        assert told[-1]["event"] == {"seq": row["replied"], "at": row["at"], "kind": "turn_ended", "outcome": "replied"}
        assert "secret" not in str(told)
        await lists(client)  # again: still once
        await other.command("/title Roses", session="garden")
        kinds = [(each["event"]["kind"], each["event"].get("title")) for each in await updates(client, 3)]
        assert kinds == [("message_received", None), ("session_titled", "Roses"), ("command_answered", None)]


async def test_only_the_person_is_told_and_only_who_asked(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"people.ana.token": ANA}) as running:
        owner, silent, ana = await running.connect(), await running.connect(), await running.connect(ANA)
        for client in (owner, ana):
            await lists(client)
        await silent.chat("hello")
        await updates(owner, len(KINDS))
        for client in (ana, silent):
            await client.round_trips()
            assert [frame for frame in client.frames if frame["type"] == "session_update"] == []


async def test_what_happens_while_the_list_is_made_is_told_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, sent, conversations = asyncio.Event(), asyncio.Event(), LiveSessions.conversations

    async def slow(self: LiveSessions, person: str) -> list[ListedConversation]:
        listed = await conversations(self, person)
        made.set()
        await sent.wait()
        return listed

    async with gateway(tmp_path) as running:
        client, other = await running.connect(), await running.connect()
        monkeypatch.setattr(LiveSessions, "conversations", slow)
        await client.say("sessions", id="s", follow=True)
        async with deadline():
            await made.wait()
        await other.chat("hello", session="late")
        sent.set()
        assert (await client.until_type("sessions", id="s"))["sessions"] == []
        assert not [frame for frame in client.frames if frame["type"] == "session_update"]
        assert [each["session"] for each in await updates(client, len(KINDS))] == ["late"] * len(KINDS)
