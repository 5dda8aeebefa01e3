"""The tokens in `request_sent`: the provider's last count plus an estimate of what was added, also after a restart."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.stage import Answer, Model, Stage
from plugins.api.chat import CallDraft, ChatRequest, Delta, Reply
from plugins.testing.servers.faulty_server import Json
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse
from sessions.events.events import RequestSent
from sessions.events.messages import Usage
from sessions.state.context import canonical
from sessions.state.reducer import project
from sessions.state.transcript import from_checkpoint, to_checkpoint
from tests.gateway.gateways import gateway
from tests.stories import lines_of, opened


def counting(text: str, *tools: str) -> Answer:
    """Return a model that counts a token for every three bytes, plus 500."""

    async def answer(request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        size = sum(len(canonical(message)) for message in request.context.messages)
        calls = tuple(CallDraft(id="c", tool=tool, arguments="{}") for tool in tools)
        usage = Usage(input=500 + size // 3, output=len(text) // 3)
        yield Delta(text)
        yield Reply(text=text, model=request.model, stop="calls" if calls else "end", calls=calls, usage=usage)

    return answer


async def test_each_estimate_starts_from_the_last_count_also_after_a_replay(tmp_path: Path) -> None:
    stage = Stage(Model(*[counting("Here is what you asked for. " * 4)] * 20), workspace=tmp_path)
    async with stage.playing():
        for number in range(20):
            await stage.say(f"Tell me about the number {number}. " * 5, f"m{number}")
    live = stage.recorder.transcript
    assert project(stage.log.written).counts == live.counts
    assert from_checkpoint(to_checkpoint(live)).counts == live.counts
    assert live.counts.last is not None
    last = stage.told(RequestSent)[-1]
    counted = live.last_usage
    assert counted is not None
    assert last.tokens == pytest.approx(counted.input, rel=0.05)
    assert last.units is not None
    assert abs(last.units.total - counted.input) > 0.1 * counted.input  # without what was learnt it would be far off


async def test_the_calibration_of_a_model_survives_new_from_the_log_alone(tmp_path: Path) -> None:
    def say(body: Json) -> ScriptedResponse:
        """Answer as a server that counts twice the expected tokens."""
        return ScriptedResponse("So it is.", counts=len(json.dumps(body["messages"])) // 2)

    text = "The crab sheds its shell in spring, and nobody sees it. "
    async with OpenAIServer(respond=say).serving() as server:
        settings = {
            "agent.model": "openai:fake",
            "providers.openai.base_url": server.url,
            "providers.openai.api_key": KEY,
        }
        async with gateway(tmp_path, settings=settings) as g:
            client = await g.connect()
            for number in range(8):
                await client.chat(f"{number} {text * (number + 1)}")
            await client.command("/new")
        async with gateway(tmp_path, settings=settings) as g:
            client = await g.connect()
            await client.chat(text * 30)
            old, new = g.journals().values()
    (estimated,) = [line["tokens"] for line in new if line["kind"] == "request_sent" and line["purpose"] == "answer"]
    (replied,) = [line for line in new if line["kind"] == "model_replied"]
    assert estimated == pytest.approx(replied["usage"]["input"], rel=0.15)
    assert [*new[0]["calibrations"]] == ["openai:fake"]
    assert "calibrations" not in old[0]


def test_factors_learnt_by_another_version_are_ignored() -> None:
    for known, taken in (((2.0,) * 9, ["a:x"]), ((2.0,) * 8, []), ((2.0,) * 10, [])):
        assert [*project(lines_of([opened(calibrations={"a:x": known})])).counts.models] == taken
