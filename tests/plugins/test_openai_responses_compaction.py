"""Compaction by OpenAI's own service: what it has compacted is left out, as long as it is the one who is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.providers.openai.responses import MIN_THRESHOLD
from plugins.providers.openai.responses_reply import COMPACTED, MAX_LENGTH
from plugins.support.errors import BadRequest
from plugins.testing.servers.faulty_server import Fault
from sessions.events.messages import AssistantMessage, Message, UserMessage
from tests.plugins.provider_harness import as_messages
from tests.plugins.responses_harness import CALL, FIRST, SECOND, THOUGHT, asked, asks, provider
from tests.servers.openai_responses_rules import what_is_wrong
from tests.servers.openai_responses_server import ResponsesServer, Says, refusal

COMPACTION = {"type": "compaction"}
BEFORE: tuple[Message, ...] = (UserMessage(text="long ago"), AssistantMessage(text="indeed"), UserMessage(text="go"))


def sent(server: ResponsesServer) -> list[Any]:
    """The kinds or texts of what was sent last."""
    return [item.get("content") or item["type"] for item in server.requests[-1]["input"]]


async def test_a_service_is_asked_to_compact_only_if_allowed() -> None:
    async with asked(Says("ok")) as (client, server):
        for compact_at, told in (
            (None, None),
            (MIN_THRESHOLD - 1, None),
            (MIN_THRESHOLD, MIN_THRESHOLD),
            (132_000, 132_000),
        ):
            await client.ask(asks(UserMessage(text="go"), compact_at=compact_at))
            entries = server.requests[-1].get("context_management", [{}])
            assert entries == ([{}] if told is None else [{"type": "compaction", "compact_threshold": told}])
        assert server.refusals == []


async def test_messages_before_a_compaction_are_left_out_and_its_item_is_sent() -> None:
    async with asked(Says("Well."), Says("Then.")) as (client, server):
        reply = await client.ask(asks(UserMessage(text="x" * 5000), *BEFORE, compact_at=MIN_THRESHOLD))
        assert (reply.text, reply.opaque is not None and reply.opaque.startswith(COMPACTED)) == ("Well.", True)
        told: tuple[Message, ...] = (*BEFORE, *as_messages(reply), UserMessage(text="and?"))
        again = await client.ask(asks(*told, compact_at=MIN_THRESHOLD))
        assert sent(server) == ["compaction", "Well.", "and?"]
        await client.ask(asks(*told, *as_messages(again), UserMessage(text="so?"), compact_at=MIN_THRESHOLD))
        assert sent(server) == ["compaction", "Well.", "and?", "Then.", "so?"]
        assert server.refusals == []


async def test_the_newest_compaction_counts() -> None:
    async with asked(Says(parts=[COMPACTION, {"type": "message", "text": "one"}]), Says("two"), Says("x")) as (
        client,
        server,
    ):
        first = as_messages(await client.ask(asks(*BEFORE, compact_at=MIN_THRESHOLD)))
        more: tuple[Message, ...] = (*BEFORE, *first, UserMessage(text="y" * 5000))
        second = as_messages(await client.ask(asks(*more, compact_at=MIN_THRESHOLD)))
        await client.ask(asks(*more, *second, UserMessage(text="and?"), compact_at=MIN_THRESHOLD))
        assert sent(server) == ["compaction", "two", "and?"]
        assert server.refusals == []


async def test_reasoning_and_calls_around_a_compaction_keep_their_order() -> None:
    parts = [CALL, COMPACTION, THOUGHT, CALL]
    async with asked(Says(parts=parts), Says("done")) as (client, server):
        reply = await client.ask(asks(*BEFORE, compact_at=MIN_THRESHOLD))
        await client.ask(asks(*BEFORE, *as_messages(reply), compact_at=MIN_THRESHOLD))
        calls = ["function_call", "compaction", "reasoning", "function_call"]
        assert sent(server) == [*calls, "function_call_output", "function_call_output"]
        assert server.refusals == []


@pytest.mark.parametrize("parts", [[COMPACTION], [THOUGHT, COMPACTION], [COMPACTION, THOUGHT]])
async def test_a_reply_interrupted_after_its_compaction_keeps_it(parts: list[dict[str, Any]]) -> None:
    async with asked(Says(parts=parts, incomplete="max_output_tokens"), Says("done")) as (client, server):
        reply = await client.ask(asks(*BEFORE, compact_at=MIN_THRESHOLD))
        await client.ask(asks(*BEFORE, *as_messages(reply), UserMessage(text="and?"), compact_at=MIN_THRESHOLD))
        assert (sent(server)[-2:], "long ago" in sent(server)) == (["compaction", "and?"], False)
        assert server.refusals == []


async def test_other_models_get_the_whole_conversation() -> None:
    async with asked(Says(parts=[COMPACTION, {"type": "message", "text": "Well."}]), Says("x")) as (client, server):
        reply = await client.ask(asks(*BEFORE, compact_at=MIN_THRESHOLD))
        told: tuple[Message, ...] = (*BEFORE, *as_messages(reply), UserMessage(text="and?"))
        everything = ["long ago", "indeed", "go", "Well.", "and?"]
        for changes in (
            {"model": "gpt-other", "compact_at": MIN_THRESHOLD},
            {"model": "gpt-4.1", "compact_at": MIN_THRESHOLD},
            {},
        ):
            await client.ask(asks(*told, **changes))
            assert sent(server) == everything
        await client.ask(asks(*told, compact_at=MIN_THRESHOLD))
        assert sent(server) == ["compaction", "Well.", "and?"]
        assert server.refusals == []


async def test_an_unreadable_compaction_is_left_out_and_the_whole_conversation_sent() -> None:
    async with ResponsesServer(
        Says(parts=[COMPACTION, {"type": "message", "text": "Well."}]), Says("x")
    ).serving() as server:
        async with provider(server.url, api="responses", key=FIRST) as client:
            reply = await client.ask(asks(*BEFORE, compact_at=MIN_THRESHOLD))
        told: tuple[Message, ...] = (*BEFORE, *as_messages(reply), UserMessage(text="and?"))
        async with provider(server.url, api="responses", key=SECOND) as client:
            assert (await client.ask(asks(*told, compact_at=MIN_THRESHOLD))).text == "x"
            assert sent(server) == ["long ago", "indeed", "go", "Well.", "and?"]
            assert [wrong.code for wrong in server.refusals] == ["invalid_encrypted_content"]
            await client.ask(asks(*told, UserMessage(text="so?"), compact_at=MIN_THRESHOLD))
            assert len(server.refusals) == 1


async def test_a_service_without_compaction_is_asked_once() -> None:
    unknown = refusal("Unknown parameter: 'context_management'.", "unknown_parameter", param="context_management")
    async with asked(Fault(status=400, body=unknown), Says("ok"), Says("ok")) as (client, server):
        for _ in range(2):
            assert (await client.ask(asks(*BEFORE, compact_at=MIN_THRESHOLD))).text == "ok"
        assert ["context_management" in body for body in server.requests] == [True, False, False]
    async with asked(Fault(status=400, body=unknown)) as (client, _):
        with pytest.raises(BadRequest):
            await client.ask(asks(*BEFORE, compact_at=MIN_THRESHOLD))


async def test_a_compaction_that_is_too_long_for_the_journal_is_not_kept() -> None:
    parts = [{**COMPACTION, "encrypted_content": "g" * MAX_LENGTH}, {"type": "message", "text": "Well."}]
    async with asked(Says(parts=parts), Says("x")) as (client, server):
        reply = await client.ask(asks(*BEFORE, compact_at=MIN_THRESHOLD))
        assert reply.opaque is None
        await client.ask(asks(*BEFORE, *as_messages(reply), UserMessage(text="and?"), compact_at=MIN_THRESHOLD))
        assert sent(server)[0] == "long ago"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"context_management": [{"type": "pruning"}]}, "Invalid value: 'pruning'"),
        ({"context_management": [{"type": "compaction", "compact_threshold": 999}]}, "integer below minimum value"),
        ({"input": [{"type": "compaction", "id": "cmp_1"}]}, "Missing required parameter: 'input[0].encrypted_content'"),
        ({"input": [{"type": "compaction", "encrypted_content": "gAAAAx"}]}, "could not be verified"),
        ({"input": [{"type": "compaction", "encrypted_content": "g", "created_by": "x"}]}, "Unknown parameter"),
    ],
)
def test_the_fake_refuses_what_the_service_refuses(changes: dict[str, Any], words: str) -> None:
    wrong = what_is_wrong({"model": "gpt-test", "input": [{"role": "user", "content": "hi"}], **changes}, "org-one")
    assert wrong is not None
    assert words in wrong.message
    assert json.dumps(wrong)
