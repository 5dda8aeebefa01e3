"""OpenAI's own client, unchanged but for its address and key, at the gateway: everything that it does there."""

from __future__ import annotations

import itertools
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import openai
import pytest

from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import ScriptedResponse, refusal
from tests.gateway.gateways import gateway
from tests.openai_api.asking import MODEL, SAID, TOOLS, client_of, vendor_behind
from tests.pictures import png


async def test_it_chats(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, ScriptedResponse("Good morning.")) as (g, server, client):
        messages: list[Any] = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "you."}]},
            {"role": "assistant", "content": "Yes?"},
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "Go on."},
        ]
        answer = await client.chat.completions.create(
            model="exuvia", messages=messages, temperature=0.5, top_p=0.9, max_tokens=50, seed=7, stop="END"
        )
        journals = g.journals()
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "Good morning.", "stop")
    assert (answer.object, answer.model) == ("chat.completion", MODEL)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2
    (asked,) = server.requests
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "Hello\nyou."},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Go on."},
    ]
    given = {name: asked[name] for name in ("temperature", "top_p", "max_tokens", "seed", "stop")}
    assert given == {"temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "seed": 7, "stop": ["END"]}
    assert journals == {}, "nothing of it is kept"


async def test_it_streams_with_usage_on_request(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, ScriptedResponse("one two three")) as (_, _, client):
        for options in ({}, {"stream_options": {"include_usage": True}}):
            stream = await client.chat.completions.create(model="exuvia", messages=SAID, stream=True, **options)
            chunks = [chunk async for chunk in stream]
            deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
            assert [delta.content for delta in deltas] == ["one ", "two ", "three", None]
            assert [delta.role for delta in deltas] == ["assistant", None, None, None]
            assert {(chunk.id, chunk.model, chunk.created) for chunk in chunks} == {(chunks[0].id, MODEL, chunks[0].created)}
            told = [chunk.usage.completion_tokens for chunk in chunks if chunk.usage]
            assert told == ([3] if options else [])
            assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"


async def test_it_uses_its_own_tools(tmp_path: Path) -> None:
    calls = [("weather", '{"city": "Linz"}'), ("weather", '{"city": "Graz"}')]
    async with vendor_behind(tmp_path, ScriptedResponse("I look.", *calls), ScriptedResponse("Rain.")) as (
        _,
        server,
        client,
    ):
        messages = list(SAID)
        async with client.chat.completions.stream(model="exuvia", messages=messages, tools=TOOLS) as events:
            choice = (await events.get_final_completion()).choices[0]
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look.")
        called = choice.message.tool_calls or []
        assert [json.loads(call.function.arguments) for call in called] == [{"city": "Linz"}, {"city": "Graz"}]
        messages.append(choice.message.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "wet"} for call in called]
        answer = await client.chat.completions.create(model="exuvia", messages=messages, tools=TOOLS)
        assert answer.choices[0].message.content == "Rain."
    first, second = server.requests
    assert first["tools"] == TOOLS
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in second["messages"][1]["tool_calls"]] == [call.id for call in called]


async def test_it_chooses_a_tool(tmp_path: Path) -> None:
    named = {"type": "function", "function": {"name": "weather"}}
    async with vendor_behind(tmp_path, ScriptedResponse("", ("weather", "{}"), ("weather", "{}"))) as (_, server, client):
        for choice in ("auto", "required", named):
            answer = await client.chat.completions.create(
                model="exuvia", messages=SAID, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False
            )
            assert len(answer.choices[0].message.tool_calls) == 1, "even of a service that made two"
            assert answer.choices[0].message.content is None
    assert [asked.get("tool_choice") for asked in server.requests] == [None, "required", named]
    assert [asked["parallel_tool_calls"] for asked in server.requests] == [False] * 3


async def test_tool_choice_none_offers_no_tools(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, ScriptedResponse("No.")) as (_, server, client):
        await client.chat.completions.create(model="exuvia", messages=SAID, tools=TOOLS, tool_choice="none")
    assert "tools" not in server.requests[0]


async def test_it_sends_a_picture(tmp_path: Path) -> None:
    url = f"data:image/png;base64,{b64encode(png(8, 8)).decode()}"
    picture = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    content: list[Any] = [{"type": "text", "text": "What?"}, picture]
    async with vendor_behind(tmp_path, ScriptedResponse("Grey.")) as (_, server, client):
        answer = await client.chat.completions.create(model="exuvia", messages=[{"role": "user", "content": content}])
    assert answer.choices[0].message.content == "Grey."
    assert server.requests[0]["messages"][-1]["content"] == [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "What?"},
    ]


