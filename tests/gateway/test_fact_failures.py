"""A turn whose facts cannot be extracted stops neither the next turn of its session nor anybody else's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.facts import fact_extraction, fact_requests
from plugins.testing.servers.faulty_server import Fault, Json
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse, refusal
from sessions.catalog.sqlite_catalog import SqliteCatalog
from sessions.events.errors import StorageFailed
from sessions.events.tokens import estimate
from tests.gateway.gateways import Gateway, gateway
from tests.gateway.test_fact_finding import BY_WORDS, of_kind
from tests.waiting import until

FOUND = json.dumps({"facts": [{"content": "Tea is green", "type": "fact", "importance": 0.6, "tags": []}]})

POISON = "The poison of the blue frog is kept in cabinet nine."
HARMLESS = "My favourite tea is a green oolong."

FILTERED = Fault(status=400, body=refusal("The prompt was filtered by our content policy.", "content_filter"))
GARBLED = Fault(body=b'{"choices": 7}')
NO_RIGHT = Fault(status=401, body=refusal("This key may not be used.", "invalid_api_key"))


class FactServer(OpenAIServer):
    """A server that answers every turn and extraction, except those for which `fails` returns a fault."""

    def __init__(self, fails: Callable[[Json], Fault | None]) -> None:
        super().__init__(respond=self._said)
        self.models |= {"barred": {}}
        self._fails = fails

    def _said(self, body: Json) -> ScriptedResponse | Fault:
        if not is_extraction(body):
            return ScriptedResponse("Noted.")
        return self._fails(body) or ScriptedResponse(FOUND)

    def asked(self, what: str) -> int:
        """Return the number of extractions from turns with this text."""
        return sum(is_extraction(body) and what in body["messages"][-1]["content"] for body in self.requests)


def is_extraction(body: Json) -> bool:
    return "You read one exchange" in body["messages"][0]["content"]


def to_poison(fault: Fault) -> Callable[[Json], Fault | None]:
    return lambda body: fault if POISON in body["messages"][-1]["content"] else None


def settings(server: OpenAIServer) -> dict[str, Any]:
    address = {"agent.model": "openai:fake", "providers.openai.base_url": server.url, "providers.openai.api_key": KEY}
    return {**BY_WORDS, **address}


def extracted(on: Gateway) -> list[tuple[int, bool]]:
    """Return each processed turn in order: its ordinal, and whether it failed."""
    return [(event["ordinal"], bool(event.get("failed"))) for event in of_kind(on, "facts_extracted")]


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry failures almost at once."""
    monkeypatch.setattr(fact_requests, "FIRST_PAUSE", 0.05)


async def test_a_turn_that_the_provider_refuses_is_marked_and_the_next_one_is_processed(tmp_path: Path) -> None:
    async with FactServer(to_poison(FILTERED)).serving() as server, gateway(tmp_path, settings=settings(server)) as on:
        client = await on.connect()
        await client.chat(POISON)
        await until(lambda: extracted(on) == [(1, True)])
        await client.chat(HARMLESS)
        await until(lambda: extracted(on) == [(1, True), (2, False)])
        status = await client.command("/status")
        refused = server.asked(POISON)
    assert refused == 2  # with the form of the answer, and without
    assert "content policy" in of_kind(on, "facts_extracted")[0]["failed"]
    assert "will be retried" not in status


async def test_a_turn_that_always_fails_is_abandoned_after_three_tries(tmp_path: Path, short_pauses: None) -> None:
    async with FactServer(to_poison(GARBLED)).serving() as server, gateway(tmp_path, settings=settings(server)) as on:
        client = await on.connect()
        await client.chat(POISON)
        await client.chat(HARMLESS)
        await until(lambda: extracted(on) == [(1, True), (2, False)])
        assert server.asked(POISON) == 3
        assert [event["upto"] for event in of_kind(on, "extraction_failed")] == [
            of_kind(on, "facts_extracted")[0]["upto"]
        ] * 2


async def test_tries_are_counted_across_restarts(tmp_path: Path) -> None:
    async with FactServer(to_poison(GARBLED)).serving() as server:
        async with gateway(tmp_path, settings=settings(server)) as on:
            await (await on.connect()).chat(POISON)
            await until(lambda: len(of_kind(on, "extraction_failed")) == 1)
        async with gateway(tmp_path, settings=settings(server)) as on:
            await until(lambda: len(of_kind(on, "extraction_failed")) == 2)
        async with gateway(tmp_path, settings=settings(server)) as on:
            await until(lambda: extracted(on) == [(1, True)])
        assert server.asked(POISON) == 3


