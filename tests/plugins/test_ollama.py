"""The `ollama` provider against a server that is as strict, and as faulty, as the real ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.http.sse import LineStream, LineTooLong
from plugins.providers.ollama.address import server_address
from plugins.providers.ollama.chat import LOCAL_WINDOW, Ollama
from plugins.support.errors import (
    BadAnswer,
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    NoSuchModel,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.support.secrets import Secret
from plugins.testing.servers.faulty_server import Fault, RawResponse
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage
from tests.plugins.provider_harness import READ, Harness
from tests.servers.ollama_server import KEY, MODEL, OllamaServer, Says, engine_refusal, lines_of, refusal

HARNESS = Harness(Ollama, OllamaServer, model=MODEL, key="")
request, provider, asked = HARNESS.request, HARNESS.asking, HARNESS.serving


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_a_reply_is_streamed_as_deltas_and_returned_with_its_usage() -> None:
    async with asked(Says("one two three")) as (client, server):
        reply = await client.ask()
        assert client.deltas == ["one ", "two ", "three"]
        assert (reply.text, reply.stop, reply.model, reply.opaque) == ("one two three", "end", MODEL, None)
        assert reply.usage is not None
        assert (reply.usage.output, reply.usage.cached) == (3, reply.usage.input // 2)
        assert server.requests[0] == {
            "model": MODEL,
            "stream": True,
            "truncate": False,
            "shift": False,
            "options": {"num_ctx": LOCAL_WINDOW},
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        }
        assert server.headers[0]["Accept-Encoding"] == "identity"
        assert "Authorization" not in server.headers[0]


async def test_parallel_calls_and_the_parameters_of_a_request_have_the_servers_names() -> None:
    async with asked(Says("look", ("read", {"path": "a.md"}), ("read", {}))) as (client, server):
        reply = await client.ask(request(tools=(READ,), temperature=0.5, top_p=0.9, max_tokens=64, seed=None))
        assert [(c.id, c.tool, json.loads(c.arguments)) for c in reply.calls] == [
            ("call_00000000", "read", {"path": "a.md"}),
            ("call_00000001", "read", {}),
        ]
        assert (reply.text, reply.stop) == ("look", "calls")
        sent = server.requests[0]
        assert sent["options"] == {"num_ctx": LOCAL_WINDOW, "temperature": 0.5, "top_p": 0.9, "num_predict": 64}
        assert [(t["type"], t["function"]["name"]) for t in sent["tools"]] == [("function", "read")]


async def test_thinking_before_a_call_is_sent_back_with_its_result_and_other_thinking_is_dropped() -> None:
    async with asked(Says("", ("read", {}), thinking="I should look."), Says("done", thinking="That was it.")) as (
        client,
        server,
    ):
        first = await client.ask(request(tools=(READ,)))
        assert client.deltas == []
        assert first.opaque == "ollama:I should look."
        call = ToolCall(id="call_4_0", tool="read", arguments=first.calls[0].arguments)
        answered = (
            UserMessage(text="hi"),
            AssistantMessage(text=first.text, calls=(call,), opaque=first.opaque),
            ToolMessage(id="call_4_0", tool="read", text="text"),
        )
        last = await client.ask(request(*answered, tools=(READ,)))
        assert server.requests[1]["messages"][2] == {
            "role": "assistant",
            "content": "",
            "thinking": "I should look.",
            "tool_calls": [{"id": "call_4_0", "function": {"index": 0, "name": "read", "arguments": {}}}],
        }
        assert (last.text, last.opaque) == ("done", None)


SPOKEN = ["system", "assistant", "user", "user", "assistant", "user", "assistant"]


async def test_any_conversation_becomes_a_valid_request() -> None:
    calls = tuple(
        ToolCall(id=f"call_4_{n}", tool="read", arguments=arguments)
        for n, arguments in enumerate(['{"a": 1}', "", "[1]", '{"a": ', '{"a": NaN}', '"\\ud800"', "[" * 5_000])
    )
    messages: tuple[Message, ...] = (
        AssistantMessage(text="Welcome."),
        UserMessage(text="one"),
        UserMessage(text="two"),
        AssistantMessage(text="", opaque="anthropic:signed"),
        UserMessage(text="go"),
        AssistantMessage(text="", calls=calls, opaque="gemini:signed"),
        *(ToolMessage(id=call.id, tool="read", text="text", failed=call.id == "call_4_1") for call in calls),
    )
    async with asked(Says("done")) as (client, server):
        assert (await client.ask(request(*messages, tools=(READ,)))).text == "done"
        sent = server.requests[0]["messages"]
        assert [m["role"] for m in sent] == [*SPOKEN, *["tool"] * 7]
        assert "signed" not in json.dumps(sent)
        assert [c["function"]["arguments"] for c in sent[6]["tool_calls"]] == [
            {"a": 1}, {}, *({"not_an_object": call.arguments} for call in calls[2:])
        ]  # fmt: skip
        assert sent[7:9] == [
            {"role": "tool", "tool_name": "read", "tool_call_id": "call_4_0", "content": "text"},
            {"role": "tool", "tool_name": "read", "tool_call_id": "call_4_1", "content": "Error: text"},
        ]


def line(message: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"model": "m", "message": {"role": "assistant", **message}, "done": False, **more}).encode() + b"\n"


DONE = line({"content": ""}, done=True, done_reason="stop")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (line({"content": "hi"}) + DONE, "hi"),
        (line({"content": "hi"}, done=True), "hi"),
        (line({"content": "hi"}).replace(b"\n", b"\r\n") + b"\r\n\n" + DONE, "hi"),
        (line({"content": "a\u2028b\r"}) + DONE, "a\u2028b\r"),
        (line({"content": "x\ud800y"}) + DONE, "x\ufffdy"),
        (line({"thinking": "hm"}) + line({"content": None, "tool_calls": None}) + line({"content": "hi"}) + DONE, "hi"),
        (line({"content": "hi"}) + DONE + b"what comes behind is no part of it", "hi"),
    ],
)
@pytest.mark.parametrize("size", [0, 1, 7])
async def test_streams_of_many_kinds_are_understood_however_they_are_split(content: bytes, text: str, size: int) -> None:
    async with asked(RawResponse(content, chunk=size)) as (client, _):
        reply = await client.ask()
        assert reply.text == text == "".join(client.deltas)
        assert reply.usage is None


@pytest.mark.parametrize(
    ("arguments", "text"), [({"a": 1}, '{"a":1}'), ('{"a": 1}', '{"a": 1}'), ("no JSON", "no JSON"), (None, "{}")]
)
async def test_arguments_of_any_type_become_text(arguments: Any, text: str) -> None:
    calls = [{"function": {"name": "read", "arguments": arguments}}, {"function": {"arguments": {}}}, {}]
    async with asked(RawResponse(line({"tool_calls": calls}) + DONE)) as (client, _):
        assert [(c.id, c.tool, c.arguments) for c in (await client.ask()).calls] == [("", "read", text)]


async def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = line({"content": "hello"}, done=True, done_reason="stop", prompt_eval_count=3, eval_count=1).strip()
    async with asked(Fault(body=whole)) as (client, _):
        reply = await client.ask()
        assert (reply.text, reply.usage) == ("hello", Usage(input=3, output=1))


@pytest.mark.parametrize(("finish", "stop"), [("length", "length"), ("stop", "end"), ("brand_new", "end")])
async def test_each_finish_reason_is_mapped(finish: str, stop: str) -> None:
    async with asked(Says("text", finish=finish)) as (client, _):
        assert (await client.ask()).stop == stop


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["reset", "cut", "hang"])
async def test_a_fault_after_the_end_of_the_reply_is_ignored(end: str) -> None:
    whole = lines_of({"model": "m", "messages": []}, Says("one two"))
    async with asked(Fault(end=end, events=whole)) as (client, _):
        assert (await client.ask()).text == "one two"


OVERFLOWS = [
    engine_refusal("request (9 tokens) exceeds the available context size (8 tokens)", "exceed_context_size_error"),
    refusal("the input length exceeds the context length"),
    refusal("prompt too long; exceeded max context length by 17 tokens (ref: 1)"),
]
LIMITS = ["8 tokens", "context length", "17 tokens"]


@pytest.mark.parametrize(
    ("fault", "error", "requests"),
    [
        (Fault(status=403, body=refusal("this model requires a subscription")), NoSuchModel, 1),
        (Fault(status=404, body=b"404 page not found", media="text/plain"), NoSuchModel, 1),
        (Fault(status=400, body=engine_refusal("no such thing", "invalid_request_error")), BadRequest, 1),
        (Fault(status=429, body=refusal("you (x) have reached your session usage limit")), RateLimited, 1),
        (
            Fault(status=503, body=refusal("server busy, please try again.  maximum pending requests exceeded")),
            Unreachable,
            4,
        ),
        (Fault(status=500, body=refusal("model requires more system memory (9 GiB) than is available")), Unreachable, 1),
        (RawResponse(b'{"message": 7}\n'), BadAnswer, 1),
        (RawResponse(b'{"error": {"code": 7}}\n'), StreamCut, 1),
        (RawResponse(line({"content": "a"}) + DONE[:-1]), StreamCut, 1),
        (RawResponse(line({"content": "a"})), StreamCut, 1),
    ],
)
async def test_each_failure_has_its_error(fault: Any, error: type[ProviderError], requests: int) -> None:
    async with asked(fault, key=KEY) as (client, server):
        with pytest.raises(error) as raised:
            await client.ask()
        assert type(raised.value) is error
        assert KEY not in str(raised.value)
        assert len(server.requests) == requests


@pytest.mark.parametrize(("body", "limit"), [*zip(OVERFLOWS, LIMITS, strict=True)])
async def test_an_overflow_has_a_readable_message(body: bytes, limit: str) -> None:
    async with asked(Fault(status=400, body=body)) as (client, _):
        with pytest.raises(ContextOverflow, match=limit) as raised:
            await client.ask()
        assert "{" not in str(raised.value)


async def test_a_refusal_contains_the_servers_message() -> None:
    async with asked(server=OllamaServer(can=())) as (client, _):
        with pytest.raises(NoSuchModel, match=r"model 'other' not found\. `ollama pull`"):
            await client.ask(request(model="other"))
        with pytest.raises(BadRequest, match="does not support tools"):
            await client.ask(request(tools=(READ,)))
        with pytest.raises(BadRequest, match='option "num_predict" must be of type integer'):
            await client.ask(request(max_tokens="many"))
    async with asked(server=OllamaServer(can=()), think="on") as (client, _):
        with pytest.raises(BadRequest, match="does not support thinking"):
            await client.ask()
    async with asked(server=OllamaServer(key=KEY), key="wrong") as (client, _):
        with pytest.raises(CredentialsRefused, match="unauthorized"):
            await client.ask()


@pytest.mark.parametrize("old", [False, True])
async def test_a_truncated_conversation_gets_no_reply(old: bool) -> None:
    async with asked(server=OllamaServer(Says("sure"), old=old), context_window=512) as (client, server):
        with pytest.raises(ContextOverflow, match="512"):
            await client.ask(request(UserMessage(text="x" * 4000)))
        assert server.requests[0]["options"]["num_ctx"] == 512
        assert (await client.ask(request(UserMessage(text="x" * 400)))).text == "sure"


@given(st.lists(st.sampled_from([b"", b"a", b"b\r", b"\n", b"\r\n", b"long line", b"\xff\n"])))
def test_lines_do_not_depend_on_the_chunks(pieces: list[bytes]) -> None:
    lines = LineStream(100)
    found = [line_ for piece in pieces for line_ in lines.feed(piece)]
    *ended, rest = b"".join(pieces).split(b"\n")
    assert (found, lines.rest) == ([line_ for line_ in ended if line_.strip()], rest.strip())


def test_a_line_that_is_too_long_is_refused() -> None:
    lines = LineStream(3)
    assert list(lines.feed(b"abc\nabc")) == [b"abc"]
    with pytest.raises(LineTooLong):
        list(lines.feed(b"d"))


# --- being set up -----------------------------------------------------------------------------------------------------


async def test_it_is_chosen_automatically_only_with_an_address_or_a_model() -> None:
    async with provider("", environment={"OLLAMA_API_KEY": KEY}) as client:
        assert client.provider.default_model() is None
        assert client.provider.explain_default() == "neither OLLAMA_HOST nor providers.ollama.default_model is set"
    async with provider("", environment={"OLLAMA_HOST": "0.0.0.0"}) as client:
        assert client.provider.default_model() == "llama3.2"
        assert client.provider.explain_default() == "OLLAMA_HOST is set"
    async with provider("gpu", default_model="qwen3", environment={"OLLAMA_HOST": "other"}) as client:
        assert client.provider.default_model() == "qwen3"
        assert client.provider.explain_default() == "providers.ollama.base_url is set"
    async with provider("", default_model="qwen3") as client:
        assert client.provider.default_model() == "qwen3"
        assert client.provider.explain_default() == "providers.ollama.default_model is set"


async def test_a_model_has_the_configured_window_and_a_cloud_model_its_own() -> None:
    async with provider("") as client:
        assert client.provider.limits("gpt-oss:20b").window == LOCAL_WINDOW
        assert client.provider.limits("gpt-oss:120b-cloud").window == 131_072
        assert client.provider.limits("brand-new:cloud").window is None
    async with provider("https://ollama.com/api", max_output_tokens=100) as client:
        assert client.provider.limits("gpt-oss:20b").window == 131_072
        assert client.provider.limits("gpt-oss:20b").output == 100
    async with provider("ollama.com", context_window=50_000) as client:
        assert client.provider.limits("gpt-oss:20b").window == 50_000


async def test_every_setting_reaches_the_server() -> None:
    settings = {"think": "low", "keep_alive": "30m", "max_output_tokens": 50, "headers": {"X-Team": Secret("blue")}}
    async with asked(server=OllamaServer(key=KEY), environment={"OLLAMA_API_KEY": f" {KEY}\n"}, **settings) as (
        client,
        server,
    ):
        await client.ask()
        sent = server.requests[0]
        assert (sent["think"], sent["keep_alive"], sent["options"]["num_predict"]) == ("low", "30m", 50)
        assert server.headers[0]["X-Team"] == "blue"
    for word, value in (("on", True), ("off", False)):
        async with asked(think=word) as (client, server):
            await client.ask(request())
            assert server.requests[0]["think"] is value


async def test_the_cloud_gets_no_request_without_a_key() -> None:
    async with provider("https://ollama.com") as client:
        with pytest.raises(CredentialsRefused, match="OLLAMA_API_KEY"):
            await client.ask()


@pytest.mark.parametrize(
    ("spelling", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("http://0.0.0.0:11434/", "http://127.0.0.1:11434"),
        (":8080", "http://127.0.0.1:8080"),
        ("gpu", "http://gpu:11434"),
        (" 'gpu:8080' ", "http://gpu:8080"),
        ('"10.0.0.7"', "http://10.0.0.7:11434"),
        ("gpu:no", "http://gpu:11434"),
        ("gpu:70000", "http://gpu:11434"),
        ("gpu:", "http://gpu:11434"),
        ("http://gpu", "http://gpu:80"),
        ("HTTPS://gpu/", "https://gpu:443"),
        ("https://gpu:8443/ollama/", "https://gpu:8443/ollama"),
        ("http://gpu:11434/v1", "http://gpu:11434"),
        ("http://gpu:11434/api/", "http://gpu:11434"),
        ("https://me:secret@gpu/", "https://me:secret@gpu:443"),
        ("ollama.com", "https://ollama.com:443"),
        ("http://ollama.com/api", "https://ollama.com:443"),
        ("::", "http://[::1]:11434"),
        ("::1", "http://[::1]:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("[::]:8080", "http://[::1]:8080"),
        ("http://[fe80::1]:8080", "http://[fe80::1]:8080"),
    ],
)
def test_every_notation_of_a_host_is_an_address(spelling: str, address: str) -> None:
    assert server_address(spelling) == address


async def test_an_invalid_host_is_a_readable_error() -> None:
    for spelling in ("ftp://gpu", "http://", "a b", "[", "http://[:::]:1", "@", "::::::"):
        async with provider("", environment={"OLLAMA_HOST": spelling}) as client:
            with pytest.raises(ProviderError):
                await client.ask()


async def test_a_request_repeats_its_beginning() -> None:
    messages: tuple[Message, ...] = tuple(UserMessage(text=f"message {n}") for n in range(50))
    async with asked() as (client, server):
        await client.ask(request(*messages))
        await client.ask(request(*messages, AssistantMessage(text="yes"), UserMessage(text="more")))
        first, second = server.requests
        assert second["messages"][: len(first["messages"])] == first["messages"]
