"""Reasoning that a model was given over the Responses API comes back to it, exactly where it stood, and to nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.providers.openai.responses_reply import MAX_LENGTH
from plugins.support.errors import BadRequest
from plugins.testing.servers.faulty_server import RawResponse
from plugins.testing.servers.openai_server import OpenAIServer
from plugins.testing.servers.openai_server import ScriptedResponse as SaysInChat
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from tests.plugins.provider_harness import as_messages
from tests.plugins.responses_harness import BODY, CALL, SECOND, THOUGHT, asked, asks, provider
from tests.servers.openai_responses_server import (
    ResponsesServer,
    Says,
    event,
    items_of,
    response_to,
)


@pytest.mark.parametrize(
    "parts",
    [
        [THOUGHT, CALL],
        [THOUGHT, THOUGHT, CALL, CALL],
        [THOUGHT, {"type": "message", "text": "I look.", "phase": "commentary"}, THOUGHT, CALL, THOUGHT, CALL],
        [CALL, {"type": "message", "text": "behind"}, THOUGHT, CALL],
        [THOUGHT, {"type": "message", "text": "Hm."}, {"type": "message", "text": "Yes.", "phase": "final_answer"}],
        [THOUGHT, {"type": "message", "text": ""}, CALL],
        [{**THOUGHT, "summary": None, "content": [{"type": "reasoning_text", "text": "Hm."}], "status": "completed"}, CALL],
    ],
)
async def test_reasoning_is_sent_back_in_place(parts: list[dict[str, Any]]) -> None:
    async with asked(Says(parts=parts), Says("done")) as (client, server):
        reply = await client.ask(asks(UserMessage(text="go")))
        await client.ask(asks(UserMessage(text="go"), *as_messages(reply), UserMessage(text="and?")))
        came = items_of(BODY, Says(parts=parts))
        back = [i for i in server.requests[1]["input"] if i["type" if "type" in i else "role"] != "function_call_output"]
        assert [_told(item) for item in back[1:-1]] == [_told(item) for item in came]
        assert server.refusals == []


def _told(item: dict[str, Any]) -> list[Any]:
    if item.get("type") == "reasoning":
        return [item["encrypted_content"]]
    if "role" in item:
        content = item["content"]
        return [content if isinstance(content, str) else content[0]["text"], item.get("phase")]
    return [item["name"], item["arguments"]]


async def test_messages_of_one_reply_are_paragraphs_and_are_sent_back_separately() -> None:
    parts = [{"type": "message", "text": "I look.", "phase": "commentary"}, {"type": "message", "text": "It is."}]
    async with asked(Says(parts=parts)) as (client, server):
        reply = await client.ask()
        assert reply.text == "I look.\n\nIt is." == "".join(client.deltas)
        await client.ask(asks(*as_messages(reply), UserMessage(text="and?")))
        assert server.requests[1]["input"][:2] == [
            {"role": "assistant", "content": "I look.", "phase": "commentary"},
            {"role": "assistant", "content": "It is."},
        ]


@pytest.mark.parametrize("incomplete", ["max_output_tokens", "content_filter"])
async def test_reasoning_that_led_to_nothing_is_not_kept(incomplete: str) -> None:
    cut = {**CALL, "arguments": '{"pa'}
    async with asked(Says(parts=[THOUGHT, cut], incomplete=incomplete), Says("done")) as (client, server):
        reply = await client.ask()
        assert (reply.calls, reply.opaque) == ((), None)
        await client.ask(asks(UserMessage(text="go"), *as_messages(reply), UserMessage(text="and?")))
        assert server.refusals == []


async def test_reasoning_that_is_too_long_for_the_journal_is_not_kept() -> None:
    for size, kept in ((MAX_LENGTH // 2, True), (MAX_LENGTH, False)):
        async with asked(Says(parts=[{**THOUGHT, "encrypted_content": "g" * size}, CALL])) as (client, _):
            assert bool((await client.ask()).opaque) is kept


async def test_reasoning_is_sent_to_no_other_model_and_over_no_other_protocol() -> None:
    async with asked(Says("", ("read", "{}"), thoughts=True), Says("done")) as (client, server):
        messages = (UserMessage(text="go"), *as_messages(await client.ask(asks(UserMessage(text="go")))))
        for model in ("gpt-other", "gpt-4.1"):
            await client.ask(asks(*messages, model=model))
            assert [item.get("type") for item in server.requests[-1]["input"]] == [
                None,
                "function_call",
                "function_call_output",
            ]
        assert server.refusals == []
    async with OpenAIServer(SaysInChat("ok")).serving() as chat, provider(chat.url) as client:
        await client.ask(asks(*messages))
        assert "gAAAA" not in json.dumps(chat.requests)


@pytest.mark.parametrize(
    "opaque", ["gemini:[]", "anthropic:[1]", "openai.responses:", "openai.responses:{}", "openai.responses:["]
)
async def test_a_conversation_of_another_provider_can_be_continued(opaque: str) -> None:
    began = AssistantMessage(
        text="Hello.", calls=(ToolCall(id="call_2_0", tool="odd name!", arguments="{broken"),), opaque=opaque
    )
    failed_ = ToolMessage(id="call_2_0", tool="odd name!", text="", failed=True)
    empty = AssistantMessage(text="", calls=(ToolCall(id="call_5_0", tool="read", arguments=""),))
    result = ToolMessage(id="call_5_0", tool="read", text="nothing")
    messages = (UserMessage(text="go"), began, failed_, AssistantMessage(text=""), empty, result)
    async with asked(Says("on")) as (client, server):
        assert (await client.ask(asks(*messages, session="s" * 99))).text == "on"
        assert server.requests[0]["input"][2:] == [
            {"type": "function_call", "call_id": "call_2_0", "name": "odd_name_", "arguments": "{broken"},
            {"type": "function_call_output", "call_id": "call_2_0", "output": ""},
            {"type": "function_call", "call_id": "call_5_0", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_5_0", "output": "nothing"},
        ]


async def test_reasoning_that_does_not_match_its_message_is_left_out() -> None:
    async with asked(Says("Hello there.", thoughts=True)) as (client, server):
        reply = await client.ask()
        await client.ask(asks(AssistantMessage(text="Hello", opaque=reply.opaque), UserMessage(text="go")))
        assert "gAAAA" not in json.dumps(server.requests[1])


async def test_unreadable_reasoning_is_left_out_from_then_on_and_newer_is_not() -> None:
    async with ResponsesServer(Says("", ("read", "{}"), thoughts=True)).serving() as server:
        async with provider(server.url, api="responses") as before:
            messages: tuple[Message, ...] = (UserMessage(text="go"),)
            messages += as_messages(await before.ask(asks(*messages)), 1)
        async with provider(server.url, api="responses", key=SECOND) as client:
            messages += as_messages(await client.ask(asks(*messages)), 2)
            await client.ask(asks(*messages))
        assert [wrong.code for wrong in server.refusals] == ["invalid_encrypted_content"]
        assert len(server.requests) == 4
        kinds = [item.get("type", "message") for item in server.requests[-1]["input"]]
        round_ = ["function_call", "function_call_output"]
        assert kinds == ["message", *round_, "reasoning", *round_]


async def test_reasoning_that_is_refused_inside_the_stream_is_left_out() -> None:
    broke: dict[str, Any] = {
        "code": "invalid_encrypted_content",
        "message": "The encrypted content gAAA… could not be verified.",
    }
    failed = {**response_to(BODY), "status": "failed", "error": broke}
    for end in (event("response.failed", response=failed), event("error", **broke), event("error", error=broke)):
        async with asked(Says("Hello.", thoughts=True), RawResponse(end), Says("done")) as (client, server):
            messages = as_messages(await client.ask())
            assert (await client.ask(asks(*messages, UserMessage(text="go")))).text == "done"
            assert ["gAAAA" in json.dumps(sent) for sent in server.requests] == [False, True, False]
        said = event("response.output_text.delta", output_index=0, delta="Hel")
        async with asked(Says("Hello.", thoughts=True), RawResponse(said + end), Says("done")) as (client, server):
            messages = as_messages(await client.ask())
            with pytest.raises(BadRequest, match="could not be verified"):  # what was said cannot be taken back
                await client.ask(asks(*messages, UserMessage(text="go")))
        async with asked(RawResponse(end)) as (client, server):  # without anything to leave out it is a refusal
            with pytest.raises(BadRequest, match="could not be verified"):
                await client.ask()
            assert len(server.requests) == 1
