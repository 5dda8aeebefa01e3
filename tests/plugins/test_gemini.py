"""The `gemini` provider against a server that is as strict, and as faulty, as the real one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plugins.api.models import ModelLimits
from plugins.providers.gemini.chat import Gemini
from plugins.providers.gemini.request import EARLIER, GO_ON, NO_TEXT, UNSIGNED, Encoder
from plugins.providers.hosted.images import gemini_vision
from plugins.support.errors import BadAnswer, BadRequest, CredentialsRefused, ProviderError, RateLimited, StreamCut
from plugins.testing.servers.faulty_server import Fault, RawResponse
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage
from sessions.state.context import pair_results
from tests.plugins.provider_harness import READ, Harness, as_messages
from tests.servers.gemini_server import KEY, GeminiServer, Says, quota, refusal, what_is_wrong

HARNESS = Harness(Gemini, GeminiServer, model="gemini-3-test", key=KEY)
request, provider, asked = HARNESS.request, HARNESS.asking, HARNESS.serving


def result(call: str, text: str = "done", *, failed: bool = False) -> ToolMessage:
    return ToolMessage(id=call, tool="read", text=text, failed=failed)


# --- a conversation ---------------------------------------------------------------------------------------------------


async def test_a_reply_is_streamed_as_deltas_and_returned_with_its_usage() -> None:
    async with asked(Says("one two three")) as (client, server):
        reply = await client.ask(request(tools=(READ,), temperature=0.5, top_p=0.9, max_tokens=50))
        assert client.deltas == ["one ", "two ", "three"]
        assert (reply.text, reply.stop, reply.model) == ("one two three", "end", "gemini-3-test-001")
        assert reply.usage == Usage(input=40, output=103, cached=10)
        assert server.requests == [
            {
                "systemInstruction": {"parts": [{"text": "Be brief."}]},
                "tools": [
                    {
                        "functionDeclarations": [
                            {"name": "read", "description": "Reads.", "parametersJsonSchema": READ.parameters}
                        ]
                    }
                ],
                "generationConfig": {
                    "temperature": 0.5,
                    "topP": 0.9,
                    "maxOutputTokens": 50,
                    "thinkingConfig": {"includeThoughts": True},
                },
                "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            }
        ]


async def test_the_key_is_sent_in_a_header_and_not_in_the_url() -> None:
    async with asked(Says("ok"), max_output_tokens=7) as (client, server):
        await client.ask(request(model="models/gemini-3-test"))
        await client.ask(request(model="../x?y"))
        assert [headers["x-goog-api-key"] for headers in server.headers] == [KEY, KEY]
        assert server.headers[0]["Accept-Encoding"] == "identity"
        assert server.requests[0]["generationConfig"] == {"maxOutputTokens": 7, "thinkingConfig": {"includeThoughts": True}}
        assert server.paths == [
            "/v1beta/models/gemini-3-test:streamGenerateContent?alt=sse",
            "/v1beta/models/..%2Fx%3Fy:streamGenerateContent?alt=sse",
        ]


async def test_signatures_are_sent_back_on_the_same_parts() -> None:
    answers = (
        Says("I look", ("read", {"path": "a"}), ("read", {"path": "b"})),
        Says("", ("read", {"path": "c"})),
        Says("all done"),
        Says("bye"),
    )
    async with asked(*answers) as (client, server):
        messages: list[Message] = [UserMessage(text="go")]
        for seq in range(3):
            reply = await client.ask(request(*messages, tools=(READ,)))
            messages.append(as_messages(reply, seq)[0])
            messages += [result(call.id, failed=call.id == "call_0_1") for call in messages[-1].calls]  # type: ignore[union-attr]
        assert [call.id for call in reply.calls] == []
        await client.ask(request(*messages, UserMessage(text="thanks")))
        first, second, third = sorted(server.signatures)[:3]
        assert server.requests[-1]["contents"] == [
            {"role": "user", "parts": [{"text": "go"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "I look"},
                    {
                        "functionCall": {"id": "g10", "name": "read", "args": {"path": "a"}},
                        "thoughtSignature": first,
                    },
                    {"functionCall": {"id": "g11", "name": "read", "args": {"path": "b"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "g10", "name": "read", "response": {"output": "done"}}},
                    {"functionResponse": {"id": "g11", "name": "read", "response": {"error": "done"}}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {
                        "functionCall": {"id": "g20", "name": "read", "args": {"path": "c"}},
                        "thoughtSignature": second,
                    }
                ],
            },
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "g20", "name": "read", "response": {"output": "done"}}}],
            },
            {"role": "model", "parts": [{"text": "all done"}, {"text": "", "thoughtSignature": third}]},
            {"role": "user", "parts": [{"text": "thanks"}]},
        ]


async def test_a_call_that_lost_its_signature_is_refused_by_the_server() -> None:
    """The guard of the test above: the server sees what is missing."""
    parts = [{"functionCall": {"id": "x", "name": "read", "args": {}}}]
    answer = {"functionResponse": {"id": "x", "name": "read", "response": {}}}
    contents = [{"role": "user", "parts": [{"text": "go"}]}, {"role": "model", "parts": parts}]
    wrong = what_is_wrong({"contents": [*contents, {"role": "user", "parts": [answer]}]}, set())
    assert wrong is not None
    assert "missing a thought_signature" in wrong


async def test_a_call_without_its_result_is_refused_with_the_services_message() -> None:
    call = AssistantMessage(text="", calls=(ToolCall(id="call_4_0", tool="read", arguments="{}"),))
    async with asked() as (client, _):
        with pytest.raises(BadRequest, match="number of function response parts"):
            await client.ask(request(UserMessage(text="go"), call, UserMessage(text="and?")))


@pytest.mark.parametrize(("model", "signed"), [("gemini-3-test", True), ("gemini-2.5-flash", False)])
async def test_a_conversation_of_another_provider_can_be_continued(model: str, signed: bool) -> None:
    calls = (ToolCall(id="call_4_0", tool="read", arguments='{"a":1}'), ToolCall(id="call_4_1", tool="read", arguments="["))
    messages = (
        AssistantMessage(text="Hello!", opaque="other:secret"),
        UserMessage(text="one"),
        AssistantMessage(text=""),
        UserMessage(text=""),
        AssistantMessage(text="hm", calls=calls, opaque='[{"size":2},{"signature":"foreign"},{}]'),
        result("call_4_0"),
        result("call_4_1"),
        UserMessage(text="three"),
        AssistantMessage(text="four"),
    )
    async with asked(Says("welcome")) as (client, server):
        assert (await client.ask(request(*messages, model=model))).text == "welcome"
        first = {"functionCall": {"id": "call_4_0", "name": "read", "args": {"a": 1}}}
        assert server.requests[0]["contents"] == [
            {"role": "user", "parts": [{"text": EARLIER}]},
            {"role": "model", "parts": [{"text": "Hello!"}]},
            {"role": "user", "parts": [{"text": "one"}, {"text": NO_TEXT}]},
            {
                "role": "model",
                "parts": [
                    {"text": "hm"},
                    first | ({"thoughtSignature": UNSIGNED} if signed else {}),
                    {"functionCall": {"id": "call_4_1", "name": "read", "args": {"not_an_object": "["}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": f"call_4_{n}", "name": "read", "response": {"output": "done"}}}
                    for n in range(2)
                ],
            },
            {"role": "user", "parts": [{"text": "three"}]},
            {"role": "model", "parts": [{"text": "four"}]},
            {"role": "user", "parts": [{"text": GO_ON}]},
        ]


_texts = st.sampled_from(["", "x", "two words"])
_opaques = st.sampled_from(
    [None, "other:x", "gemini:[", 'gemini:[{"size":1},{"id":"v","signature":"c2ln"}]', 'gemini:[{"size":-1}]']
)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    messages: list[Message] = []
    for n in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            messages.append(UserMessage(text=draw(_texts)))
        else:
            count = draw(st.integers(0, 2))
            calls = tuple(ToolCall(id=f"call_{n}_{i}", tool="read", arguments=draw(_texts)) for i in range(count))
            messages.append(AssistantMessage(text=draw(_texts), calls=calls, opaque=draw(_opaques)))
    return tuple(pair_results(messages))


@given(conversations(), st.sampled_from(["gemini-3-test", "gemini-2.5-flash"]))
def test_any_conversation_becomes_a_valid_request(messages: tuple[Message, ...], model: str) -> None:
    asked_ = request(model=model)
    asked_ = msgspec.structs.replace(asked_, context=msgspec.structs.replace(asked_.context, messages=messages))
    body = json.loads(Encoder().body(asked_, max_tokens=None))
    assert what_is_wrong(body, {"c2ln"} if model == "gemini-3-test" else None) is None
    said = "".join(part.get("text", "") for content in body["contents"] for part in content["parts"])
    assert all(message.text in said for message in messages if not isinstance(message, ToolMessage))


@given(conversations())
@example(
    (
        UserMessage(text="go"),
        AssistantMessage(text="", calls=(ToolCall(id="call_4_0", tool="read", arguments=""),), opaque='gemini:[{"id":"v"}]'),
        ToolMessage(id="call_4_0", tool="read", text="done"),
    )
)
def test_a_growing_conversation_is_encoded_like_a_new_one(messages: tuple[Message, ...]) -> None:
    growing = Encoder()
    for end in range(len(messages) + 1):
        grown = msgspec.structs.replace(request().context, messages=messages[:end])
        for model in ("gemini-3-test", "gemini-2.5-flash"):
            asked_ = msgspec.structs.replace(request(model=model), context=grown)
            assert growing.body(asked_, max_tokens=None) == Encoder().body(asked_, max_tokens=None)


# --- answers ----------------------------------------------------------------------------------------------------------


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    return (
        b"data: "
        + json.dumps({"candidates": [candidate | ({"finishReason": finish} if finish else {})], **more}).encode()
        + b"\r\n\r\n"
    )


END = chunk(finish="STOP")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (chunk({"text": "hi"}, finish="STOP"), "hi"),
        (chunk({"text": "a\u2028b"}) + END, "a\u2028b"),
        (chunk({"text": "x\ud800y"}) + END, "x\ufffdy"),
        (chunk({"text": "hm", "thought": True}, {"text": "hi"}) + END, "hi"),
        (chunk({"text": "hi"}) + b'data: {"candidates":[{"finishReason":"STOP","index":0}]}\n\n', "hi"),
        (b'data: {"candidates":[{"index":1,"content":{"parts":[{"text":"no"}]}}]}\n\n' + chunk({"text": "hi"}) + END, "hi"),
        (b'data: {"usageMetadata":{"promptTokenCount":3}}\n\n' + chunk({"text": "hi"}) + END, "hi"),
        (END, ""),
    ],
)
@pytest.mark.parametrize("size", [0, 1, 7])
async def test_streams_of_many_kinds_are_understood_however_they_are_split(content: bytes, text: str, size: int) -> None:
    async with asked(RawResponse(content, chunk=size)) as (client, _):
        reply = await client.ask()
        assert reply.text == text == "".join(client.deltas)
        assert reply.stop == "end"


async def test_a_server_that_does_not_stream_is_understood() -> None:
    chunks = [json.loads(event[5:]) for event in (chunk({"text": "hel"}), chunk({"text": "lo"}, finish="STOP"))]
    for body in (chunks, chunks[1]):
        async with asked(Fault(body=json.dumps(body).encode())) as (client, _):
            assert (await client.ask()).text in ("hello", "lo")


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ({"name": "read"}, "{}"),
        ({"name": "read", "args": None}, "{}"),
        ({"name": "read", "args": {"path": "ä\n"}}, '{"path": "\\u00e4\\n"}'),
        ({"name": "read", "args": "{bad"}, '"{bad"'),
    ],
)
async def test_arguments_are_kept_as_the_model_wrote_them(call: dict[str, Any], arguments: str) -> None:
    async with asked(RawResponse(chunk({"functionCall": call}, finish="STOP"))) as (client, _):
        reply = await client.ask()
        assert [(c.id, c.tool, c.arguments) for c in reply.calls] == [("", "read", arguments)]
        assert (reply.stop, reply.opaque) == ("calls", None)


@pytest.mark.parametrize(
    ("finish", "stop", "calls"),
    [
        ("STOP", "calls", 1),
        ("MAX_TOKENS", "calls", 1),
        ("SAFETY", "refused", 0),
        ("RECITATION", "refused", 0),
        ("PROHIBITED_CONTENT", "refused", 0),
        ("BRAND_NEW", "calls", 1),
    ],
)
async def test_each_finish_reason_is_mapped(finish: str, stop: str, calls: int) -> None:
    async with asked(Says("text", ("read", {}), finish=finish), Says("text", finish=finish)) as (client, _):
        reply = await client.ask()
        assert (reply.stop, len(reply.calls), reply.text) == (stop, calls, "text")
        plain = (await client.ask()).stop
        assert plain == {"STOP": "end", "MAX_TOKENS": "length", "BRAND_NEW": "end"}.get(finish, "refused")


# --- what goes wrong --------------------------------------------------------------------------------------------------


async def test_a_cut_after_the_end_of_the_reply_is_ignored() -> None:
    async with asked(Fault(end="reset", events=[chunk({"text": "one two"}, finish="STOP")])) as (client, _):
        assert (await client.ask()).text == "one two"


EXHAUSTED = quota("26s", "GenerateRequestsPerMinutePerProjectPerModel-FreeTier")
TOO_LONG = "The input token count (1179782) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize(
    ("fault", "error", "requests"),
    [
        (
            Fault(status=403, body=refusal(403, "Your API key was reported as leaked.", "PERMISSION_DENIED")),
            CredentialsRefused,
            1,
        ),
        (
            Fault(
                status=400,
                body=refusal(400, "User location is not supported for the API use.", "FAILED_PRECONDITION"),
            ),
            BadRequest,
            1,
        ),
        (Fault(status=429, body=quota("5s", "GenerateRequestsPerDayPerProjectPerModel-FreeTier")), RateLimited, 1),
        (RawResponse(b"data: [1]\n\n"), BadAnswer, 1),
        (RawResponse(b"data: {}\n\n"), StreamCut, 1),
        (RawResponse(chunk({"text": "x"}) + b"data: " + b'{"error": {"code": 503, "message": "gone"}}\n\n'), StreamCut, 1),
        (RawResponse(b'data: {"error": "text"}\n\n'), StreamCut, 1),
        (RawResponse(b'data: {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}\n\n'), BadRequest, 1),
        (Says("half", finish="MALFORMED_FUNCTION_CALL"), StreamCut, 1),
        (Says("half", finish="OTHER"), StreamCut, 1),
        (Says("", finish="MISSING_THOUGHT_SIGNATURE"), BadRequest, 1),
    ],
)
async def test_each_failure_has_its_error(fault: Any, error: type[ProviderError], requests: int) -> None:
    async with asked(fault) as (client, server):
        with pytest.raises(error) as raised:
            await client.ask()
        assert KEY not in str(raised.value)
        assert len(server.requests) == requests


@pytest.mark.parametrize(
    ("body", "headers", "slept"),
    [(EXHAUSTED, {}, 26.0), (quota("3.5s", "x"), {}, 3.5), (EXHAUSTED, {"Retry-After": "2"}, 2.0), (b"{}", {}, 1.0)],
)
async def test_the_pause_that_the_server_asks_for_is_made(body: bytes, headers: dict[str, str], slept: float) -> None:
    async with asked(Fault(status=429, body=body, headers=headers), Says("ok")) as (client, _):
        assert (await client.ask()).text == "ok"
        assert client.slept == [slept]


# --- being set up -----------------------------------------------------------------------------------------------------


async def test_it_is_chosen_automatically_only_with_a_key_or_an_address() -> None:
    async with provider("", key="") as client:
        assert client.provider.default_model() is None
        with pytest.raises(CredentialsRefused, match="GEMINI_API_KEY"):
            await client.ask()
    async with provider("", key="", environment={"GEMINI_API_KEY": f" {KEY}\n"}) as client:
        assert client.provider.default_model() == "gemini-3.8-flash"
        assert client.provider.explain_default() == "GEMINI_API_KEY is set"
    async with provider("http://127.0.0.1:9/", key="", default_model="gemini-x") as client:
        assert client.provider.default_model() == "gemini-x"
        assert client.provider.explain_default() == "providers.gemini.base_url is set"


TABLE: dict[str, Any] = {"window_from": "table", "output_from": "table"}


async def test_limits_of_googles_models_are_known() -> None:
    async with provider("") as client:
        limits = client.provider.limits
        assert (
            limits("gemini-3.8-flash")
            == limits("models/gemini-flash-latest")
            == ModelLimits(
                window=1_048_576,
                output=65_536,
                **TABLE,
                vision=gemini_vision("gemini-3.8-flash"),
                efforts=("low", "medium", "high"),
            )
        )
        assert limits("gemini-3-pro-image-preview") == ModelLimits(
            window=65_536, output=32_768, **TABLE, vision=gemini_vision("gemini-3")
        )
        assert limits("someone-elses") == ModelLimits(vision=gemini_vision("someone-elses"))
