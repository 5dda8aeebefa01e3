"""The Responses API, as OpenAI's own client uses it."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import openai
import pytest

from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import ScriptedResponse
from tests.gateway.gateways import TOKEN, gateway
from tests.openai_api.asking import MODEL, SCHEMA, client_of, vendor_behind
from tests.pictures import png

TOOL: Any = {"type": "function", "name": "weather", "description": "Tells it.", "parameters": SCHEMA, "strict": False}
MAIN = {"X-Exuvia-Session": "main"}


def stored(home: Path) -> list[dict[str, Any]]:
    """The events of the log of responses."""
    path = home / "responses.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# --- without a session ------------------------------------------------------------------------------------------------


async def test_a_response_and_its_continuation(tmp_path: Path) -> None:
    answers = (ScriptedResponse("Blue."), ScriptedResponse("Because."))
    async with vendor_behind(tmp_path, *answers) as (g, server, client):
        first = await client.responses.create(
            model="exuvia", instructions="Be brief.", input="Which colour?", temperature=0.5, max_output_tokens=50
        )
        second = await client.responses.create(model="exuvia", input="Why?", previous_response_id=first.id)
        found = await client.responses.retrieve(first.id)
        assert g.journals() == {}, "it is no conversation of the assistant"
    assert (first.output_text, first.status, first.model, first.store) == ("Blue.", "completed", MODEL, True)
    assert (first.usage.output_tokens, first.usage.total_tokens) == (1, first.usage.input_tokens + 1)
    assert (second.output_text, second.previous_response_id) == ("Because.", first.id)
    assert found == first
    asked = server.requests
    assert asked[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Which colour?"},
    ]
    assert (asked[0]["temperature"], asked[0]["max_tokens"]) == (0.5, 50)
    assert asked[1]["messages"] == [
        {"role": "user", "content": "Which colour?"},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": "Why?"},
    ], "instructions are not carried over"


async def test_a_stream_has_the_events_of_the_vendor(tmp_path: Path) -> None:
    answer = ScriptedResponse("one two", ("weather", '{"city": "Linz"}'))
    async with vendor_behind(tmp_path, answer) as (_, _, client):
        stream = await client.responses.create(model="exuvia", input="Hello?", tools=[TOOL], stream=True)
        events = [event async for event in stream]
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    response = events[-1].response
    assert {event.response.id for event in events if hasattr(event, "response")} == {response.id}
    assert response.output_text == "one two"
    call = response.output[1]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "weather", {"city": "Linz"})


async def test_the_clients_own_accumulator_accepts_the_stream(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, ScriptedResponse("one two three")) as (_, _, client):
        async with client.responses.stream(model="exuvia", input="Hello?") as events:
            deltas = [event.delta async for event in events if event.type == "response.output_text.delta"]
        final = await events.get_final_response()
    assert deltas == ["one ", "two ", "three"]
    assert final.output_text == "one two three"


@pytest.mark.parametrize("by_id", [True, False])
async def test_the_client_runs_its_tools(by_id: bool, tmp_path: Path) -> None:
    calls = [("weather", '{"city": "Linz"}'), ("weather", '{"city": "Graz"}')]
    answers = (ScriptedResponse("I look.", *calls), ScriptedResponse("Rain."))
    async with vendor_behind(tmp_path, *answers) as (_, server, client):
        first = await client.responses.create(model="exuvia", input="Weather?", tools=[TOOL])
        called = [item for item in first.output if item.type == "function_call"]
        results: list[Any] = [{"type": "function_call_output", "call_id": call.call_id, "output": "wet"} for call in called]
        if by_id:
            second = await client.responses.create(
                model="exuvia", input=results, tools=[TOOL], previous_response_id=first.id
            )
        else:
            whole = [{"role": "user", "content": "Weather?"}, *(item.model_dump() for item in first.output), *results]
            second = await client.responses.create(model="exuvia", input=whole, tools=[TOOL])
    assert second.output_text == "Rain."
    roles = [message["role"] for message in server.requests[1]["messages"]]
    assert roles == ["user", "assistant", "tool", "tool"]
    assert server.requests[1]["messages"][1]["content"] == "I look."
    assert len(server.requests[1]["messages"][1]["tool_calls"]) == 2
    first_event, second_event = stored(tmp_path)
    assert second_event["base"] == first_event["id"], "what is sent again is recognised, and not stored again"
    assert [message["role"] for message in second_event["messages"]] == ["tool", "tool"]


async def test_a_response_outlives_a_restart_and_belongs_to_its_person(tmp_path: Path) -> None:
    token = "anas-token-that-is-long-enough"
    people = f'[people.ana]\ntoken = "{token}"\n[agent]\nmodel = "scripted:echo"\n'
    async with gateway(tmp_path, file=people) as g, client_of(g) as client:
        first = await client.responses.create(model="exuvia", input="Hello?")
        kept_out = await client.responses.create(model="exuvia", input="Not stored.", store=False)
    async with gateway(tmp_path, file=people) as g, client_of(g) as client, client_of(g, token) as ana:
        assert (await client.responses.retrieve(first.id)).output_text == "Hello?"
        again = await client.responses.create(model="exuvia", input="And?", previous_response_id=first.id)
        assert again.output_text == "And?"
        for id_, who in ((first.id, ana), (kept_out.id, client), ("resp_nothing", client)):
            with pytest.raises(openai.NotFoundError, match="There is no stored response"):
                await who.responses.retrieve(id_)
            with pytest.raises(openai.BadRequestError, match="There is no stored response"):
                await who.responses.create(model="exuvia", input="And?", previous_response_id=id_)
    assert "Not stored." not in (tmp_path / "responses.jsonl").read_text()


async def test_pictures_custom_tools_and_namespaces(tmp_path: Path) -> None:
    url = f"data:image/png;base64,{b64encode(png(4, 4)).decode()}"
    content: list[Any] = [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": url}]
    tools: list[Any] = [
        {"type": "custom", "name": "patch", "description": "Applies it."},
        {"type": "namespace", "name": "team", "tools": [{**TOOL, "name": "ask"}]},
        {"type": "web_search"},
    ]
    first_answer = ScriptedResponse("", ("patch", '{"input": "*** Begin"}'), ("team__ask", '{"city": "Linz"}'))
    async with vendor_behind(tmp_path, first_answer, ScriptedResponse("Done.")) as (_, server, client):
        first = await client.responses.create(model="exuvia", input=[{"role": "user", "content": content}], tools=tools)
        custom, named = first.output
        assert (custom.type, custom.name, custom.input) == ("custom_tool_call", "patch", "*** Begin")
        assert (named.type, named.name, named.namespace) == ("function_call", "ask", "team")
        results: list[Any] = [
            {"type": "custom_tool_call_output", "call_id": custom.call_id, "output": "ok"},
            {"type": "function_call_output", "call_id": named.call_id, "output": [{"type": "input_text", "text": "yes"}]},
        ]
        second = await client.responses.create(model="exuvia", input=results, tools=tools, previous_response_id=first.id)
    assert second.output_text == "Done."
    asked = server.requests
    assert [tool["function"]["name"] for tool in asked[0]["tools"]] == ["patch", "team__ask"]
    assert asked[1]["messages"][0]["content"][0]["image_url"]["url"] == url, "the picture was stored with the response"
    assert [call["function"]["name"] for call in asked[1]["messages"][1]["tool_calls"]] == ["patch", "team__ask"]


async def test_a_schema_and_what_cuts_an_answer(tmp_path: Path) -> None:
    answers = (ScriptedResponse('{"city": "Linz"}'), ScriptedResponse("cut", finish="length"))
    async with vendor_behind(tmp_path, *answers) as (_, server, client):
        form: Any = {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}}
        first = await client.responses.create(model="exuvia", input="Where?", text=form)
        second = await client.responses.create(model="exuvia", input="Long?")
    assert server.requests[0]["response_format"]["json_schema"]["name"] == "place"
    assert first.text.format.name == "place"
    assert (second.status, second.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_a_failure_has_its_status_or_ends_the_stream(tmp_path: Path) -> None:
    refused = Fault(status=400, body=b'{"error": {"message": "Too long.", "code": "context_length_exceeded"}}')
    async with vendor_behind(tmp_path, refused, refused) as (_, _, client):
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as caught:
                await client.responses.create(model="exuvia", input="Hello?", stream=stream)
            assert caught.value.code == "context_length_exceeded"
    assert stored(tmp_path) == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"background": True}, "background is not supported"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "items cannot be referred to by id"),
    ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, r"Invalid value 'web_search_call' - at `input\[0\]"),
    ({"input": [{"role": "user"}]}, r"missing required field `content`"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "must be a response to a preceding"),
    ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice names x"),
    ({"tools": [{"type": "function", "name": "no spaces"}]}, "a tool needs a name"),
    ({"extra_body": {"colour": "red"}}, "Unrecognized request argument supplied: colour"),
    ({"conversation": "a b"}, "must be"),
    ({"conversation": "main", "tools": [TOOL]}, "tools cannot be set in a session"),
    ({"conversation": "main", "instructions": "Lie."}, "instructions cannot be set in a session"),
    ({"conversation": "main", "input": [{"role": "user", "content": "a"}] * 2}, "the input is one new user message"),
    ({"previous_response_id": "resp_20261121-031241-7k2m9q_2"}, "There is no stored response"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
async def test_what_cannot_be_done_is_refused_in_one_sentence(
    options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    async with gateway(tmp_path) as g, client_of(g) as client:
        with pytest.raises((openai.BadRequestError, openai.NotFoundError), match=sentence):
            await client.responses.create(**{"model": "exuvia", "input": "Hello?", **options})
        assert g.journals() == {}


# --- in a session -----------------------------------------------------------------------------------------------------


async def test_a_session_is_continued_by_key_and_by_response(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, client_of(g) as client:
        first = await client.responses.create(model="exuvia", input="one", conversation="main")
        second = await client.responses.create(model="exuvia", input="two", previous_response_id=first.id)
        third = await client.responses.create(model="exuvia", input="three", extra_headers=MAIN)
        found = await client.responses.retrieve(second.id)
        (journal,) = g.journals().values()
    assert [answer.output_text for answer in (first, second, third, found)] == ["one", "two", "three", "two"]
    assert first.conversation is not None
    assert (first.conversation.id, found.status, found.id) == ("main", "completed", second.id)
    assert [e["text"] for e in journal if e["kind"] == "message_received"] == ["one", "two", "three"]
    assert stored(tmp_path) == [], "the journal has it"


async def test_an_earlier_response_is_continued_in_a_fork(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, client_of(g) as client:
        first = await client.responses.create(model="exuvia", input="one", conversation="main")
        await client.responses.create(model="exuvia", input="two", conversation="main")
        other = await client.responses.create(model="exuvia", input="three", previous_response_id=first.id)
        journals = g.journals()
    assert other.conversation is not None
    assert other.conversation.id == "main-fork"
    said = [[e["text"] for e in journal if e["kind"] == "message_received"] for _, journal in sorted(journals.items())]
    assert sorted(said) == [["one", "three"], ["one", "two"]]


@pytest.mark.parametrize(
    ("headers", "repeated"),
    [
        ({"Idempotency-Key": "m2"}, {"Idempotency-Key": "m2"}),
        ({}, {"X-Stainless-Retry-Count": "1"}),
    ],
    ids=["own", "client"],
)
async def test_a_repeated_continuation_is_no_fork(headers: dict[str, str], repeated: dict[str, str], tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, client_of(g) as client:
        first = await client.responses.create(model="exuvia", input="one", conversation="main")
        ask: dict[str, Any] = {"model": "exuvia", "input": "two", "previous_response_id": first.id}
        second = await client.responses.create(**ask, extra_headers=headers)
        again = await client.responses.create(**ask, extra_headers=repeated)
        (journal,) = g.journals().values()
    assert (second.output_text, again.id) == ("two", second.id)
    assert [e["text"] for e in journal if e["kind"] == "message_received"] == ["one", "two"]


async def test_a_stream_in_a_session_names_its_response(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, client_of(g) as client:
        stream = await client.responses.create(model="exuvia", input="hello you", conversation="main", stream=True)
        events = [event async for event in stream]
        response = events[-1].response
        assert response.output_text == "hello you"
        assert {event.response.id for event in events if hasattr(event, "response")} == {response.id}
        assert (await client.responses.retrieve(response.id)).output_text == "hello you"
        async with client_of(g, TOKEN) as other:
            again = await other.responses.create(model="exuvia", input="/status", previous_response_id=response.id)
        assert "Compactions" in again.output_text


async def test_a_failed_turn_is_an_error(tmp_path: Path) -> None:
    fault = Fault(status=401, body=b'{"error": {"message": "No.", "code": "invalid_api_key"}}')
    async with vendor_behind(tmp_path, fault) as (_, _, client):
        with pytest.raises(openai.InternalServerError):
            await client.responses.create(model="exuvia", input="Hello", conversation="main")
        stream = await client.responses.create(model="exuvia", input="Hello", conversation="main", stream=True)
        last = [event async for event in stream][-1]
    assert (last.type, last.response.status, last.response.error.code) == ("response.failed", "failed", "server_error")
