"""The model's reasoning in chat completions: beside the text, in the field of compatible servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugins.testing.servers.faulty_server import RawResponse
from plugins.testing.servers.openai_server import ScriptedResponse
from tests.gateway.gateways import gateway
from tests.openai_api.asking import SAID, client_of, vendor_behind
from tests.waiting import deadline


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
    script: list[dict[str, Any]] = [
        {"text": "I look.", "reasoning": "What is there?", "calls": [{"tool": "read", "arguments": {"path": "."}}]},
        {"text": "It is empty.", "reasoning": "No files.", "delay_ms": 20},
    ]
    async with gateway(tmp_path, script=script) as g, client_of(g) as client:
        headers = {"X-Exuvia-Session": "main"}
        answer = await client.chat.completions.create(model="exuvia", messages=SAID, stream=stream, extra_headers=headers)
        if stream:
            told = await parts_of(answer)
        else:
            told = answer.choices[0].message.reasoning_content, answer.choices[0].message.content
    assert told == ("What is there?\n\nNo files.", "I look.\n\nIt is empty.")
