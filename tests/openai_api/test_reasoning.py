"""The model's reasoning: in chat completions beside the text, in responses as items with a summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugins.testing.servers.faulty_server import RawResponse
from plugins.testing.servers.openai_server import ScriptedResponse
from tests.gateway.gateways import gateway
from tests.openai_api.asking import SAID, client_of, vendor_behind
from tests.waiting import deadline

TURN: list[dict[str, Any]] = [
    {"text": "I look.", "reasoning": "What is there?", "calls": [{"tool": "read", "arguments": {"path": "."}}]},
    {"text": "It is empty.", "reasoning": "No files.", "delay_ms": 20},
]


async def parts_of(stream: Any) -> tuple[str, str]:
    """Return the reasoning and the text of a stream."""
    async with deadline():
        deltas = [chunk.choices[0].delta async for chunk in stream if chunk.choices]
    return "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas), "".join(
        delta.content or "" for delta in deltas
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_is_passed_on_without_a_session(tmp_path: Path, stream: bool) -> None:
    says = ScriptedResponse("It is four.", reasoning="First I add.")
    async with vendor_behind(tmp_path, says) as (_, _, client):
        answer = await client.chat.completions.create(model="exuvia", messages=SAID, stream=stream)
        if stream:
            told = await parts_of(answer)
        else:
            told = answer.choices[0].message.reasoning_content, answer.choices[0].message.content
    assert told == ("First I add.", "It is four.")


async def test_a_message_without_reasoning_has_no_field_for_it(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, ScriptedResponse("Four.")) as (_, _, client):
        answer = await client.chat.completions.create(model="exuvia", messages=SAID)
    assert "reasoning_content" not in answer.choices[0].message.model_dump()


async def test_a_fallback_answers_after_reasoning_was_sent(tmp_path: Path) -> None:
    """Reasoning is no part of the answer, which can still begin anew."""
    thinking = b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"Hm."}}]}\n\n'
    failed = b'data: {"error":{"message":"It broke.","type":"server_error"}}\n\n'
    second = {"agent.fallback_models": ["scripted:echo"]}
    async with vendor_behind(tmp_path, RawResponse(thinking + failed), settings=second) as (_, _, client):
        answer = await client.chat.completions.create(model="exuvia", messages=SAID, stream=True)
        assert await parts_of(answer) == ("Hm.\n\nHm.\n\nHm.", "Hello?")


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_of_all_replies_of_a_turn_is_passed_on_in_a_session(tmp_path: Path, stream: bool) -> None:
    async with gateway(tmp_path, script=TURN) as g, client_of(g) as client:
        headers = {"X-Exuvia-Session": "main"}
        answer = await client.chat.completions.create(model="exuvia", messages=SAID, stream=stream, extra_headers=headers)
        if stream:
            told = await parts_of(answer)
        else:
            told = answer.choices[0].message.reasoning_content, answer.choices[0].message.content
    assert told == ("What is there?\n\nNo files.", "I look.\n\nIt is empty.")


# --- responses --------------------------------------------------------------------------------------------------------

SUMMARY: Any = {"summary": "auto"}


def items_of(response: Any) -> list[str]:
    """Return the texts of a response's items, those of reasoning with a mark."""
    return [f"({item.summary[0].text})" if item.type == "reasoning" else item.content[0].text for item in response.output]


@pytest.mark.parametrize("asked", [SUMMARY, {"summary": "detailed", "effort": "low"}, {"generate_summary": "concise"}])
async def test_a_response_has_a_summary_on_request(tmp_path: Path, asked: Any) -> None:
    says = ScriptedResponse("It is four.", reasoning="First I add.")
    async with vendor_behind(tmp_path, says) as (_, _, client):
        response = await client.responses.create(model="exuvia", input="2 + 2?", reasoning=asked)
        found = await client.responses.retrieve(response.id)
    assert items_of(response) == ["(First I add.)", "It is four."]
    assert (response.output[0].status, response.reasoning.summary) == ("completed", asked.get("summary"))
    assert found == response