async def test_facts_are_extracted_although_the_catalog_does_not_answer_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fact_extraction, "CATALOG_PAUSE", 0.05)
    changed_since, failures = SqliteCatalog.changed_since, [StorageFailed("The database does not answer.")]

    async def fail_once(self: SqliteCatalog, since: str) -> Any:
        if failures:
            raise failures.pop()
        return await changed_since(self, since)

    monkeypatch.setattr(SqliteCatalog, "changed_since", fail_once)
    async with FactServer(lambda _: None).serving() as server, gateway(tmp_path, settings=settings(server)) as on:
        await (await on.connect()).chat(HARMLESS)
        await until(lambda: extracted(on) == [(1, False)])


async def test_a_failed_turn_pauses_only_its_own_session(tmp_path: Path) -> None:
    async with FactServer(to_poison(GARBLED)).serving() as server, gateway(tmp_path, settings=settings(server)) as on:
        client = await on.connect()
        await client.chat(POISON)
        await until(lambda: of_kind(on, "extraction_failed"))
        await client.chat(HARMLESS)  # a new message does not end the pause of its session
        await client.chat(HARMLESS, session="other")
        await until(lambda: of_kind(on, "facts_extracted"))
        status = await client.command("/status")
        assert server.asked(POISON) == 1
    (event,) = of_kind(on, "facts_extracted")
    assert [lines[0]["key"] for session, lines in on.journals().items() if session == event["session"]] == ["other"]
    assert "could not be searched for facts, and will be retried" in status


async def test_a_refused_key_pauses_only_its_model(tmp_path: Path) -> None:
    def fails(body: Json) -> Fault | None:
        return NO_RIGHT if body["model"] == "barred" else None

    async with FactServer(fails).serving() as server, gateway(tmp_path, settings=settings(server)) as on:
        client = await on.connect()
        await client.command("/model openai:barred", session="first")
        await client.chat(POISON, session="first")
        await until(lambda: of_kind(on, "extraction_failed"))
        await client.command("/model openai:barred", session="second")
        await client.chat(POISON, session="second")
        await client.chat(HARMLESS, session="third")
        await until(lambda: of_kind(on, "facts_extracted"))
        assert [body["model"] for body in server.requests if is_extraction(body)] == ["barred", "fake"]
        assert "openai:barred" in await client.command("/status")


async def test_a_refusal_of_the_key_alone_marks_no_turn_after_a_few_tries(tmp_path: Path, short_pauses: None) -> None:
    refuses = True

    async with (
        FactServer(lambda _: NO_RIGHT if refuses else None).serving() as server,
        gateway(tmp_path, settings=settings(server)) as on,
    ):
        await (await on.connect()).chat(HARMLESS)
        await until(lambda: len(of_kind(on, "extraction_failed")) == 4)
        refuses = False
        await until(lambda: extracted(on) == [(1, False)])


LONG = "We met about the harbour today. " * 300

TOO_LONG = Fault(status=400, body=refusal("This model's maximum context length is exceeded.", "context_length_exceeded"))


async def test_a_long_turn_is_shown_as_far_as_the_window_of_the_model_allows(tmp_path: Path) -> None:
    small = '[memory.facts]\nmodel = "openai:small"\n[agent.context_windows]\n"openai:small" = 2048\n'
    async with (
        FactServer(lambda _: None).serving() as server,
        gateway(tmp_path, settings=settings(server), file=small) as on,
    ):
        await (await on.connect()).chat("我们今天谈到了港口。" * 300)
        await until(lambda: extracted(on) == [(1, False)])
        (asked,) = [body for body in server.requests if is_extraction(body)]
    assert 0.4 * 2048 < sum(estimate(message["content"]) for message in asked["messages"]) < 0.75 * 2048


async def test_a_turn_that_is_too_long_for_the_model_is_shown_in_part(tmp_path: Path) -> None:
    def fails(body: Json) -> Fault | None:
        return TOO_LONG if len(body["messages"][-1]["content"]) > 2000 else None

    async with FactServer(fails).serving() as server, gateway(tmp_path, settings=settings(server)) as on:
        await (await on.connect()).chat(LONG)
        await until(lambda: extracted(on) == [(1, False)])
        assert 1 < server.asked("harbour") < 5


async def test_a_turn_of_which_nothing_fits_is_marked(tmp_path: Path) -> None:
    async with FactServer(lambda _: TOO_LONG).serving() as server, gateway(tmp_path, settings=settings(server)) as on:
        await (await on.connect()).chat(LONG)
        await until(lambda: extracted(on) == [(1, True)])
        assert server.asked("harbour") < 5
