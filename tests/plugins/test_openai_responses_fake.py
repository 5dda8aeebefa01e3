"""The fake of the Responses API itself: it refuses what the service refuses, and OpenAI's own client can talk to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plugins.support.errors import BadRequest
from sessions.events.messages import Attachment, UserMessage
from tests.plugins.provider_harness import READ, as_messages
from tests.plugins.responses_harness import BODY, CALL, FIRST, THOUGHT, asked, asks
from tests.servers.openai_responses_rules import what_is_wrong
from tests.servers.openai_responses_server import (
    ResponsesServer,
    Says,
    events_of,
    items_of,
    response_to,
)
from tests.waiting import DEADLINE

USER = {"role": "user", "content": "hi"}
MADE = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}
GIVEN = {"type": "function_call_output", "call_id": "c", "output": ""}
USED = {
    "input_tokens": 2,
    "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 1},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 4,
}
BARE = {"type": "reasoning", "id": "rs_1", "summary": []}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"frequency_penalty": 1}, "Unknown parameter: 'frequency_penalty'"),
        ({"max_tokens": 5}, "has moved to 'max_output_tokens'"),
        ({"max_output_tokens": 5}, "integer below minimum value"),
        ({"temperature": 1}, "'temperature' is not supported with this model"),
        ({"include": ["all"]}, "Invalid value: 'all'"),
        ({"tools": [{"type": "function", "function": {}}]}, r"Missing required parameter: 'tools\[0\].name'"),
        ({"tools": [{"type": "function", "name": "a b", "parameters": {}, "strict": False}]}, "does not match pattern"),
        ({"tools": [{"type": "function", "name": "a", "parameters": {}}]}, "Invalid schema for function 'a'"),
        ({"input": []}, "Missing required parameter: 'input'"),
        ({"input": [{"role": "tool", "content": ""}]}, "Invalid value: 'tool'"),
        ({"input": [{"role": "assistant", "content": [{"type": "input_text"}]}]}, "Invalid value: 'input_text'"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "base64-encoded data URL"),
        ({"input": [{"type": "tool_result"}]}, "Invalid value: 'tool_result'"),
        ({"input": [{**MADE, "arguments": {}}, GIVEN]}, "expected a string, but got an object"),
        ({"input": [{**MADE, "id": "call_1"}, GIVEN]}, "begins with 'fc'"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, r"Missing required parameter: 'input\[0\].name'"),
        ({"input": [{**MADE, "call_id": "c" * 65}]}, "maximum length 64"),
        ({"input": [GIVEN]}, "No tool call found for function call output with call_id c"),
        ({"input": [GIVEN, MADE]}, "No tool call found"),
        ({"input": [MADE, USER]}, "No tool output found for function call c"),
        ({"input": [MADE, MADE, GIVEN]}, "Duplicate item found with id c"),
        ({"input": [MADE, GIVEN, GIVEN]}, "Duplicate item found with id c"),
        ({"input": [{**BARE, "status": "completed"}]}, r"Unknown parameter: 'input\[0\].status'"),
        ({"input": [{**BARE, "content": [{"type": "reasoning_text"}]}]}, "maximum length 0"),
        ({"input": [BARE]}, "Item with id 'rs_1' not found"),
        ({"input": [{**BARE, "encrypted_content": "gAAAA"}]}, "could not be verified"),
        ({"model": "gpt-4.1", "input": [BARE]}, "Reasoning input items can only be provided to a reasoning"),
    ],
)
def test_the_fake_refuses_what_the_service_refuses(changes: dict[str, Any], words: str) -> None:
    wrong = what_is_wrong({"model": "gpt-test", "input": [USER], **changes}, "org-one")
    assert wrong is not None
    with pytest.raises(BadRequest, match=words):
        raise BadRequest(wrong.message)


def test_the_fake_refuses_reasoning_before_another_item_than_its_own() -> None:
    thought, call = items_of(BODY, Says(parts=[THOUGHT, CALL]))
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": ""}

    def words(*items: dict[str, Any], organization: str = "org-one", model: str = "gpt-test") -> str:
        wrong = what_is_wrong({"model": model, "input": [*items]}, organization)
        return wrong.message if wrong else ""

    assert words(thought, call, output) == ""
    assert "without its required following item" in words(call, output, thought)
    assert "without its required following item" in words(call, thought, output)
    assert "without its required following item" in words(thought, USER, call, output)
    assert "Duplicate item" in words(thought, thought, call, output)
    assert "could not be verified" in words(thought, call, output, organization="org-two")
    assert "could not be verified" in words(thought, call, output, model="gpt-other")


async def test_the_official_client_understands_the_fake_which_says_nothing_that_it_does_not_know() -> None:
    openai = pytest.importorskip("openai", reason="the client of OpenAI is in the extra `wire`")
    pydantic, types = pytest.importorskip("pydantic"), pytest.importorskip("openai.types.responses")
    look = Says(parts=[THOUGHT, {"type": "message", "text": "I look.", "phase": "commentary"}, CALL])
    no = Says(parts=[{"type": "message", "refusal": "I will not."}], incomplete="max_output_tokens")
    tools = [{"type": "function", **msgspec.to_builtins(READ), "strict": False}]
    options = {"model": "gpt-test", "tools": tools, "store": False, "include": ["reasoning.encrypted_content"]}
    said: list[Any] = [{"role": "user", "content": "go"}]
    async with (
        ResponsesServer(look, no).serving() as server,
        openai.AsyncOpenAI(api_key=FIRST, base_url=server.url, max_retries=0, timeout=DEADLINE) as client,
    ):
        stream = await client.responses.create(input=said, stream=True, **options)
        first = [told async for told in stream][-1].response
        assert (first.output_text, first.output[2].arguments, first.status) == ("I look.", "{}", "completed")
        said += [item.to_dict() for item in first.output]
        said += [{"type": "function_call_output", "call_id": first.output[2].call_id, "output": "text"}]
        stream = await client.responses.create(input=said, stream=True, **options)
        assert [told async for told in stream][-1].response.incomplete_details.reason == "max_output_tokens"
        assert server.refusals == []
        with pytest.raises(openai.BadRequestError, match="No tool output found") as raised:
            await client.responses.create(input=said[:-1], stream=True, **options)
        assert raised.value.param == "input"
    known = pydantic.TypeAdapter(types.ResponseStreamEvent)
    for sent_ in (piece for says in (look, no) for piece in events_of(response_to(BODY), items_of(BODY, says), "", USED)):
        told = known.validate_json(sent_.partition(b"data: ")[2])
        assert set(told.model_extra or ()) <= {"obfuscation"}


async def test_what_is_sent_is_what_the_official_client_may_send() -> None:
    pydantic = pytest.importorskip("pydantic", reason="the client of OpenAI is in the extra `wire`")
    params = pytest.importorskip("openai.types.responses.response_create_params").ResponseCreateParamsStreaming
    picture = UserMessage(text="go", attachments=(Attachment(sha256="a", media="image/png", bytes=3),))
    async with asked(Says("Hm.", ("read", "{}"), thoughts=True), effort="low", max_output_tokens=99) as (client, server):
        messages = (picture, *as_messages(await client.ask(asks(picture))))
        await client.ask(asks(*messages, pictures={"a": b"aW1n"}))
    sent_ = server.requests[1]
    allowed = pydantic.TypeAdapter(params).validate_python(sent_)
    assert allowed.keys() == sent_.keys()
    for given, item in zip(sent_["input"], allowed["input"], strict=True):
        assert item.keys() == given.keys()
