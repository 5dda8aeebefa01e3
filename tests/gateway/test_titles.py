"""Titles made by a model: once, in the background, and never over a person's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.turn.titles import TitleMaker, clean_title
from gateway.models.call import ModelCaller
from plugins.api.plugin_services import ModelAnswer
from plugins.testing.servers.faulty_server import Fault, Json
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse, refusal
from tests.gateway.gateways import Client, Frame, gateway
from tests.waiting import deadline

ASKED = {"agent.titles": True, "agent.title_model": "scripted:script"}


async def titled(client: Client) -> Frame:
    """Return the next `session_titled`."""
    return await client.until_event("session_titled")


async def listed_title(client: Client, key: str = "main") -> str:
    """Return the title in the list."""
    await client.say("sessions", id="s")
    rows = (await client.until_type("sessions", id="s"))["sessions"]
    title: str = next(row["title"] for row in rows if row["session"] == key)
    return title


async def test_a_title_is_made_after_the_first_answer_and_only_then(tmp_path: Path) -> None:
    script = [{"text": "Sideways."}, {"purpose": "title", "text": '# "How crabs walk."\nand more'}]
    async with gateway(tmp_path, script=script, settings=ASKED) as running:
        client = await running.connect()
        await client.send("How do crabs walk?")
        made = await titled(client)
        assert (made["title"], made["by"], made["model"]) == ("How crabs walk", "", "scripted:script")
        assert made["usage"]["output"] > 0
        assert (await client.until_type("settings"))["title"] == "How crabs walk"
        assert await listed_title(client) == "How crabs walk"
        assert "| title |" in await client.command("/usage")
        await client.chat("And lobsters?")
        await client.command("/new")
        await client.chat("Something else")
        await client.round_trips()
        events = [event for lines in running.journals().values() for event in lines if event["kind"] == "session_titled"]
        assert [(event["title"], event.get("model")) for event in events] == [
            ("How crabs walk", "scripted:script"),
            ("How crabs walk", None),
        ]


async def test_a_persons_title_is_final_even_if_it_is_empty(tmp_path: Path) -> None:
    script: list[Frame] = [{"text": "Sideways."}, {"purpose": "title", "text": "By the model"}]
    async with gateway(tmp_path, script=script, settings=ASKED) as running:
        client = await running.connect()
        for key, title in (("mine", "Mine"), ("none", "")):
            await client.command("/status", session=key)
            await client.say("rename", id="r", session=key, title=title)
            await client.until_type("settings", id="r")
            await client.chat("How do crabs walk?", session=key)
        await client.send("How do crabs walk?", session="third")
        await titled(client)  # the others had their turns before
        assert [await listed_title(client, key) for key in ("mine", "none", "third")] == ["Mine", "", "By the model"]


async def test_no_model_is_asked_if_titles_are_off_or_it_runs_in_this_process(tmp_path: Path) -> None:
    script = [{"text": "Sideways."}, {"purpose": "title", "text": "By the model"}]
    for number, settings in enumerate(({}, {"agent.titles": True})):
        async with gateway(tmp_path / str(number), script=script, settings=settings) as running:
            client = await running.connect()
            await client.chat("How do crabs walk?")
            await client.round_trips()
        assert [event["kind"] for event in next(iter(running.journals().values()))].count("session_titled") == 0


async def test_a_turn_does_not_wait_for_a_title(tmp_path: Path) -> None:
    script: list[Frame] = [{"text": "Sideways."}, {"purpose": "title", "text": "The title", "delay_ms": 600_000}]
    async with gateway(tmp_path, script=script, settings=ASKED) as running:
        client = await running.connect()
        for text in ("one", "two", "three"):
            assert await client.chat(text) == "Sideways."
        assert await listed_title(client) == ""


async def test_a_title_that_a_person_gives_meanwhile_is_kept(tmp_path: Path) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def answer(maker: TitleMaker, *arguments: Any, **named: Any) -> ModelAnswer:
        asked.set()
        await go_on.wait()
        return ModelAnswer(text="By the model", model="scripted:script", usage=None)

    script: list[Frame] = [{"text": "Sideways."}]
    async with gateway(tmp_path, script=script, settings=ASKED) as running:
        client = await running.connect()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ModelCaller, "answer", answer)
            await client.send("How do crabs walk?")
            await client.until_event("turn_ended")
            async with deadline():
                await asked.wait()
            await client.say("rename", id="r", session="main", title="Mine")
            await client.until_type("settings", id="r")
            go_on.set()
            assert await client.command("/title") == "The title is `Mine`."


async def test_a_title_that_a_stop_prevented_is_made_when_the_session_is_opened(tmp_path: Path) -> None:
    script: list[Frame] = [{"text": "Sideways."}, {"purpose": "title", "text": "The title", "delay_ms": 600_000}]
    async with gateway(tmp_path, script=script, settings=ASKED) as running:
        await (await running.connect()).chat("one")
    script[1]["delay_ms"] = 0
    async with gateway(tmp_path, script=script, settings=ASKED) as running:
        client = await running.connect()
        await client.say("subscribe", id="s", session="main")
        async with deadline():
            while await listed_title(client) != "The title":
                await asyncio.sleep(0.02)


async def test_a_model_that_fails_is_not_asked_for_ever(tmp_path: Path) -> None:
    def respond(body: Json) -> ScriptedResponse | Fault:
        if "You name conversations" in str(body["messages"][0]["content"]):
            return Fault(status=400, body=refusal("no titles here", None))
        return ScriptedResponse("Sideways.")

    async with OpenAIServer(respond=respond).serving() as server:
        settings: dict[str, Any] = {
            "agent.titles": True,
            "agent.model": "openai:fake",
            "providers.openai.base_url": server.url,
            "providers.openai.api_key": KEY,
        }
        async with gateway(tmp_path, settings=settings) as running:
            client = await running.connect()
            for number in range(4):
                assert await client.chat(f"message {number}") == "Sideways."
                await asyncio.sleep(0)
                async with deadline():
                    while len(asked := about_titles(server.requests)) < min(number + 1, 2):
                        await asyncio.sleep(0.01)
        assert len(asked) == 2
        assert asked[0]["max_tokens" if "max_tokens" in asked[0] else "max_completion_tokens"] == 40


async def test_a_model_is_asked_for_one_title(tmp_path: Path) -> None:
    async with OpenAIServer(respond=lambda _: ScriptedResponse("Crabs")).serving() as server:
        settings: dict[str, Any] = {
            "agent.titles": True,
            "agent.model": "openai:fake",
            "providers.openai.base_url": server.url,
            "providers.openai.api_key": KEY,
        }
        async with gateway(tmp_path, settings=settings) as running:
            client = await running.connect()
            await client.send("How do crabs walk?")
            assert (await titled(client))["title"] == "Crabs"
            for number in range(3):
                await client.chat(f"message {number}")
            await client.round_trips()
        assert len(about_titles(server.requests)) == 1


def about_titles(requests: list[Json]) -> list[Json]:
    """Return the requests for titles."""
    return [body for body in requests if "You name conversations" in str(body["messages"][0]["content"])]


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("\n\n**Crabs**\n", "Crabs"),
        ("Title: Why crabs walk sideways.", "Why crabs walk sideways"),
        ("标题：螃蟹", "螃蟹"),
        ("«Des crabes»", "Des crabes"),
        ("a\u202eb \x1b[31mred", "ab [31mred"),
        ("", ""),
        ("word " * 40, " ".join(["word"] * 16) + "…"),
        ("x" * 200, "x" * 79 + "…"),
    ],
)
def test_a_title_is_one_clean_line(answer: str, title: str) -> None:
    assert clean_title(answer) == title