async def test_it_asks_for_json(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema, "strict": True}}
    async with vendor_behind(tmp_path, ScriptedResponse('{"n": 1}')) as (_, server, client):
        await client.chat.completions.create(model="exuvia", messages=SAID, response_format=wanted)
        await client.chat.completions.create(model="exuvia", messages=SAID, response_format={"type": "json_object"})
        await client.chat.completions.create(model="exuvia", messages=SAID, response_format={"type": "text"})
    assert [asked.get("response_format") for asked in server.requests] == [wanted, {"type": "json_object"}, None]


async def test_it_lists_the_models_and_uses_any(tmp_path: Path) -> None:
    settings = {"agent.fallback_models": ["scripted:echo"]}
    async with vendor_behind(tmp_path, ScriptedResponse("Hi."), settings=settings) as (_, _, client):
        names = [model.id async for model in client.models.list()]
        assert names[:3] == ["exuvia", MODEL, "scripted:echo"]
        assert names.count(MODEL) == 1
        assert (await client.models.retrieve("scripted:echo")).id == "scripted:echo"
        for name, said in (("scripted:echo", "Hello?"), ("echo", "Hello?"), ("gpt-test", "Hi."), ("auto", "Hi.")):
            answer = await client.chat.completions.create(model=name, messages=SAID)
            assert (name, answer.choices[0].message.content) == (name, said)
        for ask in (client.models.retrieve("nobody:x"), client.chat.completions.create(model="gpt-9", messages=SAID)):
            with pytest.raises(openai.NotFoundError, match="There is no model") as caught:
                await ask
            assert caught.value.code == "model_not_found"


async def test_it_lists_the_providers_models_and_accepts_their_names(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, ScriptedResponse("Hi.")) as (_, server, client):
        server.models = {"gpt-test": {}, "gpt-other": {}, "org/model:free": {}}
        names = [model.id async for model in client.models.list()]
        assert {"openai:gpt-other", "openai:org/model:free"} < set(names)
        for name in ("gpt-other", "org/model:free"):
            assert (await client.models.retrieve(name)).id == f"openai:{name}"
            answer = await client.chat.completions.create(model=name, messages=SAID)
            assert answer.model == f"openai:{name}"
        assert len(server.asked_lists) == 1, "it is known for a while"


async def test_a_provider_without_a_list_is_left_out(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, ScriptedResponse("Hi.")) as (_, server, client):
        server.instead_of_list = Fault(status=404)
        assert [model.id async for model in client.models.list()][:2] == ["exuvia", MODEL]
        assert (await client.chat.completions.create(model="gpt-test", messages=SAID)).model == MODEL


REFUSALS: list[tuple[Fault, type[openai.APIStatusError], str]] = [
    (
        Fault(status=429, headers={"Retry-After": "40"}, body=refusal("Slow down.", "rate_limit_exceeded")),
        openai.RateLimitError,
        "rate_limit_exceeded",
    ),
    (Fault(status=401, body=refusal("No.", "invalid_api_key")), openai.InternalServerError, "credentials_refused"),
    (Fault(status=404, body=refusal("None.", "model_not_found")), openai.NotFoundError, "model_not_found"),
    (
        Fault(status=400, body=refusal("Too long.", "context_length_exceeded")),
        openai.BadRequestError,
        "context_length_exceeded",
    ),
    (Fault(status=400, body=refusal("Strange.", None)), openai.BadRequestError, "bad_request"),
]
"""Of what a vendor says: the error that OpenAI's client makes of our answer, and its code."""


async def test_vendor_errors_become_the_clients_exceptions(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path) as (_, server, client):
        for (fault, known, code), stream in itertools.product(REFUSALS, (False, True)):
            server.now_says(fault)
            with pytest.raises(known) as caught:
                await client.chat.completions.create(model="exuvia", messages=SAID, stream=stream)
            assert caught.value.code == code
            assert caught.value.response.headers.get("Retry-After") == fault.headers.get("Retry-After")


async def test_a_cut_stream_raises_and_keeps_the_received_text(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, Fault(end="cut", pieces=3)) as (_, server, client):
        stream = await client.chat.completions.create(model="exuvia", messages=SAID, stream=True)
        assert [(await anext(stream)).choices[0].delta.content for _ in range(2)] == ["one ", "two "]
        with pytest.raises(openai.APIError, match="interrupted"):
            await anext(stream)
        assert len(server.requests) == 1, "what was heard is not said again"


async def test_a_wrong_token_is_an_authentication_error(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, client_of(g, token="wrong") as client:
        with pytest.raises(openai.AuthenticationError, match="Invalid token") as caught:
            await client.models.list()
        assert (caught.value.code, caught.value.type) == ("invalid_api_key", "invalid_request_error")
        assert caught.value.response.headers["WWW-Authenticate"] == "Bearer"
