"""What is wrong with a request is told in one sentence, in OpenAI's form, whatever somebody sends."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from gateway.http import request_bodies
from gateway.http.openai import api, exchanges
from gateway.http.openai.api_errors import ApiError
from gateway.http.openai.request_parser import parse_request
from gateway.http.openai.schema import ChatBody, decode_body
from gateway.http.openai.session_mode import new_message
from tests.gateway.gateways import TOKEN, Gateway, gateway, replies_wait
from tests.openai_api.asking import SAID, TOOLS
from tests.pictures import png
from tests.waiting import deadline, until

CHAT: dict[str, Any] = {"model": "exuvia", "messages": SAID}


@pytest.fixture(name="g")
async def _gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path) as g:
        yield g


async def ask(
    g: Gateway, body: Any, path: str = "chat/completions", method: str = "POST", **headers: str
) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    """The status, the error and the headers of a request's answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}"} | headers
    async with g.http.request(method, f"{g.url}/v1/{path}", data=data, headers=headers) as response:
        answer = await response.json()
        return response.status, answer.get("error"), response.headers


def said(content: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    return CHAT | {"messages": [*SAID, {"role": role, "content": content, **more}]}


def calling(*ids: str) -> dict[str, Any]:
    calls = [{"id": id_, "type": "function", "function": {"name": "weather", "arguments": "{}"}} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"x": schema}
    return schema


WRONG: list[tuple[Any, str, str | None]] = [
    (b"", "not valid JSON", None),
    (b"{", "not valid JSON", None),
    (b"\xff\xfe", "not valid JSON", None),
    (b'{"model": "\\ud800", "messages": [{"role": "user", "content": ""}]}', "not valid JSON", None),
    (b'{"model": "x", "messages": [{"role": "user", "content": ""}], "temperature": NaN}', "not valid JSON", None),
    (b"[" * 100_000, "nested too deeply|not valid", None),
    (b'{"metadata":' + b"[" * 100_000, "nested too deeply", None),
    ([], "Expected `object`", None),
    ({"messages": SAID}, "missing required field `model`", None),
    ({"model": "exuvia", "messages": []}, "length >= 1", "messages"),
    (CHAT | {"temprature": 1}, "Unrecognized request argument supplied: temprature", "temprature"),
    (CHAT | {"temperature": "hot"}, "Expected `float", "temperature"),
    (CHAT | {"temperature": 3}, "<= 2", "temperature"),
    (CHAT | {"max_tokens": 0}, ">= 1", "max_tokens"),
    (CHAT | {"stop": ["x"] * 5}, "length <= 4", "stop"),
    (CHAT | {"stream": "yes"}, "Expected `bool", "stream"),
    (CHAT | {"n": 2}, "each request has one answer", "n"),
    (CHAT | {"logprobs": True}, "logprobs is not supported", "logprobs"),
    (CHAT | {"functions": [{"name": "x"}]}, "send `tools` instead", "functions"),
    (CHAT | {"modalities": ["text", "audio"]}, "answers are text", "modalities"),
    (CHAT | {"tool_choice": "required"}, "only allowed when tools", "tool_choice"),
    (
        CHAT | {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}},
        "none of the tools",
        "tool_choice",
    ),
    (
        CHAT | {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        "a name of up to 64",
        "tools[0].function.name",
    ),
    (CHAT | {"tools": [{"type": "custom", "custom": {}}]}, "'custom'", "tools[0].type"),
    (
        CHAT | {"tools": [{"type": "function", "function": {"name": "x", "parameters": nested(150)}}]},
        "nested more than 100 levels",
        None,
    ),
    (CHAT | {"response_format": {"type": "xml"}}, "'xml'", "response_format.type"),
    (said("x", role="function"), "'function'", "messages[1].role"),
    (said(5), "Expected `str | array`", "messages[1].content"),
    (said([{"type": "video"}]), "'video'", "messages[1].content[0].type"),
    (said([{"type": "input_audio", "input_audio": {}}]), "only text and pictures", "messages[1].content[0]"),
    (said([{"type": "file", "file": {}}]), "only text and pictures", "messages[1].content[0]"),
    (said(None, role="assistant"), "needs content or tool_calls", "messages[1]"),
    (said("x", role="tool", tool_call_id="c1"), "must be a response to a preceding message", "messages"),
    (CHAT | {"messages": [*SAID, calling("c1")]}, "These have no response: c1", "messages"),
    (
        CHAT
        | {
            "messages": [
                *SAID,
                calling("c1", "c2"),
                {"role": "tool", "content": "x", "tool_call_id": "c1"},
                *SAID,
            ]
        },
        "These have no response: c2",
        "messages",
    ),
    (CHAT | {"messages": [{"role": "system", "content": "x"}]}, "at least one user message", "messages"),
    (
        said([{"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}}]),
        "pictures are not fetched",
        "messages[1].content[0].image_url.url",
    ),
    (
        said([{"type": "image_url", "image_url": {"url": "data:image/png;base64,####"}}]),
        "not valid base64",
        "messages[1].content[0].image_url.url",
    ),
    (
        said([{"type": "image_url", "image_url": {"url": "data:text/html;base64,PGI+"}}]),
        "not a complete PNG",
        "messages[1].content[0].image_url.url",
    ),
    (
        said(
            [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(png()).decode()}"}}],
        ),
        "scripted:echo does not accept pictures",
        "messages",
    ),
]
"""Of each body that is wrong: words of the sentence that says so, and where."""


async def test_an_invalid_request_gets_one_sentence(g: Gateway) -> None:
    told = [(await ask(g, body), words, param) for body, words, param in WRONG]
    for (status, error, _), words, param in told:
        assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param), error
        assert re.search(words, error["message"]), error
        assert len(error["message"]) < 600
        assert "\n" not in error["message"]


async def test_a_line_of_five_megabytes_is_answered(tmp_path: Path) -> None:
    data = json.dumps(CHAT | {"messages": [{"role": "user", "content": "lorem ipsum " * 450_000}]}).encode()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        gateway(tmp_path, script=[{"text": "Very long."}]) as g,
        g.http.post(f"{g.url}/v1/chat/completions", data=BytesIO(data), headers=headers) as response,
    ):
        assert (await response.json())["choices"][0]["message"]["content"] == "Very long."


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(g: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "BODY_BYTES", 1000)

    async def drips() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100

    for body in (b" " * 1001, drips()):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with g.http.post(f"{g.url}/v1/chat/completions", data=body, headers=headers) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (413, "request_too_large")


async def test_a_stalled_body_times_out(g: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "PIECE_SECONDS", 0.05)

    async def stands_still() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with g.http.post(f"{g.url}/v1/chat/completions", data=stands_still(), headers=headers) as response:
        assert response.status == 408


async def test_a_compressed_body_is_refused(g: Gateway) -> None:
    status, error, _ = await ask(g, b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    assert (status, error["type"]) == (415, "invalid_request_error")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "completions", 404, "unknown_url"),
        ("GET", "", 404, "unknown_url"),
        ("GET", "chat/completions", 405, "method_not_allowed"),
        ("DELETE", "models/exuvia", 405, "method_not_allowed"),
        ("GET", "models/nothing", 404, "model_not_found"),
    ],
)
async def test_unknown_paths_and_methods_are_errors(g: Gateway, method: str, path: str, status: int, code: str) -> None:
    found, error, _ = await ask(g, b"", path, method)
    assert (found, error["code"]) == (status, code)


