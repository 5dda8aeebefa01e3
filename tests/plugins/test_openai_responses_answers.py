"""How answers over the Responses API end and go wrong, and what compatible servers make of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.support.errors import (
    BadAnswer,
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    NoSuchModel,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.testing.servers.faulty_server import Fault, RawResponse
from sessions.events.messages import Usage, UserMessage
from tests.plugins.provider_harness import as_messages
from tests.plugins.responses_harness import BODY, FIRST, THOUGHT, asked, asks
from tests.servers.openai_responses_server import (
    Says,
    event,
    events_of,
    items_of,
    refusal,
    response_to,
)

# --- how an answer ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("incomplete", "arguments", "stop", "count"),
    [
        ("", "{}", "calls", 2),
        ("", "{nonsense", "calls", 2),
        ("max_output_tokens", '{"path": "a', "calls", 1),
        ("max_output_tokens", "{}", "calls", 2),
        ("content_filter", "{}", "refused", 0),
    ],
)
async def test_a_truncated_or_refused_call_is_not_run(incomplete: str, arguments: str, stop: str, count: int) -> None:
    async with asked(Says("", ("read", "{}"), ("read", arguments), incomplete=incomplete)) as (client, _):
        reply = await client.ask()
        assert (len(reply.calls), reply.stop) == (count, stop)


@pytest.mark.parametrize(
    ("incomplete", "stop"),
    [
        ("", "end"),
        ("max_output_tokens", "length"),
        ("max_messages", "length"),
        ("content_filter", "refused"),
        ("brand_new", "length"),
    ],
)
async def test_each_reason_for_an_incomplete_response_is_mapped(incomplete: str, stop: str) -> None:
    async with asked(Says("text", incomplete=incomplete)) as (client, _):
        assert (await client.ask()).stop == stop


async def test_a_refusal_is_shown_and_marked() -> None:
    async with asked(Says(parts=[THOUGHT, {"type": "message", "refusal": "I will not."}])) as (client, server):
        reply = await client.ask()
        assert (reply.text, "".join(client.deltas), reply.stop) == ("I will not.", "I will not.", "refused")
        await client.ask(asks(*as_messages(reply), UserMessage(text="why?")))
        assert server.refusals == []


async def test_nothing_is_awaited_after_the_end_of_the_reply() -> None:
    whole = events_of(response_to(BODY), items_of(BODY, Says("one two")))
    for end in ("reset", "hang"):
        async with asked(Fault(end=end, events=whole), between_seconds=2.0) as (client, _):
            assert (await client.ask()).text == "one two"


# --- what goes wrong --------------------------------------------------------------------------------------------------


def failed(code: str, message: str = "Sorry") -> RawResponse:
    whole = {**response_to(BODY), "status": "failed", "error": {"code": code, "message": message}}
    return RawResponse(event("response.created", response=response_to(BODY)) + event("response.failed", response=whole))


TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."


@pytest.mark.parametrize(
    ("fault", "error", "requests"),
    [
        (Fault(status=400, body=refusal(TOO_LONG, "context_length_exceeded", param="input")), ContextOverflow, 1),
        (Fault(status=400, body=refusal("Your organization must be verified", "unsupported_value")), BadRequest, 1),
        (Fault(status=404, body=refusal("The model does not exist", "model_not_found")), NoSuchModel, 1),
        (Fault(status=429, body=refusal("You exceeded your quota", "insufficient_quota")), RateLimited, 1),
        (Fault(status=503, body=refusal("Slow down", "slow_down", "service_unavailable_error")), Unreachable, 4),
        (failed("server_error"), StreamCut, 1),
        (failed("rate_limit_exceeded"), RateLimited, 1),
        (failed("context_length_exceeded"), ContextOverflow, 1),
        (failed("invalid_prompt"), BadRequest, 1),
        (failed("bio_policy"), BadRequest, 1),
        (failed("image_too_large"), BadRequest, 1),
        (failed("vector_store_timeout"), Unreachable, 1),
        (RawResponse(event("response.failed", response={"status": "failed"})), StreamCut, 1),
        (RawResponse(event("error", code="server_error", message="Sorry", param=None)), StreamCut, 1),
        (RawResponse(event("error", code="context_length_exceeded", message=TOO_LONG)), ContextOverflow, 1),
        (
            RawResponse(event("error", error={"type": "invalid_request_error", "code": "context_length_exceeded"})),
            ContextOverflow,
            1,
        ),
        (RawResponse(event("error", error={"type": "invalid_request_error", "message": TOO_LONG})), ContextOverflow, 1),
        (RawResponse(event("error", code="invalid_api_key", message="no")), CredentialsRefused, 1),
        (RawResponse(event("error")), StreamCut, 1),
        (Fault(body=refusal("Sorry", "server_error")), StreamCut, 1),
        (Fault(body=json.dumps({**response_to(BODY), "status": "cancelled"}).encode()), StreamCut, 1),
        (Fault(body=json.dumps({**response_to(BODY), "status": "queued"}).encode()), StreamCut, 1),
        (Fault(body=b'{"status": 7, "output": 8}'), BadAnswer, 1),
        (RawResponse(b"data: {nonsense}\n\n"), BadAnswer, 1),
        (RawResponse(b"data: [DONE]\n\n"), BadAnswer, 1),
        (RawResponse(event("response.output_item.added", item=[1])), BadAnswer, 1),
    ],
)
async def test_each_failure_has_its_error(fault: Any, error: type[ProviderError], requests: int) -> None:
    async with asked(fault) as (client, server):
        with pytest.raises(error) as raised:
            await client.ask()
        assert FIRST not in str(raised.value)
        assert len(server.requests) == requests


# --- what compatible servers and proxies do ---------------------------------------------------------------------------


def whole_stream(says: Says) -> list[dict[str, Any]]:
    """The events of an answer, as objects."""
    events = events_of(response_to(BODY), items_of(BODY, says))
    return [json.loads(sent.partition(b"data: ")[2]) for sent in events]


def sent(events: list[dict[str, Any]]) -> RawResponse:
    return RawResponse(b"".join(b"data: " + json.dumps(told).encode() + b"\r\n\r\n" for told in events))


def without(*names: str) -> Any:
    return lambda events: [{k: v for k, v in told.items() if k not in names} for told in events]


def only(*ends: str) -> Any:
    return lambda events: [told for told in events if told["type"].endswith(ends)]


def new_ids(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**told, "item_id": f"id{n}"} if "item_id" in told else told for n, told in enumerate(events)]


@pytest.mark.parametrize(
    "oddly",
    [
        without("output_index", "content_index", "sequence_number"),
        without("item_id"),
        new_ids,
        only(".completed"),
        only("_item.done", ".completed"),
        only("_item.added", ".delta", ".completed"),
        only(".delta", ".completed"),
        lambda events: without("output_index")(only(".delta", ".completed")(events)),
        lambda events: [*events[:3], {"type": "brand.new", "delta": {"a": 1}}, *events[3:]],
        lambda events: [{"type": "keepalive"}, {}, *events],
    ],
)
async def test_streams_of_many_kinds_are_understood(oddly: Any) -> None:
    events = whole_stream(Says("two words", ("read", '{"path": "a.md"}'), ("read", "{}"), thoughts=True))
    async with asked(sent(oddly(events))) as (client, _):
        reply = await client.ask()
        assert (reply.text, "".join(client.deltas), reply.stop) == ("two words", "two words", "calls")
        assert [(c.tool, c.arguments) for c in reply.calls] == [("read", '{"path": "a.md"}'), ("read", "{}")]


@pytest.mark.parametrize("oddly", [only(".completed"), only("_item.done", ".completed"), only(".delta", ".completed")])
async def test_each_form_of_a_refusal_is_marked(oddly: Any) -> None:
    events = whole_stream(Says(parts=[{"type": "message", "refusal": "I will not."}]))
    async with asked(sent(oddly(events))) as (client, _):
        reply = await client.ask()
        assert (reply.text, reply.stop) == ("I will not.", "refused")


async def test_text_missing_from_the_deltas_is_added_and_streamed_text_is_kept() -> None:
    for whole, text in (("one two", "one two"), ("1 2", "one")):
        events = whole_stream(Says("one"))
        for told in events:
            if told["type"] == "response.output_item.done":
                told["item"]["content"][0]["text"] = whole
        async with asked(sent(events)) as (client, _):
            assert ((await client.ask()).text, "".join(client.deltas)) == (text, text)


async def test_an_end_with_only_some_of_the_items_removes_none() -> None:
    events = whole_stream(Says("one", ("read", "{}"), thoughts=True))
    events[-1]["response"]["output"] = events[-1]["response"]["output"][:0:-1]
    async with asked(sent(events)) as (client, _):
        reply = await client.ask()
        assert (reply.text, len(reply.calls)) == ("one", 1)
        assert "gAAAA" in str(reply.opaque)


async def test_a_server_that_does_not_stream_is_understood() -> None:
    usage = {"input_tokens": 3, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 2}}
    whole = {**response_to(BODY), "status": "completed", "output": items_of(BODY, Says("hello")), "usage": usage}
    async with asked(Fault(body=json.dumps(whole).encode())) as (client, _):
        reply = await client.ask()
        assert (reply.text, reply.usage) == ("hello", Usage(input=3, output=1, cached=2))


async def test_odd_values_are_understood() -> None:
    call = {"type": "function_call", "id": "fc_1", "name": "read", "arguments": {"path": "x"}}
    events: list[dict[str, Any]] = [
        {"type": "response.output_text.delta", "output_index": 0, "delta": "a\ud800"},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.output_item.done", "output_index": 2, "item": {"type": "function_call", "name": None}},
        {"type": "response.output_item.done", "output_index": 3, "item": {"type": "tool_search_call", "arguments": [1]}},
        {"type": "response.output_item.done", "output_index": 4, "item": {"type": "message", "content": "text"}},
        {"type": "response.completed", "response": {}},
    ]
    async with asked(sent(events)) as (client, _):
        reply = await client.ask()
        assert (reply.text, reply.model, reply.usage, reply.stop) == ("a\ufffd", "gpt-test", None, "calls")
        assert [(c.id, c.arguments) for c in reply.calls] == [("fc_1", '{"path":"x"}')]
