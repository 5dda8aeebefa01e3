"""Requests for facts use a response format where the service supports one; failures begin pauses that grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.facts.fact_requests import FIRST_PAUSE, LONGEST_PAUSE, FactPauses
from plugins.facts.model_answers import response_format
from plugins.testing.contexts import ManualClock
from plugins.testing.servers.faulty_server import Fault, Json
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse, refusal
from tests.gateway.gateways import Gateway, gateway
from tests.gateway.test_fact_finding import BY_WORDS, of_kind
from tests.waiting import until

FOUND = json.dumps({"facts": [{"content": "Tea is green", "type": "fact", "importance": 0.6, "tags": []}]})
ASKED = {"type": "json_schema", "json_schema": {"name": "facts", "schema": response_format().schema, "strict": True}}


def about_facts(server: OpenAIServer) -> list[Json]:
    """Return the requests for facts."""
    return [body for body in server.requests if "You read one exchange" in body["messages"][0]["content"]]


def settings(server: OpenAIServer) -> dict[str, Any]:
    address = {"agent.model": "openai:fake", "providers.openai.base_url": server.url, "providers.openai.api_key": KEY}
    return {**BY_WORDS, **address}


async def until_found(on: Gateway, count: int) -> None:
    await until(lambda: len(of_kind(on, "facts_extracted")) == count)


async def chat_and_find(home: Path, server: OpenAIServer) -> list[Json]:
    async with gateway(home, settings=settings(server)) as on:
        client = await on.connect()
        for number, said in enumerate(("I drink my tea green.", "And I drink my coffee black."), 1):
            await client.chat(said)
            await until_found(on, number)
        return of_kind(on, "facts_extracted")


async def test_a_service_that_can_is_asked_for_the_form(tmp_path: Path) -> None:
    async with OpenAIServer(respond=lambda _: ScriptedResponse(FOUND)).serving() as server:
        events = await chat_and_find(tmp_path, server)
    assert [body["response_format"] for body in about_facts(server)] == [ASKED, ASKED]
    assert [event["entries"][0]["content"] for event in events] == ["Tea is green", "Tea is green"]


async def test_a_service_that_refuses_the_form_is_asked_without_it_and_that_is_remembered(tmp_path: Path) -> None:
    def respond(body: Json) -> ScriptedResponse | Fault:
        if "response_format" in body:
            return Fault(status=400, body=refusal("This response_format type is unavailable now", None))
        return ScriptedResponse(FOUND)

    async with OpenAIServer(respond=respond).serving() as server:
        events = await chat_and_find(tmp_path, server)
    assert ["response_format" in body for body in about_facts(server)] == [True, False, False]
    assert [event["entries"][0]["content"] for event in events] == ["Tea is green", "Tea is green"]


def test_each_failure_in_a_row_doubles_the_pause_of_its_name_alone_up_to_the_longest() -> None:
    pauses = FactPauses(ManualClock())
    assert [pauses.fail("model a", "No.") for _ in range(3)] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert [pauses.fail("model a", "No.") for _ in range(40)][-1] == LONGEST_PAUSE
    assert pauses.is_paused("model a")
    assert not pauses.is_paused("model b")
    pauses.succeed("model a")
    assert not pauses.is_paused("model a")
    assert pauses.fail("model a", "No.") == FIRST_PAUSE


def test_a_pause_lasts_as_long_as_a_provider_asks() -> None:
    clock = ManualClock()
    pauses = FactPauses(clock)
    assert pauses.fail("model a", "Wait.", least=1000.0) == 1000.0
    clock.move(999)
    assert pauses.is_paused("model a")
    clock.move(2)
    assert not pauses.is_paused("model a")


@pytest.mark.parametrize(("hours", "told"), [(0.5, ["No."]), (2, [])])
def test_a_failure_is_no_longer_reported_long_after_its_pause(hours: float, told: list[str]) -> None:
    clock = ManualClock()
    pauses = FactPauses(clock)
    pauses.fail("model a", "No.")
    clock.move(FIRST_PAUSE + 3600 * hours)
    assert pauses.sentences() == told
