"""The `openai` provider over the Responses API, against a server that is as strict as the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plugins.api.context import ProviderContext
from plugins.http.client import Transport
from plugins.providers.hosted.encoding import EncodingCache
from plugins.providers.openai.chat import OpenAI, OpenAISettings
from plugins.providers.openai.responses import ResponsesEncoder
from plugins.support.errors import BadRequest, Unreachable
from plugins.support.secrets import Secret
from plugins.testing.contexts import ManualClock
from plugins.testing.servers.openai_server import OpenAIServer
from plugins.testing.servers.openai_server import ScriptedResponse as SaysInChat
from sessions.events.messages import AssistantMessage, Attachment, Message, ToolCall, ToolMessage, UserMessage
from tests.plugins.provider_harness import READ, as_messages
from tests.plugins.responses_harness import FIRST, asked, asks, provider, request
from tests.servers.openai_responses_server import (
    Says,
    refusal,
)


async def test_a_reply_is_streamed_as_deltas_and_returned_with_its_usage() -> None:
    async with asked(Says("one two three"), max_output_tokens=100, effort="low") as (client, server):
        reply = await client.ask(request(tools=(READ,)))
        assert client.deltas == ["one ", "two ", "three"]
        assert (reply.text, reply.stop, reply.model, reply.opaque) == ("one two three", "end", "gpt-test-2026-01-01", None)
        assert server.requests == [
            {
                "model": "gpt-test",
                "stream": True,
                "store": False,
                "prompt_cache_key": "s",
                "include": ["reasoning.encrypted_content"],
                "reasoning": {"effort": "low", "summary": "auto"},
                "max_output_tokens": 100,
                "instructions": "Be brief.",
                "tools": [{"type": "function", **msgspec.to_builtins(READ), "strict": False}],
                "input": [{"role": "user", "content": "hi"}],
            }
        ]


async def test_calls_are_joined_from_their_fragments_and_their_results_sent() -> None:
    async with asked(Says("look", ("read", '{"path": "a.md"}'), ("read", "{}")), Says("done")) as (client, server):
        reply = await client.ask(asks(UserMessage(text="go")))
        assert [(c.id, c.tool, c.arguments) for c in reply.calls] == [
            ("call_1_1", "read", '{"path": "a.md"}'),
            ("call_1_2", "read", "{}"),
        ]
        assert reply.stop == "calls"
        assert (await client.ask(asks(UserMessage(text="go"), *as_messages(reply, 4)))).text == "done"
        assert server.requests[1]["input"] == [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "look"},
            {"type": "function_call", "call_id": "call_4_0", "name": "read", "arguments": '{"path": "a.md"}'},
            {"type": "function_call", "call_id": "call_4_1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_4_0", "output": "a result"},
            {"type": "function_call_output", "call_id": "call_4_1", "output": "a result"},
        ]


async def test_a_call_without_its_result_is_refused() -> None:
    async with asked(Says("never")) as (client, _):
        with pytest.raises(BadRequest, match="No tool output found"):
            await client.ask(asks(AssistantMessage(text="", calls=(ToolCall(id="c", tool="read", arguments=""),))))
        with pytest.raises(BadRequest, match="No tool call found"):
            await client.ask(asks(ToolMessage(id="c", tool="read", text="")))


async def test_images_are_sent_before_the_text_of_their_message() -> None:
    shown = Attachment(sha256="a" * 64, media="image/png", bytes=3)
    lost = Attachment(sha256="b" * 64, media="image/png", bytes=3)
    messages = (UserMessage(text="what?", attachments=(shown, lost)), UserMessage(text="", attachments=(shown,)))
    async with asked() as (client, server):
        await client.ask(asks(*messages, pictures={"a" * 64: b"aW1n"}))
        picture = {"type": "input_image", "image_url": "data:image/png;base64,aW1n", "detail": "auto"}
        assert server.requests[0]["input"] == [
            {"role": "user", "content": [picture, {"type": "input_text", "text": "what?"}]},
            {"role": "user", "content": [picture]},
        ]


async def test_models_without_reasoning_are_not_asked_for_it() -> None:
    async with asked(Says("ok"), effort="high") as (client, server):
        for model in ("gpt-4.1", "gpt-4o-mini", "gpt-5-chat-latest", "custom-plain", "custom-plain"):
            await client.ask(asks(UserMessage(text="hi"), model=model))
        assert [wrong.param for wrong in server.refusals] == ["include"]
        assert [sent["model"] for sent in server.requests if "include" in sent or "reasoning" in sent] == ["custom-plain"]


def test_a_request_is_repeated_once_and_only_if_something_can_be_left_out() -> None:
    encoder = ResponsesEncoder()
    effort = refusal(
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.", None, param="reasoning.effort"
    )
    value = refusal(
        "'reasoning.effort' does not support 'minimal' with this model.", "unsupported_value", param="reasoning.effort"
    )
    unreadable = refusal("The encrypted content for item rs_1 could not be verified.", "invalid_encrypted_content")
    assert [encoder.adapt(request(), body) for body in (value, unreadable, b"reasoning", effort, effort)] == [
        *[False, False, False],
        *[True, False],
    ]
    assert "include" not in json.loads(encoder.body(request(), effort="low"))
    opaque = 'openai.responses:{"model":"gpt-test","steps":[{"thought":{"type":"reasoning"}},{"size":2}]}'
    thoughtful = request(AssistantMessage(text="ok", opaque=opaque))
    assert [encoder.adapt(thoughtful, body) for body in (value, unreadable)] == [False, True]
    assert b'"reasoning"' not in encoder.body(thoughtful)
    assert not encoder.adapt(request(*[AssistantMessage(text="thoughtless")] * 3), unreadable)
    longer = request(UserMessage(text="go"), *[AssistantMessage(text="ok", opaque=opaque)] * 2)
    assert encoder.adapt(longer, unreadable)
    assert [encoder.body(asked_).count(b'"reasoning"') for asked_ in (longer, thoughtful)] == [0, 1]
    for session in range(1001):
        assert encoder.adapt(msgspec.structs.replace(thoughtful, session=str(session)), unreadable)
    assert len(encoder._unreadable) == 1000


async def test_an_effort_that_the_model_does_not_support_is_reported() -> None:
    async with asked(Says("ok"), effort="enormous") as (client, server):
        with pytest.raises(BadRequest, match="'enormous' is not supported"):
            await client.ask()
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("model", "parameters", "sent"),
    [
        ("gpt-4.1", {"temperature": 0.7, "top_p": 0.9, "max_tokens": 50}, {"temperature": 0.7, "top_p": 0.9}),
        ("gpt-5", {"temperature": 0.7, "top_p": 0.9, "max_tokens": 50}, {}),
        ("ft:gpt-4.1:us:x", {"temperature": 0.7, "top_p": None, "max_tokens": 50}, {"temperature": 0.7}),
    ],
)
async def test_only_parameters_that_the_model_accepts_are_sent(
    model: str, parameters: dict[str, Any], sent: dict[str, Any]
) -> None:
    async with asked(Says("ok"), max_output_tokens=100) as (client, server):
        await client.ask(msgspec.structs.replace(request(**parameters), model=model))
        names = ("temperature", "top_p", "max_output_tokens")
        asked_for = server.requests[-1]
        assert {name: asked_for[name] for name in names if name in asked_for} == {**sent, "max_output_tokens": 50}


# --- the cost of long conversations -----------------------------------------------------------------------------------


async def test_a_request_begins_with_the_bytes_of_the_previous_one() -> None:
    async with asked(Says("yes", ("read", "{}"), thoughts=True)) as (client, _):
        messages: tuple[Message, ...] = (UserMessage(text="go" * 1000),)
        cached = []
        for round_ in range(3):
            reply = await client.ask(asks(*messages))
            assert reply.usage is not None
            cached.append((reply.usage.cached, reply.usage.input))
            messages += as_messages(reply, round_)
        assert [read for read, _ in cached] == [0, cached[0][1], cached[1][1]]


def test_the_cache_of_requests_is_bounded_and_sessions_are_not_mixed_up() -> None:
    opaque = 'openai.responses:{"model":"a","steps":[{"thought":{"type":"reasoning","id":"rs"}},{"size":2}]}'
    remembered = EncodingCache(2000)
    encoder, unreadable = ResponsesEncoder(remembered), refusal("no", "invalid_encrypted_content")
    learned: set[tuple[str, int]] = set()
    for round_ in range(12):
        for session in ("s", "t"):
            for model in ("a", "b", "gpt-4.1"):
                exchange = (UserMessage(text=f"{session} {round_}"), AssistantMessage(text="ok", opaque=opaque))
                asked_ = asks(*(exchange * (round_ + 1)), model=model, session=session)
                fresh = ResponsesEncoder(EncodingCache(0))
                if learned:
                    fresh.adapt(asks(*(exchange * 6), session="s", model="a"), unreadable)
                assert encoder.body(asked_) == fresh.body(asked_)
                assert remembered.size <= 2000
        if round_ == 5:
            assert encoder.adapt(asks(*(exchange * 6), session="s", model="a"), unreadable)
            assert not encoder.adapt(asks(*(exchange * 6), session="s", model="a"), unreadable)
            learned.add(("s", 12))


# --- which tongue is spoken -------------------------------------------------------------------------------------------


class Noting(Transport):
    """A transport that sends nothing, and knows where it would have."""

    url = ""

    def stream_events(self, url: str, **_: Any) -> Any:
        self.url = url
        raise Unreachable(url)


@pytest.mark.parametrize(
    ("base", "api", "path"),
    [
        ("", "auto", "https://api.openai.com/v1/responses"),
        ("https://api.openai.com/v1/", "auto", "https://api.openai.com/v1/responses"),
        ("https://eu.api.openai.com/v1", "auto", "https://eu.api.openai.com/v1/responses"),
        ("", "chat", "https://api.openai.com/v1/chat/completions"),
        ("http://127.0.0.1:8080/v1", "auto", "http://127.0.0.1:8080/v1/chat/completions"),
        ("http://127.0.0.1:8080/v1", "responses", "http://127.0.0.1:8080/v1/responses"),
        ("https://notopenai.com/v1", "auto", "https://notopenai.com/v1/chat/completions"),
        ("https://api.openai.com.example/v1", "auto", "https://api.openai.com.example/v1/chat/completions"),
        ("http://[nonsense", "auto", "http://[nonsense/chat/completions"),
    ],
)
async def test_openai_gets_requests_over_responses_and_other_servers_over_chat(base: str, api: Any, path: str) -> None:
    async with Noting() as transport:
        context = ProviderContext(
            settings=OpenAISettings(base_url=base or None, api_key=(Secret(FIRST),), api=api),
            folder=Path("unused"),
            workspace=Path("unused"),
            clock=ManualClock(),
            transport=transport,
            environment={},
        )
        async with OpenAI(context) as opened_:
            with pytest.raises(Unreachable):
                await anext(opened_.stream(request()))
        assert transport.url == path


async def test_the_effort_is_sent_over_chat_too() -> None:
    async with OpenAIServer(SaysInChat("ok")).serving() as server, provider(server.url, effort="low") as client:
        await client.ask()
        assert server.requests[0]["reasoning_effort"] == "low"
