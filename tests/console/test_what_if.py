"""A past request sent again over HTTP: to another model, with other parameters or pruning; nothing of it is kept."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.conversations import what_if
from gateway.conversations.what_if import pruned_anew
from gateway.http.console.what_if_endpoints import OF_ONE_PERSON
from gateway.support.stored_sessions import requests_of_turn
from plugins.api.pruning import PruningRules
from sessions.state.context import Gauge, assemble
from tests.console.asked import ask
from tests.console.test_context_endpoints import long_talk
from tests.gateway.gateways import TOKEN, Client, Gateway, gateway
from tests.stored import stored
from tests.waiting import deadline, until

MODEL = "scripted:echo"

RULES = PruningRules(mode="always")
"""Those of `long_talk`."""

BOB = "a-token-for-bob-that-is-long-enough"
PATH = "/api/context/main/turns/1/what-if"
PRICES = """
[prices."scripted:echo"]
input = 2.0
output = 8.0

[prices."scripted:script"]
input = 1.0
output = 1.0

[approvals]
default = "allow"
"""
SCRIPT: list[dict[str, Any]] = [
    {"text": "Sideways."},
    {"purpose": "what_if", "text": "On ten legs.", "calls": [{"tool": "read", "arguments": {"path": "a"}}]},
]


def events_of(body: bytes) -> list[dict[str, Any]]:
    """Return the events of a stream."""
    return [json.loads(line.removeprefix(b"data: ")) for line in body.split(b"\n\n") if line.startswith(b"data: ")]


async def asked(running: Gateway, path: str = PATH, **change: Any) -> list[dict[str, Any]]:
    answered = await ask(running, path, "POST", json=change)
    assert answered.status == 200, answered.body
    assert answered.headers["Content-Type"].startswith("text/event-stream")
    return events_of(answered.body)


async def chatted(running: Gateway) -> Client:
    client = await running.connect()
    await client.chat("How do crabs walk?")
    return client


async def test_the_same_request_to_another_model_is_answered_beside_the_conversation(tmp_path: Path) -> None:
    async with gateway(tmp_path, script=SCRIPT, file=PRICES) as running:
        client = await chatted(running)
        (before,) = running.journals().values()
        was = (await ask(running, PATH)).json
        events = await asked(running, model="scripted:echo")
        assert events[-1] == {"type": "end"}, events
        request, *pieces, answer, _ = events
        *_, called, _ = await asked(running)
        (after,) = running.journals().values()
        assert "| what_if |" in await client.command("/usage")
        await client.chat("And lobsters?")
        (last,) = running.journals().values()
    sent = next(event for event in before if event["kind"] == "request_sent")
    assert (was["model"], was["answer"]["text"], was["answer"]["stop"]) == ("scripted:script", "Sideways.", "end")
    assert was["answer"]["cost"] > 0
    assert was["pruning"]["mode"] == "cache-ttl"
    assert (request["type"], request["model"], request["sha256"]) == ("request", "scripted:echo", sent["sha256"])
    assert (request["before"], request["changed"], request["changes"]) == (sent["tokens"], 0, [])
    assert {piece["type"] for piece in pieces} == {"text"}
    assert "".join(piece["text"] for piece in pieces) == answer["text"]
    assert "How do crabs walk?" in answer["text"]
    usage = answer["usage"]
    fresh = usage["input"] - usage["cached"]
    assert answer["cost"] == (fresh * 2 + usage["cached"] * 2 + usage["output"] * 8) / 1_000_000
    # The tools were offered; their calls are shown, and none runs.
    assert (called["text"], called["calls"]) == ("On ten legs.", [{"tool": "read", "arguments": '{"path":"a"}'}])
    # One durable event for each, that changes nothing of the context.
    assert after[: len(before)] == before
    first, second = after[len(before) :]
    assert (first["kind"], first["request"], first["model"]) == ("request_repeated", sent["seq"], "scripted:echo")
    assert (first["by"], first["usage"], first["sha256"]) == ("owner", usage, sent["sha256"])
    assert (second["model"], second["usage"]) == ("scripted:script", called["usage"])
    requests = [event for event in last if event["kind"] == "request_sent"]
    assert [request["messages"] for request in requests] == [1, 3]


async def test_an_answer_ends_when_the_page_is_left_and_what_was_asked_is_recorded(tmp_path: Path) -> None:
    script: list[dict[str, Any]] = [
        {"text": "Sideways."},
        {"purpose": "what_if", "text": "One two three", "delay_ms": 30_000},
    ]
    async with gateway(tmp_path, script=script) as running:
        client = await chatted(running)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with deadline(), running.http.post(f"{running.url}{PATH}", json={}, headers=headers) as response:
            first = events_of(await response.content.readuntil(b"\n\n"))
            assert first[0]["type"] == "request"
            response.close()
            recorded = await client.until_event("request_repeated")
        assert "usage" not in recorded
        await until(lambda: running.daemon._in_flight._count == 0)


async def test_a_changed_pruning_policy_is_followed_from_the_beginning_of_the_session(tmp_path: Path) -> None:
    journal = await long_talk(tmp_path)
    async with gateway(tmp_path / "home") as running:
        page = (await ask(running, "/api/context/main")).json
        turn = next(mark["turn"] for mark in page["marks"] if mark["kind"] == "pruned")
        path = f"/api/context/main/turns/{turn}/what-if"
        request, *_, answer, _end = await asked(running, path, model=MODEL, pruning={"mode": "off"})
        shorter, *_ = await asked(
            running,
            path,
            model=MODEL,
            pruning={
                "mode": "always",
                "soft_trim_ratio": 0,
                "hard_clear_ratio": 0,
                "keep_last_assistants": 0,
                "min_prunable_chars": 0,
            },
        )
        refused = await ask(running, path, "POST", json={"model": MODEL, "pruning": {"mode": "never"}})
    past = requests_of_turn(stored(journal), turn)[-1]
    assert request["changed"] == len(request["changes"]) > 0
    assert all(change["after"] > change["before"] and change["who"] == "tool" for change in request["changes"])
    assert request["tokens"] > request["before"] > shorter["tokens"]
    assert answer["text"]
    assert refused.status == 400
    assert "The pruning policy is not valid: Invalid enum value 'never'" in refused.json["message"]
    context = assemble(past[1])
    assert {change["index"]: change["before"] for change in request["changes"]}.items() <= {
        index: len(message.text) for index, message in enumerate(context.messages)
    }.items()


async def test_the_rules_that_were_in_force_rebuild_every_request_of_a_session(tmp_path: Path) -> None:
    journal = await long_talk(tmp_path)
    log = stored(journal)
    compared = 0
    for turn in (5, 20, 40, 60):
        for recorded, transcript in requests_of_turn(log, turn):
            open_turn = transcript.open_turn
            assert open_turn is not None
            anew = pruned_anew(log, recorded, RULES, (open_turn.window, open_turn.reserve))
            assert Gauge().measure(assemble(anew)) == Gauge().measure(assemble(transcript)), recorded.seq
            compared += 1
    assert compared >= 4


async def test_what_cannot_be_asked_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with gateway(tmp_path, script=SCRIPT, settings={"people.bob.token": BOB}) as running:
        await chatted(running)
        (before,) = running.journals().values()

        async def refused(path: str = PATH, token: str = TOKEN, **change: Any) -> tuple[int, str, str]:
            answered = await ask(running, path, "POST", token=token, json=change)
            return answered.status, answered.json["code"], answered.json["message"]

        assert (await refused(model="nobody:model"))[:2] == (400, "no_such_model")
        assert await refused(effort="high") == (400, "bad_request", "The levels of effort of scripted:script are not known.")
        assert (await refused(window=5))[:2] == (400, "bad_request")
        assert await refused("/api/context/main/turns/9/what-if") == (404, "not_found", "This turn made no request.")
        assert (await refused(f"{PATH}?call=2"))[:2] == (404, "not_found")
        assert (await refused(token=BOB))[:2] == (404, "not_found")
        assert (await ask(running, PATH, token=BOB)).status == 404
        assert (await ask(running, PATH, "POST", data=b"{" * 20_000)).status == 413
        (after,) = running.journals().values()
    assert after == before


async def test_a_request_that_exceeds_the_window_of_the_model_is_not_sent(tmp_path: Path) -> None:
    file = '[agent.context_windows]\n"scripted:echo" = 1024\n[approvals]\ndefault = "allow"\n'
    async with gateway(tmp_path, script=SCRIPT, file=file) as running:
        client = await running.connect()
        await client.chat("How do crabs walk? " * 400)
        (before,) = running.journals().values()
        refused = await ask(running, PATH, "POST", json={"model": "scripted:echo"})
        (after,) = running.journals().values()
    assert (refused.status, refused.json["code"]) == (409, "conflict")
    assert "the window of scripted:echo has 1,024" in refused.json["message"]
    assert after == before


async def test_a_request_that_the_log_does_not_rebuild_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(tmp_path, script=SCRIPT) as running:
        await chatted(running)
        monkeypatch.setattr(what_if, "assemble", lambda transcript: msgspec.structs.replace(assemble(transcript), tools=()))
        refused = await ask(running, PATH, "POST", json={})
    assert (refused.status, refused.json["code"]) == (409, "conflict")
    assert refused.json["message"].startswith("This request cannot be sent again: rebuilt from the log, it differs")


async def test_one_person_compares_a_limited_number_of_answers_at_a_time(tmp_path: Path) -> None:
    script: list[dict[str, Any]] = [{"text": "Sideways."}, {"purpose": "what_if", "text": "One two", "delay_ms": 60_000}]
    async with gateway(tmp_path, script=script) as running, AsyncExitStack() as stack:
        await chatted(running)
        for _ in range(OF_ONE_PERSON):
            sent = running.http.post(f"{running.url}{PATH}", json={}, headers={"Authorization": f"Bearer {TOKEN}"})
            response = await stack.enter_async_context(sent)
            assert response.status == 200
        refused = await ask(running, PATH, "POST", json={})
        assert (refused.status, refused.json["code"]) == (429, "busy")
        await stack.aclose()
        await until(lambda: running.daemon._in_flight._count == 0)
