"""All requests to models are read, checked, limited and repeated in the same way."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from benchmarks.stage import Answer, Model, breaks, hangs_after, says
from gateway.config.agents import AgentKeys
from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.facts.fact_requests import FactRequests
from gateway.metrics.counters import Counters
from gateway.models.call import CALLS_LIMIT, REPLY_LIMIT, ModelCaller, ReplyStream
from gateway.models.registry import ModelRegistry
from gateway.plugin_runtime.service_factory import PluginServiceFactory
from gateway.support.clock import SystemClock
from plugins.api.chat import CallDraft, ChatRequest, Delta, Reply
from plugins.api.plugin_services import ModelAnswer
from plugins.facts.model_answers import response_format
from plugins.support.errors import BadAnswer, ProviderError, RateLimited, StreamCut, Unreachable
from sessions.events.messages import Usage, UserMessage
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from sessions.state.context import Context
from tests.attacks.test_plugins import with_providers
from tests.gateway.gateways import TOKEN, Gateway
from tests.gateway.test_fallback import Second, models_of
from tests.waiting import VirtualTime

# --- the stream of one request ----------------------------------------------------------------------------------------


def reply_of(answer: Answer) -> ReplyStream:
    """Return the stream of one request to a model with this answer."""
    model = ModelRegistry({"staged": Model(answer)}, AgentKeys()).choose()
    context = Context(instructions="", tools=(), parameters={}, messages=[UserMessage(text="Hello?")])
    return ReplyStream(model, ChatRequest(model="model", context=context, purpose="api", session="s"))


def gives(*parts: Any) -> Answer:
    """Return a model's stream of these parts."""

    async def answer(_: ChatRequest) -> AsyncIterator[Delta | Reply]:
        for part in parts:
            yield part

    return answer


def whole(text: str, *calls: CallDraft, usage: Usage | None = None) -> Reply:
    return Reply(text=text, model="model", stop="end", calls=calls, usage=usage)


BIG = CallDraft(id="c", tool="tool", arguments="x" * (REPLY_LIMIT // 2 + 1))


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        (gives(Delta("Hal")), StreamCut),
        (gives(Delta(5)), BadAnswer),  # type: ignore[arg-type]
        (gives("text"), BadAnswer),
        (gives(whole("a", BIG, BIG)), BadAnswer),
        (says("", *["tool"] * (CALLS_LIMIT + 1)), BadAnswer),
        (breaks(ValueError("odd")), BadAnswer),
        (breaks(SystemExit(), "Hal"), BadAnswer),
        (breaks(GeneratorExit(), "Hal"), BadAnswer),
        (breaks(TimeoutError(), "Hal"), BadAnswer),
        (breaks(RateLimited("Slow down.")), RateLimited),
    ],
)
async def test_any_misbehaviour_of_a_provider_becomes_a_known_error(answer: Answer, known: type[Exception]) -> None:
    with pytest.raises(known):
        async with reply_of(answer) as stream:
            _ = [text async for text in stream]