@pytest.mark.parametrize("asked", [None, {"effort": "low"}, {"summary": None}, {"summary": "none"}])
async def test_a_response_has_no_reasoning_unless_it_is_requested(tmp_path: Path, asked: Any) -> None:
    says = ScriptedResponse("It is four.", reasoning="First I add.")
    async with vendor_behind(tmp_path, says) as (_, _, client):
        response = await client.responses.create(model="exuvia", input="2 + 2?", reasoning=asked)
    assert items_of(response) == ["It is four."]


async def test_a_stream_has_the_events_of_a_summary(tmp_path: Path) -> None:
    says = ScriptedResponse("Four.", reasoning="First I add.")
    async with vendor_behind(tmp_path, says) as (_, _, client), deadline():
        stream = await client.responses.create(model="exuvia", input="2 + 2?", reasoning=SUMMARY, stream=True)
        events = [event async for event in stream]
    summary = [event for event in events if getattr(event, "output_index", None) == 0]
    deltas = [event for event in summary if event.type == "response.reasoning_summary_text.delta"]
    assert [event.type.removeprefix("response.") for event in summary if event not in deltas] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    assert "".join(event.delta for event in deltas) == summary[-3].text == summary[-2].part.text == "First I add."
    assert {event.summary_index for event in summary[1:-1]} == {0}
    assert {event.item_id for event in summary[1:-1]} == {summary[0].item.id} == {summary[-1].item.id}
    assert (summary[0].item.summary, summary[0].item.status) == ([], "in_progress")
    assert [event.sequence_number for event in events] == list(range(len(events)))
    # Each event is of the type that the client knows by its name, with no field missing.
    assert [type(event).model_validate(event.model_dump()) for event in events] == events
    assert items_of(events[-1].response) == ["(First I add.)", "Four."]


async def test_the_clients_own_accumulator_accepts_a_summary(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, ScriptedResponse("Four.", reasoning="I add.")) as (_, _, client), deadline():
        async with client.responses.stream(model="exuvia", input="2 + 2?", reasoning=SUMMARY) as events:
            async for _ in events:
                pass
        final = await events.get_final_response()
    assert items_of(final) == ["(I add.)", "Four."]


async def test_reasoning_that_is_sent_back_is_accepted_and_not_sent_on(tmp_path: Path) -> None:
    """Clients without `previous_response_id`, such as Codex, send all items again."""
    says = (ScriptedResponse("Four.", reasoning="I add."), ScriptedResponse("Eight."))
    async with vendor_behind(tmp_path, *says) as (_, server, client):
        first = await client.responses.create(model="exuvia", input="2 + 2?", reasoning=SUMMARY)
        foreign: Any = {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "gAAAA"}
        sent = [{"role": "user", "content": "2 + 2?"}, *(item.model_dump() for item in first.output), foreign]
        whole = [*sent, {"role": "user", "content": "Twice?"}]
        include = ["reasoning.encrypted_content"]
        await client.responses.create(model="exuvia", input=whole, reasoning=SUMMARY, include=include, store=False)
    assert [message["content"] for message in server.requests[1]["messages"]] == ["2 + 2?", "Four.", "Twice?"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_of_several_replies_has_items_in_their_order(tmp_path: Path, stream: bool) -> None:
    async with gateway(tmp_path, script=TURN) as g, client_of(g) as client, deadline():
        answer = await client.responses.create(
            model="exuvia", input="Files?", conversation="main", reasoning=SUMMARY, stream=stream
        )
        response = [event async for event in answer][-1].response if stream else answer
    assert response.output_text == "I look.\n\nIt is empty."
    if stream:
        assert items_of(response) == ["(What is there?)", "I look.", "(No files.)", "\n\nIt is empty."]
    else:
        assert items_of(response) == ["(What is there?\n\nNo files.)", "I look.\n\nIt is empty."]
