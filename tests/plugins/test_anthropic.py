"""The `anthropic` provider against a server that is as strict, and as faulty, as the real one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plugins.providers.anthropic.chat import Anthropic
from plugins.providers.anthropic.request import Encoder, turns_of
from plugins.providers.hosted.encoding import EncodingCache
from plugins.support.errors import (
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.support.secrets import Secret
from plugins.testing.servers.faulty_server import Fault, RawResponse
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage
from sessions.state.context import pair_results
from tests.plugins.provider_harness import READ, Harness, as_messages
from tests.servers.anthropic_rules import what_is_wrong
from tests.servers.anthropic_server import KEY, AnthropicServer, Says, event, events_of, refusal
from tests.waiting import deadline

OLD, NEW = "claude-haiku-4-5", "claude-sonnet-5-5"


HARNESS = Harness(Anthropic, AnthropicServer, model="claude-test", key=KEY)
request, provider, asked = HARNESS.request, HARNESS.asking, HARNESS.serving


async def test_a_reply_is_streamed_as_deltas_and_returned_with_its_usage() -> None:
    async with asked(Says("one two three")) as (client, server):
        reply = await client.ask()
        assert client.deltas == ["one ", "two ", "three"]
        assert (reply.text, reply.stop, reply.model) == ("one two three", "end", "claude-test-20260101")
        assert (reply.calls, reply.opaque) == ((), None)
        assert server.requests[0]["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}
        ]
        assert server.headers[0]["anthropic-version"] == "2023-06-01"


async def test_calls_are_joined_from_their_fragments() -> None:
    async with asked(Says("look", ("read", '{"path": "a.md"}'), ("read", ""))) as (client, server):
        reply = await client.ask(request(tools=(READ,)))
        assert [(c.id, c.tool, c.arguments) for c in reply.calls] == [
            ("toolu_0", "read", '{"path": "a.md"}'),
            ("toolu_1", "read", ""),
        ]
        assert reply.stop == "calls"
        (tool,) = server.requests[0]["tools"]
        assert tool == {
            "name": "read",
            "description": "Reads.",
            "input_schema": READ.parameters,
            "cache_control": {"type": "ephemeral"},
        }


async def test_parallel_calls_and_their_results_are_one_turn_each() -> None:
    async with asked(Says("", *(("read", json.dumps({"n": n})) for n in range(1000))), Says("ok")) as (client, server):
        reply = await client.ask(request(tools=(READ,)))
        assert [json.loads(c.arguments)["n"] for c in reply.calls] == list(range(1000))
        await client.ask(request(UserMessage(text="hi"), *as_messages(reply, 4), tools=(READ,)))
        assert [len(m["content"]) for m in server.requests[1]["messages"]] == [1, 1000, 1000]


# --- the cache --------------------------------------------------------------------------------------------------------


async def test_each_request_reads_the_previous_one_from_the_cache() -> None:
    async with asked(Says("", *(("read", "{}") for _ in range(30))), Says("done")) as (client, _):
        messages: tuple[Message, ...] = (UserMessage(text="a question of some length " * 20),)
        first = await client.ask(request(*messages, tools=(READ,)))
        messages += as_messages(first, 4)
        usages = [first.usage]
        for n in range(5):
            reply = await client.ask(request(*messages, tools=(READ,)))
            usages.append(reply.usage)
            messages += (AssistantMessage(text=reply.text), UserMessage(text=f"and {n}?"))
        before = 0
        for usage in usages:
            assert usage is not None
            assert usage.cached == before, "all that the request before held"
            before = usage.input


# --- what the service demands of a conversation -----------------------------------------------------------------------


async def test_a_conversation_of_another_provider_can_be_continued() -> None:
    messages = (
        UserMessage(text="go"),
        AssistantMessage(
            text="",
            calls=(
                ToolCall(id="call_4_0", tool="read", arguments="{}"),
                ToolCall(id="call_4_1", tool="an invented tool!", arguments="not JSON"),
            ),
            opaque="gemini:sealed",
        ),
        ToolMessage(id="call_4_0", tool="read", text=""),
        ToolMessage(id="call_4_1", tool="an invented tool!", text=" ", failed=True),
        AssistantMessage(text="done", opaque="anthropic:broken"),
        UserMessage(text="thanks"),
    )
    async with asked(Says("welcome")) as (client, server):
        assert (await client.ask(request(*messages))).text == "welcome"
        assert server.requests[0]["messages"][1:3] == [
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "call_4_0", "name": "read", "input": {}},
                    {
                        "type": "tool_use",
                        "id": "call_4_1",
                        "name": "an_invented_tool_",
                        "input": {"not_an_object": "not JSON"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_4_0"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_4_1",
                        "content": "The tool failed and said nothing.",
                        "is_error": True,
                        "cache_control": {"type": "ephemeral"},
                    },
                ],
            },
        ]
        with pytest.raises(BadRequest, match="without `tool_result` blocks"):
            await client.ask(request(*messages[:2], *messages[4:]))


calls = st.integers(0, 3).map(lambda n: tuple(ToolCall(id="", tool="read", arguments="{}" if i else "[]") for i in range(n)))
said = st.sampled_from(["", " \n", "text", "more"])
messages_ = st.lists(
    st.one_of(
        st.builds(UserMessage, text=said),
        st.builds(AssistantMessage, text=said, calls=calls),
        st.builds(ToolMessage, id=st.just("call_0_0"), tool=st.just("read"), text=said, failed=st.booleans()),
    ),
    max_size=12,
)


def numbered(messages: list[Message]) -> tuple[Message, ...]:
    """The messages with ids as a session gives them, and each call with its result."""
    named: list[Message] = []
    for seq, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            own = tuple(msgspec.structs.replace(c, id=f"call_{seq}_{n}") for n, c in enumerate(message.calls))
            named.append(msgspec.structs.replace(message, calls=own))
        else:
            named.append(message)
    return tuple(pair_results(named))


@given(messages_, st.booleans())
def test_any_conversation_becomes_a_valid_request(messages: list[Message], offered: bool) -> None:
    asked_ = request(*numbered(messages), tools=(READ,) if offered else (), temperature=2.0, top_p=0.5, model=OLD)
    assert what_is_wrong(json.loads(Encoder().body(asked_))) is None


def spoken(kinds: str) -> list[Message]:
    """A message of the person for each small letter, an answer for each large one."""
    return [AssistantMessage(text=kind) if kind.isupper() else UserMessage(text=kind) for kind in kinds]


@given(st.lists(st.tuples(st.integers(0, 9), messages_), max_size=6))
@example([(0, spoken("aBcaB")), (3, [])])  # so short then that what was settled is marked again
@example([(0, spoken("aBcadE")), (3, spoken("fG"))])  # what was settled goes on with the same side
def test_cached_and_new_encodings_are_equal(changes: list[tuple[int, list[Message]]]) -> None:
    remembered = EncodingCache(2_000)
    encoder = Encoder(remembered)
    messages: list[Message] = []
    for forgotten, more in changes:
        messages = messages[forgotten if forgotten < 4 else 0 :] + more  # at times a compaction takes the first ones
        asked_ = request(*numbered(messages))
        assert json.loads(encoder.body(asked_)) == json.loads(Encoder().body(asked_))
        assert remembered.size <= 2_000


def test_only_new_messages_of_a_long_conversation_are_encoded() -> None:
    remembered = EncodingCache()
    encoder = Encoder(remembered)
    messages: tuple[Message, ...] = tuple(
        kind(text=f"message {n}") for n in range(500) for kind in (UserMessage, AssistantMessage)
    )
    encoder.body(request(*messages))
    known, _ = remembered.take("s", messages)
    assert known == len(messages) - 3
    assert len(list(turns_of(messages))) == len(messages)


# --- thoughts ---------------------------------------------------------------------------------------------------------

THINKING = {"type": "thinking", "thinking": "I had better look."}
LOOK: dict[str, Any] = {"type": "tool_use", "id": "toolu_9", "name": "read", "input": '{"path": "a.md"}'}
MIXED = [
    THINKING,
    {"type": "text", "text": "I look."},
    {"type": "redacted_thinking", "data": "c2VhbGVk"},
    {"type": "text", "text": "Twice."},
    LOOK,
]


async def test_signed_thinking_is_sent_back_in_place_with_the_results_and_not_later() -> None:
    async with asked(Says(parts=MIXED), Says("", ("read", "{}"), thoughts="Again."), Says("done")) as (client, server):
        begun: tuple[Message, ...] = (UserMessage(text="go"),)
        first = await client.ask(request(*begun, tools=(READ,)))
        assert (first.text, first.opaque is None) == ("I look.Twice.", False)
        begun += as_messages(first, 4)
        second = await client.ask(request(*begun, tools=(READ,)))
        begun += as_messages(second, 8)
        assert (await client.ask(request(*begun, tools=(READ,)))).text == "done"
        sent = server.requests[2]["messages"]
        assert [block["type"] for block in sent[1]["content"]] == [part["type"] for part in MIXED]
        assert sent[1]["content"][0]["thinking"] == THINKING["thinking"]
        assert sent[3]["content"][0]["thinking"] == "Again."
        begun += (AssistantMessage(text="done"), UserMessage(text="and now?"))
        await client.ask(request(*begun, tools=(READ,)))
        assert b"thinking" not in json.dumps(server.requests[3]["messages"]).encode()
        assert server.refusals == []


async def test_thinking_that_pruning_invalidated_is_left_out() -> None:
    async with asked(Says("", ("read", "{}"), thoughts="Look."), Says("done")) as (client, server):
        first = await client.ask(request(UserMessage(text="a long question"), tools=(READ,)))
        pruned = request(UserMessage(text="[cut]"), *as_messages(first, 4), tools=(READ,))
        assert (await client.ask(pruned)).text == "done"
        assert [words.partition(": ")[2] for words in server.refusals] == ["Invalid `signature` in `thinking` block"]
        assert len(server.requests) == 3


async def test_a_tool_round_of_another_provider_is_finished_without_thinking() -> None:
    manual = {"type": "enabled", "budget_tokens": 1024}
    foreign = AssistantMessage(text="", calls=(ToolCall(id="call_4_0", tool="read", arguments="{}"),), opaque="openai:x")
    result = ToolMessage(id="call_4_0", tool="read", text="text")
    messages = (UserMessage(text="go"), foreign, result)
    async with asked(Says("done"), thinking=manual, effort="low") as (client, server):
        assert (await client.ask(request(*messages, tools=(READ,), model=OLD))).text == "done"
        await client.ask(request(*messages, AssistantMessage(text="done"), UserMessage(text="now?"), model=OLD))
        assert [asked_.get("thinking") for asked_ in server.requests] == [None, manual]
        assert server.requests[0]["output_config"] == {"effort": "low"}
        assert server.refusals == []


async def test_thinking_without_a_signature_is_not_kept() -> None:
    events = events_of({"model": "m", "messages": []}, Says("", ("read", "{}"), thoughts="Look."))
    async with asked(RawResponse(b"".join(e for e in events if b"signature_delta" not in e))) as (client, _):
        reply = await client.ask()
        assert (len(reply.calls), reply.opaque) == (1, None)


# --- parameters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "settings", "parameters", "sent"),
    [
        (NEW, {}, {"temperature": 0.7, "top_p": 0.9}, {"max_tokens": 83_333}),
        (OLD, {}, {"temperature": 1.5, "top_p": 0.9}, {"max_tokens": 16_666, "temperature": 1.0}),
        (OLD, {}, {"top_p": 0.9, "temperature": None}, {"max_tokens": 16_666, "top_p": 0.9}),
        (OLD, {"max_output_tokens": 100}, {}, {"max_tokens": 100}),
        (OLD, {"max_output_tokens": 100}, {"max_tokens": 50}, {"max_tokens": 50}),
        (OLD, {"max_output_tokens": 1_000_000}, {}, {"max_tokens": 64_000}),
        (OLD, {"thinking": {"type": "adaptive"}}, {"temperature": 0.5}, {"max_tokens": 16_666}),
        ("claude-opus-6", {}, {"temperature": 0.5}, {"max_tokens": 8_192}),
        ("llama", {}, {"temperature": 0.5}, {"max_tokens": 8_192, "temperature": 0.5}),
    ],
)
async def test_only_parameters_that_the_model_accepts_are_sent(
    model: str, settings: dict[str, Any], parameters: dict[str, Any], sent: dict[str, Any]
) -> None:
    async with asked(Says("ok"), **settings) as (client, server):
        await client.ask(request(model=model, **parameters))
        names = ("max_tokens", "temperature", "top_p")
        assert {name: server.requests[0][name] for name in names if name in server.requests[0]} == sent


# --- how an answer ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("pause_turn", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refused"),
        ("tool_use", "end"),
        ("brand_new", "end"),
    ],
)
async def test_each_stop_reason_is_mapped(reason: str, stop: str) -> None:
    async with asked(Says("text", stop=reason)) as (client, _):
        assert (await client.ask()).stop == stop


@pytest.mark.parametrize(
    ("reason", "arguments", "stop", "count"),
    [
        ("max_tokens", '{"path": "a', "length", 1),
        ("max_tokens", "", "length", 1),
        ("max_tokens", "{}", "calls", 2),
        ("refusal", "{}", "refused", 0),
        ("tool_use", "{nonsense", "calls", 2),
    ],
)
async def test_a_truncated_or_refused_call_is_not_run(reason: str, arguments: str, stop: str, count: int) -> None:
    async with asked(Says("", ("read", "{}"), ("read", arguments), stop=reason)) as (client, _):
        reply = await client.ask()
        assert (len(reply.calls), reply.stop) == (count, "calls" if count else stop)


async def test_an_empty_reply_is_valid_and_a_full_window_is_an_overflow() -> None:
    async with asked(Says(), Says(stop="model_context_window_exceeded")) as (client, _):
        assert (await client.ask()).text == ""
        with pytest.raises(ContextOverflow):
            await client.ask()


async def test_a_cut_after_the_end_of_the_reply_is_ignored() -> None:
    whole = events_of({"model": "m", "messages": []}, Says("one two"))
    for end, events in (("reset", whole[:-1]), ("hang", whole)):
        async with asked(Fault(end=end, events=events)) as (client, _), deadline():
            assert (await client.ask()).text == "one two"


async def test_odd_streams_of_compatible_servers_are_understood() -> None:
    start = event("content_block_start", index=0, content_block={"type": "text", "text": "a"})
    again = start.replace(b'"a"', b'"b\\ud800"')
    unannounced = event("content_block_delta", index=7, delta={"type": "text_delta", "text": "c"})
    whole = {"type": "tool_use", "id": "t", "name": "read", "input": {"path": "x"}}
    call = event("content_block_start", index=8, content_block=whole)
    unknown = event("content_block_start", index=9, content_block={"type": "new"}) + event("brand_new", index=9)
    end = event("message_delta", delta={"stop_reason": "end_turn"}) + event("message_stop")
    async with asked(RawResponse(start + again + unannounced + call + unknown + end)) as (client, _):
        reply = await client.ask()
        assert (reply.text, "".join(client.deltas)) == ("ab\ufffdc", "ab\ufffdc")
        assert [c.arguments for c in reply.calls] == ['{"path":"x"}']
        assert (reply.model, reply.usage, reply.stop) == ("claude-test", None, "calls")


async def test_a_server_that_does_not_stream_is_understood() -> None:
    content = [{"type": "text", "text": "hello"}, {"type": "tool_use", "id": "t", "name": "read", "input": {"a": 1}}]
    usage = {"input_tokens": 3, "output_tokens": 1}
    whole = {"type": "message", "model": "m", "content": content, "stop_reason": "tool_use", "usage": usage}
    async with asked(Fault(body=json.dumps(whole).encode())) as (client, _):
        reply = await client.ask()
        assert (reply.text, reply.model, reply.usage) == ("hello", "m", Usage(input=3, output=1))
        assert [c.arguments for c in reply.calls] == ['{"a":1}']


async def test_cache_reads_and_writes_count_as_input() -> None:
    counts = {"input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300, "output_tokens": 1}
    async with asked(RawResponse(b"".join(events_of({"model": "m", "messages": []}, Says("a b"), counts)))) as (client, _):
        assert (await client.ask()).usage == Usage(input=325, output=5, cached=300)


async def test_a_smaller_count_at_the_end_is_ignored() -> None:
    start, *_, stop = events_of({"model": "m", "messages": []}, Says("a"), {"input_tokens": 5, "output_tokens": 1})
    end = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"input_tokens": 0, "output_tokens": 7})
    async with asked(RawResponse(start + end + stop)) as (client, _):
        assert (await client.ask()).usage == Usage(input=5, output=7)


# --- what goes wrong --------------------------------------------------------------------------------------------------


def in_stream(kind: str, message: str = "Sorry") -> RawResponse:
    return RawResponse(
        events_of({"model": "m", "messages": []}, Says("a"))[0] + event("error", error={"type": kind, "message": message})
    )


SPENT = refusal("Spend limit", "rate_limit_error", details={"error_code": "enforced_spend_limit_reached"})


@pytest.mark.parametrize(
    ("fault", "error", "requests"),
    [
        (Fault(status=400, body=refusal("Your credit balance is too low to access the API.")), RateLimited, 1),
        (Fault(status=429, body=SPENT), RateLimited, 1),
        (Fault(status=529, body=refusal("Overloaded", "overloaded_error")), Unreachable, 4),
        (Fault(status=400, body=refusal("thinking: budget_tokens is too small")), BadRequest, 1),
        (Fault(body=refusal("Overloaded", "overloaded_error")), StreamCut, 1),
        (in_stream("api_error"), StreamCut, 1),
        (in_stream("authentication_error"), CredentialsRefused, 1),
        (RawResponse(event("error", error="text")), StreamCut, 1),
        (RawResponse(event("message_stop")), StreamCut, 1),
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
        with pytest.raises(CredentialsRefused, match="ANTHROPIC_API_KEY"):
            await client.ask()
    async with provider("", key="", environment={"ANTHROPIC_API_KEY": KEY}) as client:
        assert client.provider.default_model() == NEW
        assert client.provider.explain_default() == "ANTHROPIC_API_KEY is set"
    async with provider("http://127.0.0.1:9/v1/", key="", default_model="llama") as client:
        assert client.provider.default_model() == "llama"
        assert client.provider.explain_default() == "providers.anthropic.base_url is set"
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            await client.ask()


async def test_limits_are_those_of_the_model_pages() -> None:
    async with provider("") as client:
        limits = client.provider.limits
        assert (limits(NEW).window, limits(NEW).output) == (1_000_000, 128_000)
        assert (limits("claude-opus-4-1-20250805").window, limits("claude-opus-4-1-20250805").output) == (200_000, 32_000)
        assert (limits("claude-opus-4-6").window, limits("llama").window) == (200_000, None)


async def test_configured_headers_are_sent() -> None:
    async with asked(Says("ok"), headers={"anthropic-beta": Secret("a-beta")}) as (client, server):
        await client.ask()
        assert server.headers[0]["anthropic-beta"] == "a-beta"