HALF = "x" * (REPLY_LIMIT // 2)


@pytest.mark.parametrize(
    ("parts", "pieces"),
    [
        ([Delta(HALF), Delta(HALF), Delta("x"), whole(HALF + HALF + "x")], 2),
        ([Delta("x" * (REPLY_LIMIT - 1)), Delta("éé"), whole("never")], 1),
        ([Delta(HALF * 5), whole(HALF * 5)], 1),
        ([whole(HALF * 5, CallDraft(id="c", tool="tool", arguments="{}"))], 1),
        ([Delta("y"), whole(HALF * 5)], 1),
    ],
)
async def test_an_answer_is_cut_off_where_it_becomes_too_long(parts: list[Any], pieces: int) -> None:
    async with reply_of(gives(*parts)) as stream:
        texts = [text async for text in stream]
    assert len(texts) == pieces
    assert (stream.reply.stop, stream.reply.calls) == ("length", ())
    assert REPLY_LIMIT - 1 <= len(stream.reply.text.encode()) <= REPLY_LIMIT


def fails_to_close(_: ChatRequest) -> AsyncIterator[Delta | Reply]:
    async def parts() -> AsyncIterator[Delta | Reply]:
        try:
            yield Delta("Hal")
            yield whole("Hal")
        finally:
            raise RuntimeError("not closed")

    return parts()


async def test_a_failure_to_close_hides_no_failure_of_the_reader() -> None:
    async def read(stream: ReplyStream) -> None:
        async with stream:
            async for _ in stream:
                raise ConnectionError

    with pytest.raises(ConnectionError):
        await read(reply_of(fails_to_close))
    with pytest.raises(BadAnswer, match="not closed"):
        async with reply_of(fails_to_close) as stream:
            _ = [text async for text in stream]


# --- requests beside a conversation -----------------------------------------------------------------------------------

Asks: TypeAlias = Callable[[ModelRegistry, ModelCaller, Path], Awaitable[ModelAnswer]]


async def about_facts(models: ModelRegistry, caller: ModelCaller, _: Path) -> ModelAnswer:
    requests = FactRequests(Settings(load_config(None, environment={}, overrides={})), models, caller)
    return await requests.ask(
        models.choose(), "Find.", "facts", purpose="extraction", session="s", limit=50, response_format=response_format()
    )


async def for_a_plugin(models: ModelRegistry, caller: ModelCaller, folder: Path) -> ModelAnswer:
    async with Committer() as committer:
        services = PluginServiceFactory(
            choose=models.choose,
            caller=caller,
            embedding=lambda: None,
            vectors_in_use=contextlib.nullcontext,
            store_of=lambda plugin: Journals(folder / plugin, folder, committer),
            charge=lambda *_: None,
            now=SystemClock().now,
        )
        return await services.answer("tides", system="Be brief.", text="When is high tide?", limit=50)


@pytest.fixture(params=[about_facts, for_a_plugin])
def asks(request: pytest.FixtureRequest) -> Asks:
    chosen: Asks = request.param
    return chosen


async def test_beside_a_conversation_a_fallback_answers_if_the_first_model_times_out(asks: Asks, tmp_path: Path) -> None:
    models, counters = models_of(Model(hangs_after("so f")), Second(says("hello"))), Counters()
    with VirtualTime():
        answered = await asks(models, ModelCaller(counters), tmp_path)
    assert (answered.text, answered.model) == ("hello", "second:spare")
    assert models.breakers()["staged"].failures == 1
    assert counters.provider_errors.counts == {("staged", "unreachable"): 1}


async def test_beside_a_conversation_a_model_that_times_out_is_named(asks: Asks, tmp_path: Path) -> None:
    with VirtualTime(), pytest.raises(Unreachable, match=r"^staged:model did not answer within 120 seconds\.$"):
        await asks(models_of(Model(hangs_after("so f"))), ModelCaller(Counters()), tmp_path)


async def test_beside_a_conversation_a_cut_stream_is_asked_again(asks: Asks, tmp_path: Path) -> None:
    model, counters = Model(breaks(StreamCut("cut"), "so f"), says("hello")), Counters()
    with VirtualTime():
        answered = await asks(models_of(model), ModelCaller(counters), tmp_path)
    assert (answered.text, len(model.requests)) == ("hello", 2)
    assert counters.provider_errors.counts == {("staged", "stream_cut"): 1}


async def test_beside_a_conversation_a_stream_that_is_always_cut_fails(asks: Asks, tmp_path: Path) -> None:
    model = Model(breaks(StreamCut("cut"), "so f"))
    with VirtualTime(), pytest.raises(ProviderError):
        await asks(models_of(model), ModelCaller(Counters()), tmp_path)
    assert len(model.requests) == 3


async def test_beside_a_conversation_an_answer_is_cut_off_and_tools_are_left_out(asks: Asks, tmp_path: Path) -> None:
    for answer, text in ((says("x" * 9000, "tool"), "x" * 2400), (says("hello", "tool"), "hello")):
        answered = await asks(models_of(Model(answer)), ModelCaller(Counters()), tmp_path)
        assert answered.text == text


async def test_providers_stay_open_while_a_model_is_asked_and_its_tokens_are_counted(asks: Asks, tmp_path: Path) -> None:
    held: list[bool] = []

    @contextlib.contextmanager
    def hold() -> Iterator[None]:
        held.append(True)
        yield
        held.append(False)

    async def answer(_: ChatRequest) -> AsyncIterator[Delta | Reply]:
        assert held == [True]
        yield whole("hello", usage=Usage(input=3, output=2))

    counters = Counters()
    await asks(models_of(Model(answer)), ModelCaller(counters, hold=hold), tmp_path)
    assert held == [True, False]
    ((purpose, _, _), *_) = counters.spent.counts
    assert counters.spent.counts[purpose, "staged:model", "output"] == 2


# --- with a provider of a plugin --------------------------------------------------------------------------------------

STREAM = "async def stream(self, request):\n        from exuvia import CallDraft\n        "
LOOK = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


async def complete(g: Gateway, **fields: Any) -> Any:
    """Return the message of a chat completion without a session."""
    body = {"model": "evil:x", "messages": [{"role": "user", "content": "hi"}], **fields}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
        return (await response.json())["choices"][0]["message"]


async def test_a_reply_that_comes_at_once_is_an_answer_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"{STREAM}yield Delta('at '); yield Reply(text='at once', model='x', stop='end')"
    async with with_providers(tmp_path, monkeypatch, chat=body) as (g, client):
        assert await client.chat("go") == "at once"
        assert (await complete(g))["content"] == "at once"


async def test_text_that_utf8_cannot_carry_is_replaced_in_all_of_a_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = r"CallDraft(id='\ud800', tool='\ud800', arguments='\ud800')"
    calls = f"({call},) if len(request.context.tools) == 1 else ()"
    reply = rf"Reply(text='a', model='\ud800', stop='end', opaque='\ud800', calls={calls})"
    async with with_providers(tmp_path, monkeypatch, chat=f"{STREAM}yield {reply}") as (g, client):
        (asked,) = (await complete(g, tools=LOOK))["tool_calls"]
        assert asked["function"] == {"name": "\ufffd", "arguments": "\ufffd"}
        await client.send("go")
        assert (await client.until_event("model_replied"))["opaque"] == "\ufffd"


async def test_a_provider_that_changes_a_request_does_not_change_it_for_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        f"{STREAM}schemas = request.context.tools[0].parameters, request.options.response_format.schema\n"
        "        text = str(schemas); schemas[0].clear(); schemas[1].clear()\n"
        "        if not hasattr(type(self), 'cut'):\n"
        "            type(self).cut = True\n"
        "            return\n"
        "        yield Delta(text); yield Reply(text=text, model='x', stop='end')"
    )
    form = {"type": "json_schema", "json_schema": {"name": "f", "schema": {"type": "array"}}}
    async with with_providers(tmp_path, monkeypatch, chat=body) as (g, _):
        answer = await complete(g, tools=LOOK, response_format=form)
    assert answer["content"] == "({'type': 'object'}, {'type': 'array'})"
