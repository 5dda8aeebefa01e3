"""A model's reasoning is shown and kept, and reaches no request, index or note."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.stage import Answer, Model, Stage, breaks
from gateway.models.call import REASONING_CUT, REASONING_LIMIT
from plugins.api.chat import ChatRequest, Delta, Reasoning, Reply, StreamPart
from plugins.memory.sources.dialogue import messages_in
from plugins.support.errors import StreamCut
from sessions.events.events import ModelReplied, Recorded
from sessions.events.messages import AssistantMessage, Usage
from tests.gateway.gateways import Client, gateway
from tests.gateway.test_model_calls import gives, reply_of
from tests.waiting import VirtualTime


def thinks(*pieces: str | float, text: str = "Four.") -> Answer:
    """Return an answer that reasons in these pieces, a number being a pause in seconds, and then says a text."""

    async def answer(request: ChatRequest) -> AsyncIterator[StreamPart]:
        for piece in pieces:
            if isinstance(piece, str):
                yield Reasoning(piece)
            else:
                await asyncio.sleep(piece)
        yield Delta(text)
        yield Reply(text=text, model=request.model, stop="end", usage=Usage(input=10, output=9))

    return answer


def previews(client: Client) -> list[tuple[str, int, str]]:
    return [(f["type"], f["offset"], f["text"]) for f in client.frames if f["type"] in ("delta", "reasoning")]


# --- the stream -------------------------------------------------------------------------------------------------------


async def test_reasoning_comes_in_its_place_and_is_not_part_of_the_reply() -> None:
    reply = Reply(text="ab", model="model", stop="end")
    parts = [Reasoning("x"), Delta("a"), Reasoning(""), Reasoning("\ud800"), Delta("b"), reply]
    async with reply_of(gives(*parts)) as stream:
        assert [piece async for piece in stream] == [Reasoning("x"), Delta("a"), Reasoning("\ufffd"), Delta("b")]
    assert stream.reply.text == "ab"


@pytest.mark.parametrize("size", [1, 1000, REASONING_LIMIT])
async def test_reasoning_is_cut_off_with_a_mark_and_the_text_goes_on(size: int) -> None:
    pieces = [Reasoning("é" * size)] * (2 * REASONING_LIMIT // (2 * size) + 1)
    async with reply_of(gives(*pieces[: 2 * REASONING_LIMIT], Delta("a"), Reply(text="a", model="m", stop="end"))) as stream:
        came = [piece async for piece in stream]
    reasoning = "".join(piece.text for piece in came if isinstance(piece, Reasoning))
    assert REASONING_LIMIT - 1 <= len(reasoning.encode()) <= REASONING_LIMIT
    assert reasoning.endswith("é" + REASONING_CUT)
    assert (came[-1], stream.reply.text) == (Delta("a"), "a")


# --- a turn -----------------------------------------------------------------------------------------------------------


async def test_reasoning_is_recorded_with_its_time_and_is_neither_sent_nor_indexed() -> None:
    model = Model(thinks("First ", 2.5, "this.", 1.0), thinks(text="Five."))
    stage = Stage(model)
    recorded: list[Recorded] = []
    stage.recorder.on_event(recorded.append)
    with VirtualTime():
        async with stage.playing():
            await stage.say("2+2?")
            await stage.say("2+3?")
    first, second = stage.told(ModelReplied)
    assert (first.text, first.reasoning, first.reasoning_millis) == ("Four.", "First this.", 3500)
    assert (second.reasoning, second.reasoning_millis) == ("", 0)
    assert "this." not in str(model.requests)
    assert stage.recorder.transcript.messages[1] == AssistantMessage(text="Four.")
    said, _ = messages_in(recorded)
    assert [each.text for each in said] == ["2+2?", "Four.", "2+3?", "Five."]


async def test_reasoning_changes_no_count_and_no_hash() -> None:
    stages = [Stage(Model(thinks(*pieces))) for pieces in ((), ("a long story " * 1000,))]
    for stage in stages:
        async with stage.playing():
            await stage.say("2+2?")
            await stage.say("2+3?")
    plain, reasoned = (stage.recorder.transcript for stage in stages)
    assert plain.messages == reasoned.messages
    assert plain.counts == reasoned.counts


async def test_reasoning_of_an_interrupted_attempt_is_dropped() -> None:
    async def cut(_: ChatRequest) -> AsyncIterator[StreamPart]:
        yield Reasoning("lost")
        raise StreamCut("gone")

    stage = Stage(Model(cut, thinks("kept"), breaks(ValueError())))
    async with stage.playing():
        await stage.say("hi")
    assert [event.reasoning for event in stage.told(ModelReplied)] == ["kept"]


async def test_reasoning_before_a_cancelled_answer_is_kept_with_its_text() -> None:
    async def hangs(_: ChatRequest) -> AsyncIterator[StreamPart]:
        yield Reasoning("Hm.")
        yield Delta("Once")
        await asyncio.Event().wait()

    stage = Stage(Model(hangs))
    async with stage.playing():
        stage.hear("tell me")
        await stage.until(lambda: stage.streaming.current is not None and bool(stage.streaming.current.text))
        assert stage.turn.cancel()
        await stage.until_settled()
    assert [(event.text, event.reasoning) for event in stage.told(ModelReplied)] == [("Once", "Hm.")]


# --- clients ----------------------------------------------------------------------------------------------------------


async def test_clients_see_reasoning_as_it_comes_and_then_in_the_event(tmp_path: Path) -> None:
    script = [{"reasoning": "I add 😀 up.", "text": "It is four.", "delay_ms": 30}]
    async with gateway(tmp_path, script=script) as g:
        client = await g.connect()
        await client.send("2+2?")
        replied = await client.until_event("model_replied")
        await client.until_event("turn_ended")
    kinds = [kind for kind, _, _ in previews(client)]
    assert kinds == sorted(kinds, reverse=True)  # reasoning first
    for kind, whole in (("reasoning", "I add 😀 up."), ("delta", "It is four.")):
        shown = ""
        for offset, text in [(offset, text) for each, offset, text in previews(client) if each == kind]:
            assert offset == len(shown)
            shown += text
        assert whole.startswith(shown)
        assert shown
    assert (replied["text"], replied["reasoning"]) == ("It is four.", "I add 😀 up.")
    assert replied["reasoning_millis"] > 0


async def test_a_reply_without_reasoning_has_the_fields_that_it_had(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
    (lines,) = g.journals().values()
    (replied,) = [line for line in lines if line["kind"] == "model_replied"]
    assert not [name for name in replied if "reasoning" in name]
    assert "reasoning" not in {frame["type"] for frame in client.frames}
