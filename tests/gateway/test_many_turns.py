"""Many turns against a server as strict as OpenAI: each accepted message is answered once, in order, and the journal
verifies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from plugins.testing.servers.faulty_server import Json
from plugins.testing.servers.openai_server import KEY, Answer, OpenAIServer, ScriptedResponse
from tests.docs.verifier import verify
from tests.gateway.gateways import Client, Gateway, gateway
from tests.stored import stored


def openai(server: OpenAIServer, **more: Any) -> dict[str, Any]:
    return {
        "agent.model": "openai:fake",
        "providers.openai.base_url": server.url,
        "providers.openai.api_key": KEY,
        **more,
    }


def check_journals(g: Gateway) -> None:
    for path in (g.home / "sessions").glob("*.jsonl"):
        verified = stored(path).verify()
        assert verified.torn == 0
        assert verify(path.read_bytes()) == (verified.events, 0, None)


async def answers(client: Client, count: int) -> list[str]:
    """Return the texts of the next answers, in order."""
    found: list[str] = []
    while len(found) < count:
        event = (await client.until_type("event"))["event"]
        if event["kind"] == "model_replied":
            found.append(event["text"])
        assert event.get("outcome") in (None, "replied", "returned")
    return found


async def test_two_hundred_turns_in_one_session(tmp_path: Path) -> None:
    async with OpenAIServer().serving() as server, gateway(tmp_path, settings=openai(server)) as g:
        client = await g.connect()
        for number in range(200):
            assert await client.chat(f"message number {number}") == f"message number {number}"
        assert [len(request["messages"]) for request in server.requests] == [2 + 2 * n for n in range(200)]
    check_journals(g)


async def test_two_hundred_turns_in_fifty_sessions_at_once(tmp_path: Path) -> None:
    async with OpenAIServer().serving() as server, gateway(tmp_path, settings=openai(server)) as g:

        async def talk(key: str) -> None:
            client = await g.connect()
            for number in range(4):
                await client.send(f"{key} {number}", session=key)
            assert await answers(client, 4) == [f"{key} {number}" for number in range(4)]

        await asyncio.gather(*(talk(f"s{number}") for number in range(50)))
        assert len(server.requests) == 200
    check_journals(g)
    assert len(g.journals()) == 50


def reads_first(body: Json) -> Answer:
    """Return a model that reads two files before each answer."""
    last = body["messages"][-1]
    if last["role"] == "user":
        arguments = json.dumps({"path": "note.md"})
        return ScriptedResponse("I look", ("read", arguments), ("read", arguments), delay=0.002)
    return ScriptedResponse("done", delay=0.002)


@pytest.mark.parametrize("pause", [0, 0.001, 0.004])
async def test_messages_that_arrive_during_calls_never_part_them_from_their_results(tmp_path: Path, pause: float) -> None:
    server = OpenAIServer(respond=reads_first)
    async with server.serving(), gateway(tmp_path, settings=openai(server)) as g:
        (tmp_path / "workspace").mkdir(exist_ok=True)
        (tmp_path / "workspace" / "note.md").write_text("A note.")
        client = await g.connect()
        for number in range(12):
            await client.send(f"message {number}")
            await asyncio.sleep(pause)
        assert await answers(client, 24) == ["I look", "done"] * 12
        results = [event for _, event in client.events() if event["kind"] == "tool_returned"]
        assert [event["outcome"] for event in results] == ["returned"] * 24
        assert "A note." in results[0]["output"]
    check_journals(g)


async def test_what_the_provider_refuses_ends_the_turn_and_the_next_one_works(tmp_path: Path) -> None:
    async with OpenAIServer().serving() as server:
        wrong = openai(server) | {"providers.openai.api_key": "sk-wrong-0123456789"}
        async with gateway(tmp_path, settings=wrong) as g:
            client = await g.connect()
            await client.send("hi")
            ended = await client.until_event("turn_ended")
            assert (ended["outcome"], ended["error"]["code"]) == ("failed", "credentials_refused")
            assert "sk-wrong" not in json.dumps(client.frames).replace("sk-wrong.", "")
        async with gateway(tmp_path, settings=openai(server)) as g:
            client = await g.connect()
            assert await client.chat("again") == "again"
