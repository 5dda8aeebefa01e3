"""An answer without a session: who steps in, where it ends, and what becomes of it when either side goes away."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from gateway.http import event_stream
from gateway.http.openai.stateless_mode import StopSequences
from gateway.wiring import listener
from plugins.testing.servers.faulty_server import Fault, RawResponse
from plugins.testing.servers.openai_server import ScriptedResponse, refusal
from tests.gateway.gateways import TOKEN, gateway
from tests.openai_api.asking import MODEL, SAID, client_of, vendor_behind
from tests.pictures import png
from tests.waiting import deadline, until

DOWN = Fault(status=400, body=refusal("No such model.", "model_not_found"))
SECOND = {"agent.fallback_models": ["scripted:echo"]}


async def rest_of(stream: Any) -> list[Any]:
    async with deadline():
        return [chunk async for chunk in stream]


# --- who answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fallback_answers_before_text_was_sent(tmp_path: Path, stream: bool) -> None:
    async with vendor_behind(tmp_path, DOWN, settings=SECOND) as (_, _, client):
        answer = await client.chat.completions.create(model="exuvia", messages=SAID, stream=stream)
        if stream:
            chunks = [chunk async for chunk in answer]
            told = {chunk.model for chunk in chunks}, "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        else:
            told = {answer.model}, answer.choices[0].message.content
    assert told == ({"scripted:echo"}, "Hello?")


async def test_no_fallback_continues_an_answer_whose_text_was_sent(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, Fault(end="cut", pieces=3), settings=SECOND) as (_, _, client):
        stream = await client.chat.completions.create(model="exuvia", messages=SAID, stream=True)
        heard = [(await anext(stream)).choices[0].delta.content for _ in range(2)]
        with pytest.raises(openai.APIError, match="interrupted"):
            await anext(stream)
    assert heard == ["one ", "two "]


async def test_a_request_without_streaming_is_retried_after_a_cut(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, Fault(end="cut", pieces=3), ScriptedResponse("whole")) as (_, server, client):
        answer = await client.chat.completions.create(model="exuvia", messages=SAID)
    assert (answer.choices[0].message.content, len(server.requests)) == ("whole", 2)


async def test_a_picture_is_not_sent_to_a_model_without_vision(tmp_path: Path) -> None:
    url = f"data:image/png;base64,{b64encode(png()).decode()}"
    content: list[Any] = [{"type": "image_url", "image_url": {"url": url}}]
    async with vendor_behind(tmp_path, DOWN, settings=SECOND) as (_, server, client):
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="exuvia", messages=[{"role": "user", "content": content}])
    assert len(server.requests) == 1


# --- where it ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_ends_at_a_stop_sequence_even_if_the_provider_ignores_it(tmp_path: Path, stream: bool) -> None:
    says = ScriptedResponse("one two END three four " + "five " * 200, delay=0.02)
    async with vendor_behind(tmp_path, says) as (_, server, client):
        answer = await client.chat.completions.create(
            model="exuvia", messages=SAID, stop=["nothing", "two END"], stream=stream
        )
        if stream:
            chunks = [chunk async for chunk in answer]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            assert chunks[-1].choices[0].finish_reason == "stop"
        else:
            text = answer.choices[0].message.content
        assert text == "one "
        await until(lambda: server.disconnects == 1)  # nobody listens to the rest


@given(st.lists(st.text("ab", max_size=4), max_size=6), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_a_stop_sequence_is_found_in_any_split_of_the_text(pieces: list[str], words: list[str]) -> None:
    stops = StopSequences(words)
    shown = "".join([*map(stops.feed, pieces), stops.end()])
    text = "".join(pieces)
    found = [(at + len(word), at) for word in words if (at := text.find(word)) >= 0]
    assert (shown, stops.met) == (text[: min(found)[1]] if found else text, bool(found))


async def test_a_stream_without_its_end_is_an_error(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, RawResponse(b'data: {"choices": [{"delta": {"content": "Hal"}}]}\n\n')) as (
        _,
        _,
        client,
    ):
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model="exuvia", messages=SAID)
        assert (caught.value.status_code, caught.value.code) == (502, "stream_cut")


# --- who goes away ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_disconnecting_client_cancels_the_providers_request(tmp_path: Path, stream: bool) -> None:
    async with vendor_behind(tmp_path, Fault(end="hang", pieces=2)) as (g, server, client):
        request = asyncio.create_task(client.chat.completions.create(model="exuvia", messages=SAID, stream=stream))
        await until(lambda: server.answering == 1)
        if stream:
            await (await request).close()
        else:
            request.cancel()
        await until(lambda: server.disconnects == 1)
        async with g.http.get(f"{g.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            page = await response.text()
    assert 'exuvia_api_requests_total{path="chat/completions",status="499"} 1' in page


async def test_an_answer_is_completed_while_the_gateway_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "runner_of", lambda app: web.AppRunner(app, access_log=None, shutdown_timeout=0.01))
    async with vendor_behind(tmp_path, ScriptedResponse("word " * 30, delay=0.03)) as (g, _, client):
        stream = await client.chat.completions.create(model="exuvia", messages=SAID, stream=True)
        first = (await anext(stream)).choices[0].delta.content
        g.daemon.stop()
        rest = [chunk.choices[0] for chunk in await rest_of(stream)]
    assert first + "".join(choice.delta.content or "" for choice in rest) == "word " * 30
    assert rest[-1].finish_reason == "stop"


async def test_a_revoked_token_ends_its_streams(tmp_path: Path) -> None:
    people = '[people.ana]\ntoken = "anas-token-that-is-long-enough"\n'
    says = ScriptedResponse("word " * 400, delay=0.02)
    async with (
        vendor_behind(tmp_path, says, file=people) as (g, _, _),
        client_of(g, "anas-token-that-is-long-enough") as ana,
    ):
        stream = await ana.chat.completions.create(model="exuvia", messages=SAID, stream=True)
        await anext(stream)
        (tmp_path / "config.toml").write_text(people.replace("anas-token", "anas-other"))
        with pytest.raises(openai.APIError, match="no longer valid"):
            await rest_of(stream)


async def test_a_silent_stream_sends_keep_alive_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_SECONDS", 0.05)
    script = [{"text": "Late.", "delay_ms": 300}, {"error": "unreachable", "delay_ms": 300, "text": ""}]
    async with gateway(tmp_path, script=script) as g:
        body = {"model": "exuvia", "messages": SAID, "stream": True}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
            events = (await response.text()).split("\n\n")
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert events[0] == ": one moment"
        said = [json.loads(event.removeprefix("data: ")) for event in events if event.startswith("data: {")]
        assert said[0]["choices"][0]["delta"] == {"role": "assistant", "content": "Late."}
        async with client_of(g) as client:  # which passes over comments
            stream = await client.chat.completions.create(model="exuvia", messages=SAID, stream=True)
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Late."


async def test_a_stream_that_is_not_read_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "UNREAD", 0.2)

    async def wait(*_: object) -> None:
        await asyncio.Event().wait()

    async with gateway(tmp_path) as g:
        monkeypatch.setattr(web.StreamResponse, "write", wait)
        body = {"model": "exuvia", "messages": SAID, "stream": True}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with deadline():
            with suppress(aiohttp.ClientError):  # it breaks off
                async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
                    await response.read()


async def test_usage_is_counted_under_its_purpose(tmp_path: Path) -> None:
    async with vendor_behind(tmp_path, ScriptedResponse("one two", counts=40)) as (g, _, client):
        await client.chat.completions.create(model="exuvia", messages=SAID)
        async with g.http.get(f"{g.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            page = await response.text()
    assert f'exuvia_spent_tokens_total{{purpose="api",model="{MODEL}",direction="input"}} 40' in page
    assert 'exuvia_tokens_total{model="gpt-test-2026-01-01",direction="output"} 2' in page
    assert 'exuvia_api_requests_total{path="chat/completions",status="200"} 1' in page
