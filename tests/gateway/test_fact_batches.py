"""Facts are distilled in requests of bounded size, and one that fails stops no other."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugins.policies.languages.prompts import language
from plugins.testing.servers.faulty_server import Fault, Json
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse, refusal
from sessions.events.tokens import estimate
from tests.gateway.gateways import Gateway, gateway
from tests.gateway.test_fact_finding import BY_WORDS, brought, of_kind
from tests.waiting import until

TEXTS = language("en").facts
TOO_LONG = Fault(status=400, body=refusal("This model's maximum context length is exceeded.", "context_length_exceeded"))
FILTERED = Fault(status=400, body=refusal("The prompt was filtered by our content policy.", "content_filter"))
GARBLED = Fault(body=b'{"choices": 7}')

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "larch")


def row(number: int, **more: Any) -> Json:
    """Return a unique fact of about 400 characters."""
    word = WORDS[number % len(WORDS)]
    return {"content": f"Item {number} is about {word}: " + " ".join(f"{word}{number}x{n}" for n in range(40)), **more}


class Distiller(OpenAIServer):
    """A model that keeps each new fact unchanged, unless `fails` returns a fault for the request. `asked` collects the
    requests' texts."""

    def __init__(self, fails: Callable[[str], Fault | None] = lambda _: None) -> None:
        super().__init__(respond=self._said)
        self._fails = fails
        self.asked: list[str] = []

    def _said(self, body: Json) -> ScriptedResponse | Fault:
        if not body["messages"][0]["content"].startswith(TEXTS.distillation.strip()[:60]):
            return ScriptedResponse("Noted.")
        text = body["messages"][-1]["content"]
        self.asked.append(text)
        if (fault := self._fails(text)) is not None:
            return fault
        rows = [{"content": each, "type": "fact", "importance": 0.5, "tags": []} for each in new_in(text)]
        return ScriptedResponse(json.dumps({"facts": rows}))


def new_in(text: str) -> list[str]:
    """Return the new facts in a request."""
    lines = text[text.index(f"{TEXTS.new}:") :].splitlines()
    return [line.partition(") ")[2] for line in lines if ". (" in line]


def settings(server: OpenAIServer, **more: Any) -> dict[str, Any]:
    address = {"agent.model": "openai:fake", "providers.openai.base_url": server.url, "providers.openai.api_key": KEY}
    quiet = {"memory.facts.distill_threshold": 0, "memory.facts.distill_interval_hours": 0}
    return {**BY_WORDS, **address, **quiet, **more}


def taken(on: Gateway) -> list[str]:
    return [each for event in of_kind(on, "facts_distilled") for each in event["taken"]]


def longer_than(characters: int) -> Callable[[str], Fault | None]:
    return lambda text: TOO_LONG if len(text) > characters else None


@pytest.mark.parametrize("window", [2048, 4096, 16_384])
async def test_a_request_fits_into_the_window_of_the_model_with_its_answer(tmp_path: Path, window: int) -> None:
    await brought(tmp_path, *(row(n) for n in range(30)), *(row(n, layer="longterm") for n in range(100, 140)))
    async with (
        Distiller().serving() as server,
        gateway(tmp_path, settings=settings(server, **{"agent.context_window": window})) as on,
    ):
        client = await on.connect()
        assert (await client.command("/distill")).startswith("Distilled 30 new facts into")
    sizes = [estimate(TEXTS.distillation) + estimate(text) for text in server.asked]
    assert max(sizes) < 0.75 * window
    assert max(sizes) > 0.4 * min(window, 8000)  # and the window is used
    assert any(TEXTS.kept in text and "Item 1" in text.partition(f"{TEXTS.new}:")[0] for text in server.asked)
    assert len(taken(on)) == len(set(taken(on))) == 30


async def test_a_request_that_is_too_long_is_halved_until_it_is_taken_and_no_more_are_as_long(tmp_path: Path) -> None:
    await brought(tmp_path, *(row(n) for n in range(30)))
    async with (
        Distiller(longer_than(3000)).serving() as server,
        gateway(tmp_path, settings=settings(server)) as on,
    ):
        client = await on.connect()
        assert (await client.command("/distill")).startswith("Distilled 30 new facts into")
    refused = [len(text) for text in server.asked if len(text) > 3000]
    assert all(later < 0.7 * earlier for earlier, later in itertools.pairwise(refused))
    assert len(refused) < 4
    assert len(server.asked) < 20
    assert len(taken(on)) == len(set(taken(on))) == 30


async def test_a_fact_that_is_too_long_by_itself_is_kept_unchanged_and_reported(tmp_path: Path) -> None:
    long = {"id": "99999999-long", "content": "Bears " + "sleep in winter " * 110}
    await brought(tmp_path, row(0), long, row(1))
    async with (
        Distiller(longer_than(1500)).serving() as server,
        gateway(tmp_path, settings=settings(server)) as on,
    ):
        client = await on.connect()
        assert await client.command("/distill") == "Distilled 3 new facts into 3 long-term facts."
        why = await client.command("/why 99999999")
        assert await client.command("/distill") == "The daily log has no new facts."
    assert "Kept unchanged, since it could not be distilled: The conversation is too long for the model" in why
    (event,) = [event for event in of_kind(on, "facts_distilled") if event.get("failed")]
    assert event["taken"] == ["99999999-long"]


async def test_a_fact_that_the_provider_refuses_keeps_no_other_from_being_distilled(tmp_path: Path) -> None:
    poison = {"id": "99999999-blue", "content": "The poison of the blue frog is in cabinet nine"}
    await brought(tmp_path, *(row(n) for n in range(5)), poison, *(row(n) for n in range(5, 10)))
    async with (
        Distiller(lambda text: FILTERED if "poison" in "\n".join(new_in(text)) else None).serving() as server,
        gateway(tmp_path, settings=settings(server)) as on,
    ):
        client = await on.connect()
        assert (await client.command("/distill")).startswith("Distilled 11 new facts into")
    failed = [event["taken"] for event in of_kind(on, "facts_distilled") if event.get("failed")]
    assert failed == [["99999999-blue"]]
    assert len(of_kind(on, "facts_distilled")) <= 5  # the others are distilled together as far as can be


async def test_a_provider_that_refuses_everything_is_not_asked_about_each_fact(tmp_path: Path) -> None:
    await brought(tmp_path, *(row(n) for n in range(20)))
    async with (
        Distiller(lambda _: FILTERED).serving() as server,
        gateway(tmp_path, settings=settings(server)) as on,
    ):
        client = await on.connect()
        answer = await client.command("/distill")
        asked = len(server.asked)
    assert "content policy" in answer
    assert asked < 30  # each is asked twice: with the form of the answer, and without
    assert len(taken(on)) == 1


async def test_a_failed_distillation_of_one_person_does_not_stop_the_others(tmp_path: Path) -> None:
    await brought(tmp_path, row(0, owner="bob"), row(1))
    due = {"memory.facts.distill_threshold": 1}
    async with (
        Distiller(lambda text: GARBLED if "Item 0" in text else None).serving() as server,
        gateway(tmp_path, settings=settings(server, **due)) as on,
    ):
        await until(lambda: of_kind(on, "facts_distilled"))
        status = await (await on.connect()).command("/status")
    assert [entry["owner"] for event in of_kind(on, "facts_distilled") for entry in event["entries"]] == ["owner"]
    assert "The facts of bob could not be distilled, which will be retried" in status