async def test_requests_without_a_token_or_with_another_host_are_refused(g: Gateway) -> None:
    for headers in ({"Authorization": "Bearer wrong-token"}, {"Authorization": "Basic x"}, {"Authorization": ""}):
        status, error, answered = await ask(g, CHAT, **headers)
        assert (status, error["code"], answered["WWW-Authenticate"]) == (401, "invalid_api_key", "Bearer")
    async with g.http.post(f"{g.url}/v1/chat/completions", json=CHAT, params={"api_key": TOKEN}) as response:
        assert response.status == 401, "a token in the address counts for nothing"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for header in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        async with g.http.post(f"{g.url}/v1/chat/completions", json=CHAT, headers=headers | header) as response:
            assert response.status == 403


async def test_wrong_tokens_are_throttled_with_retry_after(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        for number in range(12):
            status, _, headers = await ask(g, CHAT, Authorization=f"Bearer guess-{number}")
            assert status == 401
        assert int(headers["Retry-After"]) >= 1
        assert (await ask(g, CHAT))[0] == 200, "and nobody else is"


@pytest.mark.parametrize("limit", ["OF_ONE_PERSON", "AT_ONCE"])
async def test_too_many_concurrent_requests_get_retry_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(api, limit, 1)
    async with gateway(tmp_path, script=[{"text": "word " * 1000, "delay_ms": 100}]) as g:

        def begin() -> Any:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            return g.http.post(f"{g.url}/v1/chat/completions", json={**CHAT, "stream": True}, headers=headers)

        async with begin() as first:
            await first.content.readline()
            async with begin() as second:
                assert (first.status, second.status) == (200, 429)
                assert ((await second.json())["error"]["code"], second.headers["Retry-After"]) == ("busy", "1")
        async with deadline():
            status = 429
            while status == 429:  # until it is noticed that the first client is gone
                async with begin() as next_:
                    status = next_.status
        assert status == 200


async def test_a_stopping_gateway_refuses_requests(tmp_path: Path) -> None:
    with replies_wait() as go_on:
        async with gateway(tmp_path, script=[{"text": "a word"}]) as g:
            client = await g.connect()
            await client.send("hold it open")
            await client.until_event("turn_started")
            g.daemon.stop()
            await until(lambda: g.daemon.readiness.refuses)
            status, error, headers = await ask(g, CHAT)
            assert (status, error["code"], headers["Retry-After"]) == (503, "unavailable", "1")
            go_on.set()


def test_every_parameter_of_openais_client_is_known() -> None:
    ours = {field.encode_name for field in msgspec.structs.fields(ChatBody)}
    theirs = set(get_type_hints(CompletionCreateParamsBase)) | {"stream"}
    assert theirs - ours == set()
    assert ours - theirs == set()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text("ab:,;", max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "role", "text", "url"]), inner),
    max_leaves=4,
)
FULL: dict[str, Any] = CHAT | {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": "data:,"}}]},
        calling("c1"),
        {"role": "tool", "content": "x", "tool_call_id": "c1"},
        *SAID,
    ],
    "tools": TOOLS,
    "tool_choice": {"type": "function", "function": {"name": "weather"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    "stop": ["x"],
    "stream_options": {"include_usage": True},
}


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a JSON value with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places_in(value[key])


@given(st.integers(0, len(list(places_in(FULL))) - 1), JSON)
def test_any_body_is_accepted_or_refused(number: int, value: Any) -> None:
    body = json.loads(json.dumps(FULL))
    container, key = list(places_in(body))[number]
    container[key] = value
    for read in (parse_request, new_message):
        with suppress(ApiError):
            read(decode_body(json.dumps(body).encode(), ChatBody))
