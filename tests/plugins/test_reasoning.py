"""Reasoning that services show is passed on beside the text, and is never part of it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.api.chat import Delta
from plugins.providers.hosted.think_tags import ThinkTags
from plugins.providers.openai.chat import OpenAI
from plugins.support.errors import BadRequest
from plugins.testing.servers.faulty_server import RawResponse
from plugins.testing.servers.openai_server import KEY, OpenAIServer
from sessions.events.messages import AssistantMessage, UserMessage
from tests.plugins.provider_harness import Harness
from tests.plugins.responses_harness import asked as asked_for_response
from tests.plugins.responses_harness import asks
from tests.plugins.vendors import ANTHROPIC, GEMINI, RESPONSES, VENDORS, Vendor
from tests.servers import gemini_server
from tests.servers.openai_responses_server import Says

THOUGHTS = "First I look.\n\nThen I add it up."
COMPATIBLE = Harness(OpenAI, OpenAIServer, model="gpt-test", key=KEY, api="chat")


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
async def test_reasoning_is_passed_on_in_pieces_and_is_not_part_of_the_text(vendor: Vendor) -> None:
    async with vendor.serving(vendor.says("It is four.", thoughts=THOUGHTS)) as (client, _):
        reply = await client.ask()
    assert "".join(client.reasoning) == THOUGHTS
    assert len(client.reasoning) > 1
    assert "".join(client.deltas) == reply.text == "It is four."


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
async def test_reasoning_of_a_reply_without_calls_is_not_sent_back(vendor: Vendor) -> None:
    async with vendor.serving(vendor.says("Four.", thoughts=THOUGHTS), vendor.says("Five.")) as (client, server):
        reply = await client.ask()
        message = AssistantMessage(text=reply.text, opaque=reply.opaque)
        await client.ask(vendor.harness.request(UserMessage(text="2+2?"), message, UserMessage(text="And 2+3?")))
    sent = json.dumps(server.requests[1])
    if vendor is not RESPONSES:  # whose items are sent back as they are
        assert "add it up" not in sent
    assert "Four." in sent


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
async def test_a_request_that_nobody_watches_asks_for_no_summaries(vendor: Vendor) -> None:
    watched = vendor.harness.request()
    unwatched = msgspec.structs.replace(watched, purpose="flush")
    async with vendor.serving(vendor.says("a"), vendor.says("b")) as (client, server):
        await client.ask(watched)
        await client.ask(unwatched)
    asked = [json.dumps(body) for body in server.requests]
    assert not any(word in asked[1] for word in ("includeThoughts", "summary"))
    assert any(word in asked[0] for word in ("includeThoughts", "summary")) is (vendor in (RESPONSES, GEMINI))


# --- the services of compatible servers -------------------------------------------------------------------------------


def chunks(*deltas: dict[str, Any]) -> RawResponse:
    """Return a stream of these deltas."""
    lines = [json.dumps({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    end = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return RawResponse("".join(f"data: {line}\n\n" for line in (*lines, end, "[DONE]")).encode())


@pytest.mark.parametrize(
    "deltas",
    [
        ({"reasoning_content": "Hm, "}, {"reasoning_content": "so."}, {"content": "Yes."}),
        ({"content": "", "reasoning": "Hm, "}, {"content": "", "reasoning": "so."}, {"content": "Yes.", "reasoning": None}),
        (
            {"reasoning": "Hm, ", "reasoning_details": [{"type": "reasoning.text", "text": "Hm, ", "index": 0}]},
            {"reasoning": "so.", "reasoning_details": [{"type": "reasoning.text", "text": "so.", "index": 0}]},
            {"content": "Yes."},
        ),
        (
            {"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm, so."}]},
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "gAAA"}]},
            {"content": "Yes."},
        ),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm, "}]}]},
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "so."}]},
                    {"type": "text", "text": "Yes."},
                ]
            },
        ),
        ({"content": "<th"}, {"content": "ink>\nHm, so."}, {"content": "</thi"}, {"content": "nk>\n\nYes."}),
        ({"reasoning": {"odd": 1}, "reasoning_content": 5}, {"reasoning_content": "Hm, so."}, {"content": "Yes."}),
    ],
    ids=["reasoning_content", "reasoning", "both", "summary", "parts", "tags", "odd"],
)
async def test_every_form_of_reasoning_of_a_compatible_server_is_understood(deltas: tuple[dict[str, Any], ...]) -> None:
    async with COMPATIBLE.serving(chunks(*deltas)) as (client, _):
        reply = await client.ask()
    assert ("".join(client.reasoning), "".join(client.deltas), reply.text) == ("Hm, so.", "Yes.", "Yes.")


async def test_a_summary_that_the_organization_may_not_request_is_left_out_from_then_on() -> None:
    async with asked_for_response(Says("one"), Says("two"), effort="low") as (client, server):
        for text in ("one", "two"):
            assert (await client.ask(asks(model="gpt-unverified"))).text == text
    assert [body.get("reasoning") for body in server.requests] == [
        {"effort": "low", "summary": "auto"},
        {"effort": "low"},
        {"effort": "low"},
    ]


async def test_a_server_that_sends_no_deltas_of_a_summary_sends_it_with_the_item() -> None:
    item = {
        "type": "reasoning",
        "id": "r",
        "summary": [{"type": "summary_text", "text": "Hm."}, {"type": "summary_text", "text": "So."}],
    }
    done = [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "Yes."},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]
    stream = "".join(f"data: {json.dumps(each)}\n\n" for each in done).encode()
    async with asked_for_response(RawResponse(stream)) as (client, _):
        assert (await client.ask()).text == "Yes."
    assert "".join(client.reasoning) == "Hm.\n\nSo."


async def test_blocks_of_thinking_are_separated() -> None:
    parts = [
        {"type": "thinking", "thinking": "One, after"},
        {"type": "text", "text": "I look."},
        {"type": "thinking", "thinking": "another"},
    ]
    async with ANTHROPIC.serving(type(ANTHROPIC.says())(parts=parts)) as (client, _):  # type: ignore[call-arg]
        await client.ask()
    assert "".join(client.reasoning) == "One, after\n\nanother"


async def test_a_gemini_model_that_does_not_think_is_asked_without_thoughts_from_then_on() -> None:
    request = GEMINI.harness.request(model="gemini-3-image")
    async with GEMINI.serving(gemini_server.Says("a"), gemini_server.Says("b")) as (client, server):
        assert [(await client.ask(request)).text for _ in "ab"] == ["a", "b"]
        assert ["generationConfig" in body for body in server.requests] == [True, False, False]
        await client.ask(GEMINI.harness.request(model="gemini-2.0-flash"))
        assert "generationConfig" not in server.requests[-1]


async def test_a_refusal_of_something_else_is_not_repeated() -> None:
    wrong = GEMINI.harness.request(response="no such option")
    async with GEMINI.serving() as (client, server):
        with pytest.raises(BadRequest):
            await client.ask(wrong)
    assert len(server.requests) == 1


# --- tags -------------------------------------------------------------------------------------------------------------


def separated(*pieces: str) -> tuple[str, str]:
    """Return the reasoning and the text of a text in these pieces."""
    tags = ThinkTags()
    parts = [part for piece in pieces for part in tags.feed(piece)] + list(tags.end())
    assert all(part.text for part in parts)
    text = "".join(part.text for part in parts if isinstance(part, Delta))
    assert "".join(tags.pieces) == text
    return "".join(part.text for part in parts if not isinstance(part, Delta)), text


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."),
        ("\n<thinking>Hm.</thinking>Yes.", "Hm.", "Yes."),
        ("<think>\n\n</think>\n\nYes.", "", "Yes."),
        (
            "<think>a < b </thin is no end</think>Yes. <think>no</think>",
            "a < b </thin is no end",
            "Yes. <think>no</think>",
        ),
        ("<think>Hm, cut", "Hm, cut", ""),
        ("<think>Hm.</thi", "Hm.</thi", ""),
        ("Yes, <think>no</think>", "", "Yes, <think>no</think>"),
        ("<thin", "", "<thin"),
        ("<thinker>", "", "<thinker>"),
        ("  \n", "", "  \n"),
        ("", "", ""),
        (" " * 500 + "<think>no</think>", "", " " * 500 + "<think>no</think>"),
    ],
)
def test_only_tags_at_the_beginning_are_reasoning(text: str, reasoning: str, answer: str) -> None:
    assert separated(text) == (reasoning, answer)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "/", "think", ">", "\n", " ", "Hm", "é"])), st.data())
def test_the_split_of_a_text_into_pieces_does_not_matter(words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    pieces = [text[start:end] for start, end in pairwise(cuts)]
    (reasoning, answer), (whole, expected) = separated(*pieces), separated(text)
    assert (reasoning.rstrip(), answer) == (whole.rstrip(), expected)
