"""What `request_sent` says of a request's tokens: the provider's last count and what came since; after a restart too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plugins.contracts import CallDraft, ChatRequest, Delta, Reply
from sessions.context import canonical
from sessions.events import RequestSent
from sessions.messages import Usage
from sessions.transcript import from_checkpoint, project, to_checkpoint
from tests.gateway.stage import Answer, Model, Stage


def counting(text: str, *tools: str) -> Answer:
    """A model that counts a token for every three bytes that it is shown, and 500 beside."""

    async def answer(request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        size = sum(len(canonical(message)) for message in request.context.messages)
        calls = tuple(CallDraft(id="c", tool=tool, arguments="{}") for tool in tools)
        usage = Usage(input=500 + size // 3, output=len(text) // 3)
        yield Delta(text)
        yield Reply(text=text, model=request.model, stop="calls" if calls else "end", calls=calls, usage=usage)

    return answer


async def test_each_estimate_starts_from_the_last_count_and_a_replay_knows_the_same(tmp_path: Path) -> None:
    stage = Stage(Model(*[counting("Here is what you asked for. " * 4)] * 20), workspace=tmp_path)
    async with stage.playing():
        for number in range(20):
            stage.hear(f"Tell me about the number {number}. " * 5, f"m{number}")
            await stage.until_settled()
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
