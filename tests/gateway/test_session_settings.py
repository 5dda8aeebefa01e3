"""What a person may set for one session: by frames and by commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse
from tests.gateway.gateways import Gateway, gateway

MODEL = "gpt-oss-20b"


def settings(server: OpenAIServer) -> dict[str, Any]:
    """A configuration whose model has levels of effort."""
    return {
        "agent.model": f"openai:{MODEL}",
        "providers.openai.base_url": server.url,
        "providers.openai.api_key": KEY,
    }


async def configured(running: Gateway, *changes: tuple[str, Any], session: str = "main") -> list[dict[str, Any]]:
    """The answers to `configure` frames."""
    client = await running.connect()
    answers = []
    for name, value in changes:
        await client.say("configure", id="c", session=session, name=name, value=value)
        answers.append(await client.until(lambda frame: frame.get("id") == "c"))
    return answers


async def test_what_is_set_is_sent_from_the_next_turn_on_until_it_is_taken_back(tmp_path: Path) -> None:
    async with OpenAIServer(*[ScriptedResponse("ok")] * 3).serving() as server:
        async with gateway(tmp_path / "home", settings=settings(server)) as running:
            client = await running.connect()
            told = await configured(running, ("effort", "high"), ("temperature", 0.25))
            assert [(each["type"], each.get("effort"), each.get("temperature")) for each in told] == [
                ("settings", "high", None),
                ("settings", "high", 0.25),
            ]
            await client.chat("one")
        async with gateway(tmp_path / "home", settings=settings(server)) as running:
            client = await running.connect()
            await client.chat("two")
            told = await configured(running, ("effort", None), ("temperature", None))
            assert {"effort", "temperature"}.isdisjoint(told[-1])
            await client.chat("three")
    sent = [(body.get("reasoning_effort"), body.get("temperature")) for body in server.requests]
    assert sent == [("high", 0.25), ("high", 0.25), (None, None)]


async def test_a_session_is_created_with_its_settings_before_its_first_message(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.say("configure", id="c", session="fresh", name="model", value="scripted:echo")
        await client.say("send", id="m", session="fresh", text="hi")
        told = await client.until(lambda frame: frame.get("id") == "c")
        assert (told["type"], told["model"]) == ("settings", "scripted:echo")
        await client.until_event("turn_ended")
    kinds = [line["kind"] for line in lines(tmp_path)]
    assert kinds[:3] == ["session_opened", "setting_changed", "message_received"]


async def test_the_agent_of_a_conversation_is_chosen_before_its_first_message(tmp_path: Path) -> None:
    async with gateway(tmp_path, file="[agents.work]\n", settings={"agent.model": "scripted:echo"}) as running:
        client = await running.connect()
        (unknown, told, again, other) = await configured(
            running, ("agent", "nobody"), ("agent", "work"), ("agent", "work"), ("agent", "main"), session="fresh"
        )
        assert (unknown["code"], unknown["message"]) == ("bad_request", "There is no such agent; the agents are main, work.")
        assert [each["agent"] for each in (told, again)] == ["work", "work"]
        assert other["message"] == "Another agent answers here; `/agent NAME` starts a new session with it."
        await client.chat("hi", session="fresh")
        await client.command("/new", session="fresh")
    opened = [line.get("agent") for line in lines(tmp_path) if line["kind"] == "session_opened"]
    assert opened == ["work", "work"]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("model", "nobody:x", "with one of these providers"),
        ("model", 7, "is a text"),
        ("effort", "enormous", "are low, medium, high"),
        ("temperature", 2.5, "is from 0 to 2"),
        ("temperature", "warm", "is a number"),
        ("temperature", True, ""),
        ("queue", "fast", "is one of followup, collect, steer, interrupt"),
        ("verbose", "loud", "is one of on, off"),
        ("title", "x", ""),
    ],
)
async def test_what_a_setting_cannot_be_is_refused_and_not_recorded(
    tmp_path: Path, name: str, value: Any, says: str
) -> None:
    async with OpenAIServer().serving() as server, gateway(tmp_path, settings=settings(server)) as running:
        (told,) = await configured(running, (name, value))
        assert (told["type"], told["code"]) == ("error", "bad_request" if says else "bad_frame")
        assert says in told["message"]
    assert not [line for line in lines(tmp_path) if line["kind"] == "setting_changed"]


async def test_a_model_without_levels_of_effort_says_so(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        (told,) = await configured(running, ("effort", "high"))
        assert told["message"] == "scripted:echo has no levels of effort, or they are not known."
        client = await running.connect()
        assert await client.command("/effort high") == told["message"]


async def test_commands_change_the_same_settings(tmp_path: Path) -> None:
    async with (
        OpenAIServer(ScriptedResponse("ok")).serving() as server,
        gateway(tmp_path, settings=settings(server)) as running,
    ):
        client = await running.connect()
        assert (
            await client.command("/effort low")
            == f"The effort of `openai:{MODEL}` is `low`; it has `low`, `medium`, `high`."
        )
        assert await client.command("/temperature 1") == f"The temperature of `openai:{MODEL}` is 1; it may be from 0 to 2."
        assert await client.command("/temperature 7") == f"The temperature of openai:{MODEL} is from 0 to 2."
        (told,) = await configured(running, ("queue", "steer"))
        assert (told["effort"], told["temperature"], told["queue"]) == ("low", 1.0, "steer")
        assert "model" not in told


async def test_a_value_that_is_set_already_is_not_recorded_again(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        await configured(running, ("queue", "steer"), ("queue", "steer"), ("verbose", None), ("queue", None))
    changed = [(line["name"], line["value"]) for line in lines(tmp_path) if line["kind"] == "setting_changed"]
    assert changed == [("queue", "steer"), ("queue", None)]


async def test_an_effort_that_another_model_does_not_have_is_not_sent_to_it(tmp_path: Path) -> None:
    answers = [ScriptedResponse("ok")] * 2
    async with OpenAIServer(*answers).serving() as server, gateway(tmp_path, settings=settings(server)) as running:
        server.models["plain"] = {}
        client = await running.connect()
        await configured(running, ("effort", "low"), ("model", "openai:plain"))
        await client.chat("one")
        await configured(running, ("model", None))
        await client.chat("two")
    asked = [(body["model"], body.get("reasoning_effort")) for body in server.requests if "messages" in body]
    assert asked == [("plain", None), (MODEL, "low")]


def lines(home: Path) -> list[dict[str, Any]]:
    """All events of the home."""
    return [json.loads(line) for file in home.glob("sessions/*.jsonl") for line in file.read_text().splitlines()]
