"""The `openai` provider against a server that is as strict, and as faulty, as the real ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from plugins.providers.hosted.encoding import EncodingCache
from plugins.providers.openai.chat import OpenAI
from plugins.providers.openai.chat_completions import Encoder
from plugins.support.errors import BadRequest, ContextOverflow, CredentialsRefused, ProviderError, RateLimited, StreamCut
from plugins.testing.servers.faulty_server import Fault, RawResponse
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse, events_of, refusal
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage
from tests.plugins.provider_harness import READ, Harness

HARNESS = Harness(OpenAI, OpenAIServer, model="gpt-test", key=KEY)
request, provider, asked = HARNESS.request, HARNESS.asking, HARNESS.serving


async def test_a_reply_is_streamed_as_deltas_and_returned_with_its_usage() -> None:
    async with asked(ScriptedResponse("one two three")) as (client, server):
        reply = await client.ask()
        assert client.deltas == ["one ", "two ", "three"]
        assert (reply.text, reply.stop, reply.model) == ("one two three", "end", "gpt-test-2026-01-01")
        assert reply.usage is not None
        assert reply.usage.cached == reply.usage.input // 2 > 0
        assert server.requests[0]["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ]
        assert server.headers[0]["Accept-Encoding"] == "identity"


async def test_calls_are_joined_from_their_fragments() -> None:
    async with asked(ScriptedResponse("look", ("read", '{"path": "a.md"}'), ("read", "{}"))) as (client, server):
        reply = await client.ask(request(tools=(READ,), temperature=0.5))
        assert [(c.id, c.tool, c.arguments) for c in reply.calls] == [
            ("call_0", "read", '{"path": "a.md"}'),
            ("call_1", "read", "{}"),
        ]
        assert reply.stop == "calls"
        assert server.requests[0]["tools"] == [{"type": "function", "function": msgspec.to_builtins(READ)}]
        assert server.requests[0]["temperature"] == 0.5


async def test_a_conversation_with_tools_is_sent_as_the_service_requires() -> None:
    messages = (
        UserMessage(text="go"),
        AssistantMessage(text="", calls=(ToolCall(id="call_4_0", tool="read", arguments="{}"),)),
        ToolMessage(id="call_4_0", tool="read", text="text"),
        AssistantMessage(text="done"),
        UserMessage(text="thanks"),
    )
    async with asked(ScriptedResponse("welcome")) as (client, server):
        assert (await client.ask(request(*messages))).text == "welcome"
        assert [m["role"] for m in server.requests[0]["messages"]] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
        ]
        with pytest.raises(BadRequest, match="must be followed by tool messages"):
            await client.ask(request(*messages[:2], *messages[3:]))


# --- what compatible servers do ---------------------------------------------------------------------------------------


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": delta, "finish_reason": finish}], **more}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (chunk({"content": "hi"}, "stop"), "hi"),
        (chunk({"content": "hi"}) + DONE, "hi"),
        (b": comment\r\n\r\nevent: x\r\n" + chunk({"content": "hi"}, "stop").replace(b"\n", b"\r\n") + DONE, "hi"),
        (b"\xef\xbb\xbf" + chunk({"content": "a\u2028b"}, "stop") + DONE, "a\u2028b"),
        (chunk({"content": "x\ud800y"}, "stop") + DONE, "x\ufffdy"),
        (chunk({"reasoning_content": "hm"}) + chunk({"content": "hi"}, "stop", usage=None) + DONE, "hi"),
        (chunk({"refusal": "I will not."}, "stop") + DONE, "I will not."),
        (b'data: {"choices":[{"index":1,"delta":{"content":"other"}}]}\n\n' + chunk({"content": "hi"}, "stop"), "hi"),
    ],
)
@pytest.mark.parametrize("size", [0, 1, 7])
async def test_streams_of_many_kinds_are_understood_however_they_are_split(content: bytes, text: str, size: int) -> None:
    async with asked(RawResponse(content, chunk=size)) as (client, _):
        reply = await client.ask()
        assert reply.text == text == "".join(client.deltas)


async def test_calls_without_index_or_id_are_kept_apart() -> None:
    calls = [{"function": {"name": "read", "arguments": "{}"}}, {"function": {"name": "read", "arguments": '{"a":1}'}}]
    async with asked(RawResponse(chunk({"tool_calls": calls}, "stop") + DONE)) as (client, _):
        reply = await client.ask()
        assert [(c.tool, c.arguments) for c in reply.calls] == [("read", "{}"), ("read", '{"a":1}')]
        assert reply.stop == "calls"


async def test_calls_that_share_an_index_and_differ_in_their_id_are_kept_apart() -> None:
    stream = b"".join(
        chunk({"tool_calls": [{"index": 0, "id": f"c{n}", "function": {"name": "read", "arguments": f'{{"a":{n}}}'}}]})
        for n in range(3)
    )
    async with asked(RawResponse(stream + chunk({}, "tool_calls") + DONE)) as (client, _):
        reply = await client.ask()
        assert [(c.id, c.arguments) for c in reply.calls] == [("c0", '{"a":0}'), ("c1", '{"a":1}'), ("c2", '{"a":2}')]


async def test_arguments_that_come_as_an_object_become_its_text() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "read", "arguments": {"path": "a.md"}}}
    async with asked(RawResponse(chunk({"tool_calls": [call]}, "tool_calls"))) as (client, _):
        assert [c.arguments for c in (await client.ask()).calls] == ['{"path":"a.md"}']


async def test_text_in_parts_is_joined_without_the_thinking() -> None:
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    stream = chunk({"content": thinking}) + chunk({"content": [{"type": "text", "text": "hi"}]}, "stop")
    async with asked(RawResponse(stream + DONE)) as (client, _):
        assert ((await client.ask()).text, client.deltas) == ("hi", ["hi"])


@pytest.mark.parametrize(
    ("finish", "arguments", "stop", "calls"),
    [
        ("length", '{"path": "a', "length", 1),
        ("length", "", "length", 1),
        ("length", '{"path": "a"}', "calls", 2),
        ("content_filter", '{"path": "a"}', "refused", 0),
        ("stop", "", "calls", 2),
    ],
)
async def test_a_truncated_or_refused_call_is_not_run(finish: str, arguments: str, stop: str, calls: int) -> None:
    async with asked(ScriptedResponse("", ("read", "{}"), ("read", arguments), finish=finish)) as (client, _):
        reply = await client.ask()
        assert len(reply.calls) == calls
        assert reply.stop == ("calls" if calls else stop)


async def test_a_cut_after_the_end_of_the_reply_is_ignored() -> None:
    whole = events_of({"model": "m", "messages": []}, ScriptedResponse("one two"))[
        :-1
    ]  # as it is sent, but for the `[DONE]`
    async with asked(Fault(end="reset", events=whole)) as (client, _):
        assert (await client.ask()).text == "one two"


@pytest.mark.parametrize("finish", ["error", "abort", "insufficient_system_resource"])
async def test_a_finish_reason_that_reports_a_failure_is_an_interruption(finish: str) -> None:
    async with asked(ScriptedResponse("half an answer", finish=finish)) as (client, _):
        with pytest.raises(StreamCut, match=finish):
            await client.ask()


async def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = {
        "model": "m",
        "choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    async with asked(Fault(body=json.dumps(whole).encode())) as (client, _):
        reply = await client.ask()
        assert (reply.text, reply.usage) == ("hello", Usage(input=3, output=1))


@pytest.mark.parametrize(
    ("finish", "stop"), [("length", "length"), ("content_filter", "refused"), ("stop", "end"), ("brand_new", "end")]
)
async def test_each_finish_reason_is_mapped(finish: str, stop: str) -> None:
    async with asked(ScriptedResponse("text", finish=finish)) as (client, _):
        assert (await client.ask()).stop == stop


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error", "requests"),
    [
        (Fault(status=400, body=refusal("the request exceeds the available context size", None)), ContextOverflow, 1),
        (
            Fault(
                status=400,
                body=b'{"error": "Trying to keep the first 9 tokens when context the overflows. However, the model is loaded'
                b' with context length of only 8 tokens, which is not enough."}',
            ),
            ContextOverflow,
            1,
        ),
        (
            Fault(
                status=400,
                body=b'[{"error": {"code": 400, "message": "The input token count (9) exceeds the maximum'
                b' number of tokens allowed (8)."}}]',
            ),
            ContextOverflow,
            1,
        ),
        (
            Fault(
                status=429,
                body=refusal(
                    "Request too large for gpt-test on tokens per min (TPM): Limit 8", "rate_limit_exceeded", "tokens"
                ),
            ),
            ContextOverflow,
            1,
        ),
        (Fault(status=429, body=refusal("You exceeded your quota", "insufficient_quota")), RateLimited, 1),
        (RawResponse(b'data: {"error": {"code": 429, "message": "slow down"}}\n\n'), RateLimited, 1),
        (RawResponse(b'data: {"error": {"code": 401, "message": "no"}}\n\n'), CredentialsRefused, 1),
        (RawResponse(b'data: {"error": {"code": 502, "message": "gone"}}\n\n'), StreamCut, 1),
        (RawResponse(b'data: {"error": "text"}\n\n'), StreamCut, 1),
        (RawResponse(DONE), StreamCut, 1),
    ],
)
async def test_each_failure_has_its_error(fault: Any, error: type[ProviderError], requests: int) -> None:
    async with asked(fault) as (client, server):
        with pytest.raises(error) as raised:
            await client.ask()
        assert KEY not in str(raised.value)
        assert len(server.requests) == requests


# --- being set up -----------------------------------------------------------------------------------------------------


async def test_it_is_chosen_automatically_only_with_a_key_or_an_address() -> None:
    async with provider("", key="") as client:
        assert client.provider.default_model() is None
        with pytest.raises(CredentialsRefused):
            await client.ask()
    async with provider("", key="", environment={"OPENAI_API_KEY": KEY}) as client:
        assert client.provider.default_model() == "gpt-4.1"
        assert client.provider.explain_default() == "OPENAI_API_KEY is set"
        assert client.provider.limits("gpt-4.1-mini").window == 1_047_576
    async with provider("http://127.0.0.1:9/v1", key="", default_model="llama") as client:
        assert client.provider.default_model() == "llama"
        assert client.provider.limits("gpt-4.1").window is None


async def test_a_request_repeats_its_beginning_byte_for_byte() -> None:
    messages: tuple[Message, ...] = tuple(UserMessage(text=f"message {n}") for n in range(50))
    async with asked() as (client, server):
        await client.ask(request(*messages))
        await client.ask(request(*messages, AssistantMessage(text="yes"), UserMessage(text="more")))
        first, second = server.requests
        assert second["messages"][: len(first["messages"])] == first["messages"]


async def test_the_cache_of_requests_is_bounded_and_sessions_are_not_mixed_up() -> None:
    remembered = EncodingCache(300)
    encoder = Encoder(remembered)
    fresh = Encoder(EncodingCache(0))
    for round_ in range(4):
        for session in ("a", "b", "c"):
            messages = tuple(UserMessage(text=f"{session} {n} {'x' * 40}") for n in range(round_ + 1))
            asked_ = msgspec.structs.replace(request(*messages), session=session)
            body = encoder.body(asked_, max_tokens=None, max_tokens_key="max_tokens")
            assert json.loads(body) == json.loads(fresh.body(asked_, max_tokens=None, max_tokens_key="max_tokens"))
            assert remembered.size <= 300
            assert remembered.size == sum(len(joined) for _, joined in remembered._entries.values())


async def test_reasoning_before_a_call_is_sent_back_to_the_same_model_alone() -> None:
    thinking = ScriptedResponse("", ("read", "{}"), reasoning="I must look first.")
    async with asked(thinking, ScriptedResponse("Done.", reasoning="Enough.")) as (client, server):
        server.thinks = True
        called = await client.ask(request(UserMessage(text="go"), tools=(READ,)))
        assert called.opaque == 'openai.chat:["gpt-test","I must look first."]'
        call = ToolCall(id="call_0", tool="read", arguments="{}")
        messages: tuple[Message, ...] = (
            UserMessage(text="go"),
            AssistantMessage(text="", calls=(call,), opaque=called.opaque),
            ToolMessage(id="call_0", tool="read", text="text"),
        )
        done = await client.ask(request(*messages, tools=(READ,)))
        assert (done.text, done.opaque) == ("Done.", None)
        assert [message.get("reasoning_content") for message in server.requests[-1]["messages"]] == [
            None,
            None,
            "I must look first.",
            None,
        ]
        server.thinks = False
        other = msgspec.structs.replace(request(*messages, tools=(READ,)), model="gpt-other")
        await client.ask(other)
        assert not any("reasoning_content" in message for message in server.requests[-1]["messages"])


async def test_a_model_that_requires_reasoning_gets_it_empty_where_there_is_none() -> None:
    messages = (
        UserMessage(text="go"),
        AssistantMessage(text="", calls=(ToolCall(id="call_0", tool="read", arguments="{}"),), opaque="anthropic:[]"),
        ToolMessage(id="call_0", tool="read", text="text"),
        AssistantMessage(text="done"),
        UserMessage(text="thanks"),
    )
    async with asked(ScriptedResponse("welcome")) as (client, server):
        server.thinks = True
        for _ in range(2):
            assert (await client.ask(request(*messages, tools=(READ,)))).text == "welcome"
        sent = [[message.get("reasoning_content") for message in body["messages"]] for body in server.requests]
        assert sent[0] == [None] * 6
        assert sent[1:] == [[None, None, "", None, "", None]] * 2  # from then on at once


async def test_a_model_that_refuses_reasoning_gets_none() -> None:
    refused = Fault(status=400, body=refusal("property 'reasoning_content' is unsupported", None))
    messages = (
        UserMessage(text="go"),
        AssistantMessage(
            text="", calls=(ToolCall(id="call_0", tool="read", arguments="{}"),), opaque='openai.chat:["gpt-test","Hm."]'
        ),
        ToolMessage(id="call_0", tool="read", text="text"),
    )
    async with asked(refused, ScriptedResponse("Done."), refused) as (client, server):
        assert (await client.ask(request(*messages, tools=(READ,)))).text == "Done."
        with pytest.raises(BadRequest, match="reasoning_content"):  # which is not repeated again
            await client.ask(request(*messages, tools=(READ,)))
        sent = [body["messages"][2].get("reasoning_content") for body in server.requests]
        assert sent == ["Hm.", None, None]


@pytest.mark.parametrize("opaque", ["openai.chat:", "openai.chat:[1]", "openai.chat:{}", "ollama:Hm."])
async def test_what_is_no_reasoning_of_this_provider_is_not_sent(opaque: str) -> None:
    async with asked(ScriptedResponse("Done.")) as (client, server):
        await client.ask(request(AssistantMessage(text="Hm", opaque=opaque), UserMessage(text="go")))
        assert "reasoning_content" not in json.dumps(server.requests)
