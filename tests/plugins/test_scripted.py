"""The provider that tells what a file says."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from exuvia import (
    AssistantMessage,
    CallDraft,
    ChatProvider,
    ChatRequest,
    Context,
    Delta,
    Message,
    NoSuchModel,
    ProviderContext,
    ProviderError,
    RateLimited,
    Reply,
    SettingsRefused,
    StreamCut,
    StreamPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from plugins.providers.scripted import Scripted, ScriptedSettings
from plugins.testing.contexts import ManualClock

HI = UserMessage(text="hi")


def opened(tmp_path: Path, *lines: object, delay_ms: float = 0) -> Scripted:
    """The provider on a script of these lines, or on none. The caller enters it."""
    script = None
    if lines:
        script = tmp_path / "story.jsonl"
        script.write_text("\n\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    context = ProviderContext(
        settings=ScriptedSettings(script=str(script) if script else None, delay_ms=delay_ms),
        folder=tmp_path,
        workspace=tmp_path,
        clock=ManualClock(),
        transport=cast(Any, None),
        environment=os.environ,
    )
    return Scripted(context)


def asked(*messages: Message, model: str = "script", session: str = "s", purpose: str = "answer") -> ChatRequest:
    context = Context(instructions="Be kind.", tools=(), parameters={}, messages=messages)
    return ChatRequest(model=model, context=context, purpose=purpose, session=session)


async def told(stream: AsyncIterator[StreamPart]) -> tuple[list[str], Reply]:
    """The deltas and the reply after them."""
    *deltas, reply = [piece async for piece in stream]
    assert isinstance(reply, Reply)
    return [delta.text for delta in deltas if isinstance(delta, Delta)], reply


async def test_echo_repeats_the_last_message_word_by_word(tmp_path: Path) -> None:
    async with opened(tmp_path) as provider:
        before = (UserMessage(text="no"), AssistantMessage(text="no"))
        request = asked(*before, UserMessage(text=" two\n words "), model="echo")
        deltas, reply = await told(provider.stream(request))

    assert deltas == [" ", "two\n ", "words "]
    assert reply == Reply(text=" two\n words ", model="echo", stop="end", usage=Usage(input=25 // 4, output=13 // 4))


async def test_without_a_script_auto_never_chooses_it_and_only_echo_replies(tmp_path: Path) -> None:
    async with opened(tmp_path) as provider:
        assert provider.default_model() is None
        for model in ("script", "gpt"):
            with pytest.raises(NoSuchModel, match=model):
                await told(provider.stream(asked(HI, model=model)))


async def test_auto_chooses_it_if_a_script_is_configured(tmp_path: Path) -> None:
    async with opened(tmp_path, {"text": "a"}) as provider:
        assert isinstance(provider, ChatProvider)
        assert (provider.default_model(), provider.explain_default()) == ("script", "providers.scripted.script is set")


async def test_the_script_advances_with_each_reply_and_repeats_its_last_line(tmp_path: Path) -> None:
    async with opened(tmp_path, {"text": "one"}, {"text": "two"}) as provider:
        messages: tuple[Message, ...] = (HI,)
        texts = []
        for _ in range(4):
            _, reply = await told(provider.stream(asked(*messages)))
            texts.append(reply.text)
            messages = (*messages, AssistantMessage(text=reply.text), HI)

    assert texts == ["one", "two", "two", "two"]


async def test_calls_are_drafted_as_json_or_raw(tmp_path: Path) -> None:
    line = {"calls": [{"tool": "read", "arguments": {"path": "a"}}, {"tool": "read", "raw": "{not json"}]}
    async with opened(tmp_path, line, {"text": "done"}) as provider:
        _, reply = await told(provider.stream(asked(HI)))
        assert (reply.text, reply.stop) == ("", "calls")
        assert reply.calls == (
            CallDraft(id="scripted_0", tool="read", arguments='{"path":"a"}'),
            CallDraft(id="scripted_1", tool="read", arguments="{not json"),
        )

        calls = (ToolCall(id="call_1_0", tool="read", arguments="{}"),)
        result = ToolMessage(id="call_1_0", tool="read", text="")
        _, reply = await told(provider.stream(asked(HI, AssistantMessage(text="", calls=calls), result)))
        assert (reply.text, reply.stop) == ("done", "end")


async def test_an_error_line_fails_once_and_the_script_continues(tmp_path: Path) -> None:
    lines = ({"error": "rate_limited", "retry_after": 0.5}, {"error": "unreachable"}, {"text": "one"}, {"text": "two"})
    async with opened(tmp_path, *lines) as provider:
        with pytest.raises(RateLimited) as limited:
            await told(provider.stream(asked(HI)))
        assert limited.value.retry_after == 0.5
        with pytest.raises(ProviderError, match="unreachable"):
            await told(provider.stream(asked(HI)))
        assert (await told(provider.stream(asked(HI))))[1].text == "one"
        assert (await told(provider.stream(asked(HI, AssistantMessage(text="one"), HI))))[1].text == "two"

        with pytest.raises(RateLimited):
            await told(provider.stream(asked(HI, session="another")))


async def test_an_error_of_a_failed_turn_is_not_repeated_in_the_next_turn(tmp_path: Path) -> None:
    async with opened(tmp_path, {"error": "credentials_refused"}, {"text": "one"}) as provider:
        with pytest.raises(ProviderError):
            await told(provider.stream(asked(HI)))
        assert (await told(provider.stream(asked(HI, UserMessage(text="again")))))[1].text == "one"


async def test_an_interrupted_stream_sends_its_text_first(tmp_path: Path) -> None:
    async with opened(tmp_path, {"text": "half an answer", "error": "stream_cut"}) as provider:
        stream = provider.stream(asked(HI))
        assert [await anext(stream) for _ in range(3)] == [Delta("half "), Delta("an "), Delta("answer")]
        with pytest.raises(StreamCut):
            await anext(stream)


@pytest.mark.parametrize(
    ("deltas", "pieces"),
    [(1, ["naïve!"]), (3, ["na", "ïv", "e!"]), (4, ["n", "aï", "v", "e!"]), (99, list("naïve!")), (0, ["naïve!"])],
)
async def test_the_text_has_as_many_deltas_as_the_line_says(tmp_path: Path, deltas: int, pieces: list[str]) -> None:
    async with opened(tmp_path, {"text": "naïve!", "deltas": deltas}) as provider:
        assert (await told(provider.stream(asked(HI))))[0] == pieces


async def test_a_reply_says_why_it_stopped_and_an_empty_one_has_no_deltas(tmp_path: Path) -> None:
    async with opened(tmp_path, {"text": "", "deltas": 3, "stop": "refused"}) as provider:
        deltas, reply = await told(provider.stream(asked(HI)))
    assert (deltas, reply.text, reply.stop) == ([], "", "refused")


async def test_the_delay_of_a_line_is_waited_before_each_delta(tmp_path: Path) -> None:
    async with opened(tmp_path, {"text": "a b c", "delay_ms": 10}, delay_ms=60_000) as provider:
        before = asyncio.get_running_loop().time()
        await told(provider.stream(asked(HI)))
        assert asyncio.get_running_loop().time() - before >= 0.03


async def test_closing_early_ends_a_reply_that_would_take_minutes(tmp_path: Path) -> None:
    async with opened(tmp_path, {"text": "a b c", "delay_ms": 0}, {"text": "d e f", "delay_ms": 60_000}) as provider:
        async with aclosing(cast(AsyncGenerator[StreamPart], provider.stream(asked(HI)))) as stream:
            assert await anext(stream) == Delta("a ")

        waiting = asyncio.create_task(told(provider.stream(asked(HI, AssistantMessage(text="a")))))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 1 of .*truncated"),
        ('{"text": 1}', "line 1 of .*Expected `str`"),
        ('{"txt": "a"}', "line 1 of .*unknown field `txt`"),
        ('{"error": "boredom"}', "line 1 of .*error must be one of"),
        (" ", "contains no reply"),
    ],
)
async def test_an_invalid_script_is_refused_with_its_line(tmp_path: Path, line: str, reason: str) -> None:
    with pytest.raises(SettingsRefused, match=f"^providers.scripted.script: .*{reason}"):
        await opened(tmp_path, line).__aenter__()


async def test_a_missing_script_is_refused(tmp_path: Path) -> None:
    provider = opened(tmp_path, {"text": "a"})
    (tmp_path / "story.jsonl").unlink()
    with pytest.raises(SettingsRefused, match=r"cannot be read \(No such file or directory\)"):
        await provider.__aenter__()
