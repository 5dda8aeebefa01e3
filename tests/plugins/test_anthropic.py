"""The `anthropic` provider against a server that is as strict, and as faulty, as the real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.chat.anthropic import Anthropic, AnthropicSettings
from plugins.chat.anthropic_request import Encoder, turns_of
from plugins.chat.remembered import Remembered
from plugins.contracts import ChatRequest, Delta, House, Reply
from plugins.errors import (
    BadAnswer,
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.secrets import Secret
from plugins.transport import Limits, Transport
from sessions.context import Context, paired
from sessions.messages import AssistantMessage, Message, ToolCall, ToolDefinition, ToolMessage, Usage, UserMessage
from tests.servers.anthropic_rules import what_is_wrong
from tests.servers.anthropic_server import KEY, AnthropicServer, Says, event, events_of, refusal
from tests.servers.openai_server import Fault, Raw
from tests.stories import SetClock

READ = ToolDefinition(name="read", description="Reads.", parameters={"type": "object", "properties": {}})
OLD, NEW = "claude-haiku-4-5", "claude-sonnet-5-5"


def request(
    *messages: Message, tools: tuple[ToolDefinition, ...] = (), model: str = "claude-test", **parameters: Any
) -> ChatRequest:
    context = Context(
        instructions="Be brief.", tools=tools, parameters=parameters, messages=messages or (UserMessage(text="hi"),)
    )
    return ChatRequest(model=model, context=context, purpose="answer", session="s")


def called(seq: int, reply: Reply) -> tuple[Message, ...]:
    """A reply with calls and their results, as the transcript has them: the ids are ours."""
    calls = tuple(
        ToolCall(id=f"call_{seq}_{n}", tool=call.tool, arguments=call.arguments) for n, call in enumerate(reply.calls)
    )
    answer = AssistantMessage(text=reply.text, calls=calls, opaque=reply.opaque)
    return answer, *(ToolMessage(id=call.id, tool=call.tool, text="a result") for call in calls)


class Asked:
    """A provider on a transport that does not wait, and what it said."""

    def __init__(self, provider: Anthropic, slept: list[float]) -> None:
        self.provider = provider
        self.slept = slept
        self.deltas: list[str] = []

    async def ask(self, request_: ChatRequest | None = None) -> Reply:
        self.deltas = []
        async with aclosing(self.provider.stream(request_ or request())) as stream:
            async for part in stream:
                if isinstance(part, Reply):
                    return part
                assert isinstance(part, Delta)
                self.deltas.append(part.text)
        raise AssertionError("the stream ended without a reply or an error")


@asynccontextmanager
async def provider(
    url: str, *, key: str = KEY, limits: Limits | None = None, environment: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[Asked]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    if url:
        settings["base_url"] = url
    async with Transport(sleep=sleep, chance=lambda: 1.0, limits=limits) as transport:
        house = House(
            settings=AnthropicSettings(api_key=Secret(key) if key else None, **settings),
            folder=Path("unused"),
            workspace=Path("unused"),
            clock=SetClock(),
            transport=transport,
            environment=environment or {},
        )
        async with Anthropic(house) as opened:
            yield Asked(opened, slept)


@asynccontextmanager
async def asked(*answers: Any, **options: Any) -> AsyncIterator[tuple[Asked, AnthropicServer]]:
    async with AnthropicServer(*answers).serving() as server, provider(server.url, **options) as asked_:
        yield asked_, server


async def test_text_comes_in_pieces_and_then_whole_with_its_usage() -> None:
    async with asked(Says("one two three")) as (client, server):
        reply = await client.ask()
        assert client.deltas == ["one ", "two ", "three"]
        assert (reply.text, reply.stop, reply.model) == ("one two three", "end", "claude-test-20260101")
        assert (reply.calls, reply.opaque) == ((), None)
        assert server.requests[0]["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}
        ]
        assert server.headers[0]["anthropic-version"] == "2023-06-01"


async def test_the_connection_is_used_again_though_its_end_comes_late_and_padded() -> None:
    whole = b"".join(events_of({"model": "m", "messages": []}, Says("hello")))
    async with asked(Raw(whole, delay=0.05)) as (client, server):
        for _ in range(3):
            assert (await client.ask()).text == "hello"
        assert len(server.connections) == 1


async def test_calls_are_put_together_from_their_fragments() -> None:
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


async def test_many_calls_and_their_results_are_one_turn_each() -> None:
    async with asked(Says("", *(("read", json.dumps({"n": n})) for n in range(1000))), Says("ok")) as (client, server):
        reply = await client.ask(request(tools=(READ,)))
        assert [json.loads(c.arguments)["n"] for c in reply.calls] == list(range(1000))
        await client.ask(request(UserMessage(text="hi"), *called(4, reply), tools=(READ,)))
        assert [len(m["content"]) for m in server.requests[1]["messages"]] == [1, 1000, 1000]


# --- the cache --------------------------------------------------------------------------------------------------------


async def test_each_request_reads_from_the_cache_what_the_one_before_sent() -> None:
    async with asked(Says("", *(("read", "{}") for _ in range(30))), Says("done")) as (client, _):
        messages: tuple[Message, ...] = (UserMessage(text="a question of some length " * 20),)
        first = await client.ask(request(*messages, tools=(READ,)))
        messages += called(4, first)
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


async def test_a_conversation_begun_with_another_provider_goes_on() -> None:
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
    return tuple(paired(named))


@given(messages_, st.booleans())
def test_whatever_a_conversation_looks_like_the_service_takes_it(messages: list[Message], offered: bool) -> None:
    asked_ = request(*numbered(messages), tools=(READ,) if offered else (), temperature=2.0, top_p=0.5, model=OLD)
    assert what_is_wrong(json.loads(Encoder().body(asked_))) is None


@given(st.lists(st.tuples(st.integers(0, 9), messages_), max_size=6))
def test_what_is_remembered_says_the_same_as_what_is_encoded_anew(changes: list[tuple[int, list[Message]]]) -> None:
    remembered = Remembered(2_000)
    encoder = Encoder(remembered)
    messages: list[Message] = []
    for forgotten, more in changes:
        messages = messages[forgotten if forgotten < 4 else 0 :] + more  # at times a compaction takes the first ones
        asked_ = request(*numbered(messages))
        assert json.loads(encoder.body(asked_)) == json.loads(Encoder().body(asked_))
        assert remembered.size <= 2_000


def test_a_long_conversation_is_encoded_only_where_it_is_new() -> None:
    remembered = Remembered()
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


async def test_signed_thoughts_come_back_with_the_results_in_their_place_and_not_later() -> None:
    async with asked(Says(parts=MIXED), Says("", ("read", "{}"), thoughts="Again."), Says("done")) as (client, server):
        begun: tuple[Message, ...] = (UserMessage(text="go"),)
        first = await client.ask(request(*begun, tools=(READ,)))
        assert (first.text, first.opaque is None) == ("I look.Twice.", False)
        begun += called(4, first)
        second = await client.ask(request(*begun, tools=(READ,)))
        begun += called(8, second)
        assert (await client.ask(request(*begun, tools=(READ,)))).text == "done"
        sent = server.requests[2]["messages"]
        assert [block["type"] for block in sent[1]["content"]] == [part["type"] for part in MIXED]
        assert sent[1]["content"][0]["thinking"] == THINKING["thinking"]
        assert sent[3]["content"][0]["thinking"] == "Again."
        begun += (AssistantMessage(text="done"), UserMessage(text="and now?"))
        await client.ask(request(*begun, tools=(READ,)))
        assert b"thinking" not in json.dumps(server.requests[3]["messages"]).encode()
        assert server.refused == []


async def test_thoughts_that_a_pruned_past_invalidates_are_left_out_and_the_turn_goes_on() -> None:
    async with asked(Says("", ("read", "{}"), thoughts="Look."), Says("done")) as (client, server):
        first = await client.ask(request(UserMessage(text="a long question"), tools=(READ,)))
        pruned = request(UserMessage(text="[cut]"), *called(4, first), tools=(READ,))
        assert (await client.ask(pruned)).text == "done"
        assert [words.partition(": ")[2] for words in server.refused] == ["Invalid `signature` in `thinking` block"]
        assert len(server.requests) == 3


async def test_a_round_that_another_provider_began_is_ended_without_the_demanded_thoughts() -> None:
    manual = {"type": "enabled", "budget_tokens": 1024}
    foreign = AssistantMessage(text="", calls=(ToolCall(id="call_4_0", tool="read", arguments="{}"),), opaque="openai:x")
    result = ToolMessage(id="call_4_0", tool="read", text="text")
    messages = (UserMessage(text="go"), foreign, result)
    async with asked(Says("done"), thinking=manual, effort="low") as (client, server):
        assert (await client.ask(request(*messages, tools=(READ,), model=OLD))).text == "done"
        await client.ask(request(*messages, AssistantMessage(text="done"), UserMessage(text="now?"), model=OLD))
        assert [asked_.get("thinking") for asked_ in server.requests] == [None, manual]
        assert server.requests[0]["output_config"] == {"effort": "low"}
        assert server.refused == []


async def test_thoughts_without_a_signature_are_not_kept() -> None:
    events = events_of({"model": "m", "messages": []}, Says("", ("read", "{}"), thoughts="Look."))
    async with asked(Raw(b"".join(e for e in events if b"signature_delta" not in e))) as (client, _):
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
async def test_parameters_are_sent_as_far_as_the_model_takes_them(
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
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refused"),
        ("tool_use", "end"),
        ("brand_new", "end"),
    ],
)
async def test_each_reason_for_an_end_has_its_meaning(reason: str, stop: str) -> None:
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
async def test_a_call_that_was_cut_short_or_withheld_is_not_run(reason: str, arguments: str, stop: str, count: int) -> None:
    async with asked(Says("", ("read", "{}"), ("read", arguments), stop=reason)) as (client, _):
        reply = await client.ask()
        assert (len(reply.calls), reply.stop) == (count, "calls" if count else stop)


async def test_an_empty_answer_is_one_and_a_window_without_room_for_any_is_an_overflow() -> None:
    async with asked(Says(), Says(stop="model_context_window_exceeded")) as (client, _):
        assert (await client.ask()).text == ""
        with pytest.raises(ContextOverflow):
            await client.ask()


async def test_a_cut_behind_the_end_of_the_answer_takes_nothing_from_it() -> None:
    whole = events_of({"model": "m", "messages": []}, Says("one two"))
    for end, events in (("reset", whole[:-1]), ("hang", whole)):
        async with asked(Fault(end=end, events=events)) as (client, _), asyncio.timeout(3):
            assert (await client.ask()).text == "one two"


async def test_odd_streams_of_compatible_servers_are_understood() -> None:
    start = event("content_block_start", index=0, content_block={"type": "text", "text": "a"})
    again = start.replace(b'"a"', b'"b\\ud800"')
    unannounced = event("content_block_delta", index=7, delta={"type": "text_delta", "text": "c"})
    whole = {"type": "tool_use", "id": "t", "name": "read", "input": {"path": "x"}}
    call = event("content_block_start", index=8, content_block=whole)
    unknown = event("content_block_start", index=9, content_block={"type": "new"}) + event("brand_new", index=9)
    end = event("message_delta", delta={"stop_reason": "end_turn"}) + event("message_stop")
    async with asked(Raw(start + again + unannounced + call + unknown + end)) as (client, _):
        reply = await client.ask()
        assert (reply.text, "".join(client.deltas)) == ("ab\ufffdc", "ab\ufffdc")
        assert [c.arguments for c in reply.calls] == ['{"path":"x"}']
        assert (reply.model, reply.usage, reply.stop) == ("claude-test", None, "calls")


async def test_what_was_read_from_and_written_to_the_cache_is_part_of_the_input() -> None:
    counts = {"input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300, "output_tokens": 1}
    async with asked(Raw(b"".join(events_of({"model": "m", "messages": []}, Says("a b"), counts)))) as (client, _):
        assert (await client.ask()).usage == Usage(input=325, output=5, cached=300)


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["cut", "reset", "close"])
@pytest.mark.parametrize("pieces", [0, 1, 5])
async def test_a_cut_stream_is_never_a_short_answer(end: str, pieces: int) -> None:
    async with asked(Fault(end=end, pieces=pieces)) as (client, _):
        with pytest.raises(StreamCut):
            await client.ask()


def in_stream(kind: str, message: str = "Sorry") -> Raw:
    return Raw(
        events_of({"model": "m", "messages": []}, Says("a"))[0] + event("error", error={"type": kind, "message": message})
    )


NO_ROOM = "input length and `max_tokens` exceed context limit: 198981 + 21333 > 200000, decrease input length"
SPENT = refusal("Spend limit", "rate_limit_error", details={"error_code": "enforced_spend_limit_reached"})


@pytest.mark.parametrize(
    ("fault", "error", "requests"),
    [
        (Fault(status=401, body=refusal("invalid x-api-key", "authentication_error")), CredentialsRefused, 1),
        (Fault(status=403, body=refusal("No permission", "permission_error")), CredentialsRefused, 1),
        (Fault(status=404, body=refusal("model: claude-x", "not_found_error")), BadRequest, 1),
        (Fault(status=400, body=refusal("prompt is too long: 208310 tokens > 200000 maximum")), ContextOverflow, 1),
        (Fault(status=400, body=refusal(NO_ROOM)), ContextOverflow, 1),
        (Fault(status=413, body=refusal("Request too large", "request_too_large")), ContextOverflow, 1),
        (Fault(status=400, body=refusal("Your credit balance is too low to access the API.")), RateLimited, 1),
        (Fault(status=402, body=refusal("Check your payment details", "billing_error")), RateLimited, 1),
        (Fault(status=429, body=refusal("Too many", "rate_limit_error")), RateLimited, 4),
        (Fault(status=429, body=SPENT), RateLimited, 1),
        (Fault(status=500, body=refusal("Internal server error", "api_error")), Unreachable, 4),
        (Fault(status=529, body=refusal("Overloaded", "overloaded_error")), Unreachable, 4),
        (Fault(status=503, body=b"<html>busy</html>", media="text/html"), Unreachable, 4),
        (Fault(status=302, headers={"Location": "http://127.0.0.1:1/steal"}), BadRequest, 1),
        (Fault(status=400, body=refusal("thinking: budget_tokens is too small")), BadRequest, 1),
        (Fault(body=b"<html>hello</html>", media="text/html"), BadAnswer, 1),
        (Fault(body=b"[[[", media="application/json"), BadAnswer, 1),
        (Fault(body=refusal("Overloaded", "overloaded_error")), StreamCut, 1),
        (Raw(b"data: {nonsense}\n\n"), BadAnswer, 1),
        (Raw(b"data: " + b"[" * 100_000 + b"\n\n"), BadAnswer, 1),
        (in_stream("overloaded_error"), StreamCut, 1),
        (in_stream("api_error"), StreamCut, 1),
        (in_stream("rate_limit_error"), RateLimited, 1),
        (in_stream("authentication_error"), CredentialsRefused, 1),
        (in_stream("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), ContextOverflow, 1),
        (Raw(event("error", error="text")), StreamCut, 1),
        (Raw(event("message_stop")), StreamCut, 1),
        (Raw(b""), StreamCut, 1),
        (Fault(headers={"Content-Encoding": "gzip"}, body=b"\x1f\x8b"), BadAnswer, 1),
    ],
)
async def test_every_failure_is_told_by_its_kind(fault: Any, error: type[ProviderError], requests: int) -> None:
    async with asked(fault) as (client, server):
        with pytest.raises(error) as raised:
            await client.ask()
        assert KEY not in str(raised.value)
        assert len(server.requests) == requests


async def test_a_phrase_in_a_persons_text_is_never_taken_for_an_error() -> None:
    text = "prompt is too long, exceed context limit, invalid signature in thinking block"
    async with asked(Says(text)) as (client, _):
        assert (await client.ask(request(UserMessage(text=text)))).text == text
    async with asked(Fault(status=400, body=refusal("messages: Field required"))) as (client, _):
        with pytest.raises(BadRequest):
            await client.ask(request(UserMessage(text=text)))


@pytest.mark.parametrize(("header", "slept"), [("2", 2.0), (None, 1.0)])
async def test_a_pause_that_the_server_asks_for_is_made(header: str | None, slept: float) -> None:
    headers = {"Retry-After": header} if header else {}
    busy = Fault(status=429, body=refusal("Too many", "rate_limit_error"), headers=headers)
    async with asked(busy, Says("ok")) as (client, _):
        assert (await client.ask()).text == "ok"
        assert client.slept == [slept]


async def test_a_server_that_hangs_or_drips_for_ever_is_given_up() -> None:
    async with asked(Fault(end="hang", pieces=3), between_seconds=0.2) as (client, _):
        with pytest.raises(StreamCut, match="nothing came"):
            await client.ask()
    drip = Raw(b": drip\n\n" * 100, chunk=8, delay=0.02)
    async with asked(drip) as (client, _):
        with pytest.raises(StreamCut):
            await client.ask()


async def test_a_line_without_end_is_given_up_in_bounded_memory() -> None:
    flood = Raw(b"data: " + b"x" * 3_000_000, chunk=100_000)
    async with asked(flood, limits=Limits(event=1_000_000)) as (client, _):
        with pytest.raises(BadAnswer, match="longer than"):
            await client.ask()


async def test_closing_the_stream_early_ends_the_request() -> None:
    async with asked(Says("a b c d e f g h", delay=0.2)) as (client, server):
        stream = client.provider.stream(request())
        assert await anext(stream) == Delta("a ")
        await stream.aclose()
        async with asyncio.timeout(3):
            while not server.disconnects:
                await asyncio.sleep(0.01)


# --- being set up -----------------------------------------------------------------------------------------------------


async def test_it_is_chosen_by_itself_only_with_a_key_or_an_address() -> None:
    async with provider("", key="") as client:
        assert client.provider.default_model() is None
        with pytest.raises(CredentialsRefused, match="ANTHROPIC_API_KEY"):
            await client.ask()
    async with provider("", key="", environment={"ANTHROPIC_API_KEY": KEY}) as client:
        assert client.provider.default_model() == NEW
        assert client.provider.why() == "ANTHROPIC_API_KEY is set"
    async with provider("http://127.0.0.1:9/v1/", key="", default_model="llama") as client:
        assert client.provider.default_model() == "llama"
        assert client.provider.why() == "providers.anthropic.base_url is set"
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            await client.ask()


async def test_limits_are_those_of_the_model_pages() -> None:
    async with provider("") as client:
        limits = client.provider.limits
        assert (limits(NEW).window, limits(NEW).output) == (1_000_000, 128_000)
        assert (limits("claude-opus-4-1-20250805").window, limits("claude-opus-4-1-20250805").output) == (200_000, 32_000)
        assert (limits("claude-opus-4-6").window, limits("llama").window) == (1_000_000, None)


async def test_a_key_that_was_copied_with_something_else_is_named_before_anything_is_sent() -> None:
    async with AnthropicServer().serving() as server, provider(server.url, key=f"{KEY}…") as client:
        with pytest.raises(CredentialsRefused, match=r"providers\.anthropic\.api_key") as raised:
            await client.ask()
        assert KEY not in str(raised.value)
        assert server.headers == []


async def test_headers_of_ones_own_are_sent() -> None:
    async with asked(Says("ok"), headers={"anthropic-beta": Secret("a-beta")}) as (client, server):
        await client.ask()
        assert server.headers[0]["anthropic-beta"] == "a-beta"
