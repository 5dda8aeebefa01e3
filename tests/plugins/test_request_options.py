"""Options of a request in each service's format; unsupported ones are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plugins.api.chat import RequestOptions, ResponseFormat
from plugins.support.errors import BadRequest
from tests.plugins.provider_harness import READ, question
from tests.plugins.vendors import ANTHROPIC, GEMINI, OLLAMA, OPENAI, RESPONSES, Vendor

THOUGHTS = {"thinkingConfig": {"includeThoughts": True}}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
FORM = ResponseFormat(name="number", schema=SCHEMA, strict=True)
PARAMETERS: dict[str, Any] = {
    "max_tokens": 50,
    "stop": ["END"],
    "seed": 7,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
}


async def sent(vendor: Vendor, request_options: RequestOptions, *names: str, **parameters: Any) -> dict[str, Any]:
    """What the service is sent under these names; it accepts the request."""
    request = msgspec.structs.replace(question(model=vendor.model, tools=(READ,), **parameters), options=request_options)
    async with vendor.serving(vendor.says("done")) as (client, server):
        assert (await client.ask(request)).text == "done"
    (body,) = server.requests
    return {name: body[name] for name in names if name in body}


@pytest.mark.parametrize(
    ("vendor", "expected"),
    [
        (OPENAI, {**PARAMETERS}),
        (RESPONSES, {"max_output_tokens": 50}),
        (ANTHROPIC, {"max_tokens": 50, "stop_sequences": ["END"]}),
        (
            GEMINI,
            {
                "generationConfig": {
                    **THOUGHTS,
                    "maxOutputTokens": 50,
                    "stopSequences": ["END"],
                    "seed": 7,
                    "presencePenalty": 0.5,
                    "frequencyPenalty": -0.5,
                }
            },
        ),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
async def test_each_service_gets_its_parameters_under_its_own_names(vendor: Vendor, expected: Any) -> None:
    names = {*expected, *PARAMETERS, "max_output_tokens", "stop_sequences"}
    assert await sent(vendor, RequestOptions(), *names, **PARAMETERS) == expected


async def test_ollama_gets_parameters_as_options() -> None:
    options = (await sent(OLLAMA, RequestOptions(), "options", **PARAMETERS))["options"]
    assert {name: options[name] for name in ("num_predict", "stop", "seed")} == {
        "num_predict": 50,
        "stop": ["END"],
        "seed": 7,
    }


@pytest.mark.parametrize(
    ("vendor", "some", "named"),
    [
        (
            OPENAI,
            {"tool_choice": "required"},
            {"tool_choice": {"type": "function", "function": {"name": "read"}}, "parallel_tool_calls": False},
        ),
        (
            RESPONSES,
            {"tool_choice": "required"},
            {"tool_choice": {"type": "function", "name": "read"}, "parallel_tool_calls": False},
        ),
        (
            ANTHROPIC,
            {"tool_choice": {"type": "any"}},
            {"tool_choice": {"type": "tool", "name": "read", "disable_parallel_tool_use": True}},
        ),
        (
            GEMINI,
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}}},
        ),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
async def test_each_service_can_be_required_to_call_a_tool(vendor: Vendor, some: Any, named: Any) -> None:
    names = ("tool_choice", "parallel_tool_calls", "toolConfig")
    assert await sent(vendor, RequestOptions(require_tool=True), *names) == some
    assert await sent(vendor, RequestOptions(require_tool=True, tool="read", single_tool_call=True), *names) == named
    assert await sent(vendor, RequestOptions(), *names) == {}


@pytest.mark.parametrize(
    ("vendor", "expected"),
    [
        (
            OPENAI,
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "number", "schema": SCHEMA, "strict": True},
                }
            },
        ),
        (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "number", "schema": SCHEMA, "strict": True}}}),
        (ANTHROPIC, {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
        (GEMINI, {"generationConfig": THOUGHTS | {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}}),
        (OLLAMA, {"format": SCHEMA}),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
async def test_each_service_gets_the_schema_of_a_reply(vendor: Vendor, expected: Any) -> None:
    assert await sent(vendor, RequestOptions(response_format=FORM), *expected) == expected


@pytest.mark.parametrize(
    ("vendor", "expected"),
    [
        (OPENAI, {"response_format": {"type": "json_object"}}),
        (RESPONSES, {"text": {"format": {"type": "json_object"}}}),
        (GEMINI, {"generationConfig": THOUGHTS | {"responseMimeType": "application/json"}}),
        (OLLAMA, {"format": "json"}),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
async def test_each_service_can_be_asked_for_json(vendor: Vendor, expected: Any) -> None:
    assert await sent(vendor, RequestOptions(response_format=ResponseFormat()), *expected) == expected


@pytest.mark.parametrize(
    ("vendor", "request_options"),
    [(ANTHROPIC, RequestOptions(response_format=ResponseFormat())), (OLLAMA, RequestOptions(require_tool=True))],
    ids=["schema", "call"],
)
async def test_unsupported_options_are_refused_before_the_request(vendor: Vendor, request_options: RequestOptions) -> None:
    request = msgspec.structs.replace(question(model=vendor.model, tools=(READ,)), options=request_options)
    async with vendor.serving(vendor.says("done")) as (client, server):
        with pytest.raises(BadRequest):
            await client.ask(request)
    assert server.requests == []
