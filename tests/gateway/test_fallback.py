"""Fallback models: which failures use them, which one answers the rest of the turn, and the error if none can."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from benchmarks.stage import Answer, Instrument, Model, Stage, breaks, hangs_after, says
from gateway.config.agents import AgentKeys
from gateway.models.breaker import OPENS_AFTER
from gateway.models.fallback import FallbackChain
from gateway.models.registry import LONGEST_PAUSE, REMEMBERED, ChosenModel, Cooldowns, ModelRegistry
from gateway.support.errors import SENTENCE_LIMIT
from plugins.api.chat import ChatProvider, ChatRequest, Delta, Reply
from plugins.api.models import ModelLimits
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
from plugins.testing.contexts import ManualClock
from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import KEY, OpenAIServer, refusal
from sessions.events.events import ModelReplied, TurnEnded, TurnStarted
from sessions.events.messages import Usage
from sessions.events.tokens import TokenFeatures
from sessions.state.request_sizes import RequestSizes
from tests.gateway.gateways import gateway


class Second(Model):
    """A fallback model with a window of its own."""

    name = "second"

    def __init__(self, *answers: Answer, window: int | None = None) -> None:
        super().__init__(*answers)
        self.window = window

    def limits(self, model: str) -> ModelLimits:
        return ModelLimits(window=self.window)


class Third(Second):
    name = "third"


def stage(first: Model, *others: Model, tools: Sequence[Instrument] = ()) -> Stage:
    """Return a conversation whose model is `first`, with the others as fallbacks."""
    clock = ManualClock()
    return Stage(first, *tools, clock=clock, models=models_of(first, *others, now=clock.monotonic))


def models_of(first: Model, *others: Model, now: Callable[[], float] = time.monotonic) -> ModelRegistry:
    """Return the model `first`, with the others as fallbacks."""
    return ModelRegistry(
        {each.name: each for each in (first, *others)},
        AgentKeys(model="staged:model", fallback_models=tuple(f"{each.name}:spare" for each in others)),
        now=now,
    )


def counts(tokens: int) -> Answer:
    """Return a model's answer that cost so many tokens."""

    async def answer(request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        yield Reply(text="", model=request.model, stop="end", usage=Usage(input=tokens))

    return answer


async def hear(staged: Stage, text: str, id_: str = "m1") -> TurnEnded:
    """Send a message, wait for the turn's end and return it."""
    before = len(staged.told(TurnEnded))
    staged.hear(text, id_)
    await staged.until(lambda: len(staged.told(TurnEnded)) > before)
    await staged.until_settled()
    ended: TurnEnded = staged.told(TurnEnded)[-1]
    return ended


@pytest.mark.parametrize("kind", [Unreachable, StreamCut, RateLimited, CredentialsRefused, NoSuchModel, BadAnswer])
async def test_another_model_answers_the_same_turn(kind: type[ProviderError]) -> None:
    first, second = Model(breaks(kind("no"), "half an ans")), Second(says("hello"))
    staged = stage(first, second)
    async with staged.playing():
        ended = await hear(staged, "hi")

    assert (ended.outcome, ended.error) == ("replied", None)
    assert [(reply.text, reply.provider) for reply in staged.told(ModelReplied)] == [("hello", "second")]
    assert [started.provider for started in staged.told(TurnStarted)] == ["staged"]
    assert [message.text for message in second.requests[0].context.messages] == ["hi"]


@pytest.mark.parametrize("kind", [BadRequest, ContextOverflow])
async def test_an_error_about_the_request_itself_uses_no_fallback(kind: type[ProviderError]) -> None:
    second = Second(says("hello"))
    staged = stage(Model(breaks(kind("The request is wrong."))), second)
    async with staged.playing():
        ended = await hear(staged, "hi")

    assert (ended.outcome, ended.error and ended.error.sentence) == ("failed", "The request is wrong.")
    assert second.requests == []


async def test_a_cancelled_turn_uses_no_fallback() -> None:
    second = Second(says("hello"))
    staged = stage(Model(hangs_after("so f")), second)
    async with staged.playing():
        staged.hear("hi")
        await staged.until(lambda: staged.streaming.current is not None and bool(staged.streaming.current.pieces))
        staged.turn.cancel()
        await staged.until_settled()

    assert staged.told(TurnEnded)[-1].outcome == "cancelled"
    assert second.requests == []


async def test_a_fallback_finishes_the_turn_and_the_next_turn_begins_with_the_first_model() -> None:
    first = Model(breaks(Unreachable("away")), says("back"))
    second, tool = Second(says("looking", "look"), says("found")), Instrument("look")
    staged = stage(first, second, tools=[tool])
    async with staged.playing():
        await hear(staged, "hi")
        assert (len(first.requests), len(second.requests), tool.runs) == (1, 2, 1)
        await hear(staged, "and now?", "m2")

    said = [(reply.text, reply.provider) for reply in staged.told(ModelReplied)]
    assert said == [("looking", "second"), ("found", "second"), ("back", "")]


async def test_a_cancelled_answer_of_a_fallback_is_kept_under_its_name() -> None:
    first, second = Model(breaks(Unreachable("away"))), Second(hangs_after("so f"))
    staged = stage(first, second)
    async with staged.playing():
        staged.hear("hi")
        await staged.until(lambda: staged.streaming.current is not None and staged.streaming.current.text == "so f")
        staged.turn.cancel()
        await staged.until_settled()

    kept = staged.told(ModelReplied)[-1]
    assert (kept.text, kept.provider, kept.model, kept.stop) == ("so f", "second", "spare", "cancelled")


async def test_usage_is_counted_for_the_model_that_answered() -> None:
    staged = stage(Model(breaks(Unreachable("away")), counts(5)), Second(counts(3)))
    async with staged.playing():
        await hear(staged, "hi")
        await hear(staged, "hi", "m2")

    spent = staged.recorder.transcript.spent
    assert spent == {"answer": {"second:spare": Usage(input=3), "staged:model": Usage(input=5)}}


async def test_the_deltas_of_a_fallback_belong_to_another_reply() -> None:
    staged = stage(Model(breaks(Unreachable("away"), "not confirmed")), Second(says("hello")))
    async with staged.playing():
        await hear(staged, "hi")

    assert staged.told(ModelReplied)[-1].reply == 2
    assert staged.streaming.current is not None
    assert staged.streaming.current.text == "hello"


async def test_a_model_whose_window_is_too_small_is_passed_over() -> None:
    second, third = Second(says("short"), window=10), Third(says("long"))
    staged = stage(Model(breaks(Unreachable("away"))), second, third)
    async with staged.playing():
        await hear(staged, "hi " * 200)

    assert [reply.text for reply in staged.told(ModelReplied)] == ["long"]
    assert second.requests == []


async def test_when_all_fail_one_sentence_names_each_and_why() -> None:
    staged = stage(
        Model(breaks(Unreachable("The host cannot be reached."))),
        Second(says("short"), window=10),
        Third(breaks(RateLimited("No credit is left."))),
    )
    async with staged.playing():
        ended = await hear(staged, "hi " * 200)

    assert ended.error is not None
    assert ended.error.code == "context_overflow"  # a shorter conversation would have been answered
    assert ended.error.sentence.startswith(
        "No model answered. staged:model: The host cannot be reached; second:spare: its window has 10 tokens and"
    )
    assert ended.error.sentence.endswith("; third:spare: No credit is left.")


async def test_the_size_for_a_fallback_is_estimated_with_its_own_calibration() -> None:
    """The fallback has counted 2,500 tokens where we estimate 1,000."""
    counts = RequestSizes().after_request(TokenFeatures(words=1000), "second:spare")
    counts = counts.after_reply(TokenFeatures(), Usage(input=2500), opaque=False)
    first, second = Model(breaks(Unreachable("away"))), Second(says("hello"), window=800)
    staged = stage(first, second, Third(says("hi")))
    staged.recorder.state = msgspec.structs.replace(staged.recorder.transcript, counts=counts)
    async with staged.playing():
        await hear(staged, "hi " * 150)
    assert RequestSizes().estimate(TokenFeatures(words=180), "second:spare") < 800
    assert second.requests == []
    assert staged.told(ModelReplied)[-1].provider == "third"


async def test_the_error_names_each_model_even_if_all_errors_are_long() -> None:
    long = "It is very far away. " * 40
    staged = stage(Model(breaks(Unreachable(long))), Second(breaks(Unreachable(long))), Third(breaks(Unreachable(long))))
    async with staged.playing():
        ended = await hear(staged, "hi")

    assert ended.error is not None
    assert len(ended.error.sentence) <= SENTENCE_LIMIT
    assert all(name in ended.error.sentence for name in ("staged:model", "second:spare", "third:spare"))


async def test_when_all_fail_and_none_for_its_length_the_code_is_that_of_the_first() -> None:
    staged = stage(Model(breaks(CredentialsRefused("No."))), Second(breaks(Unreachable("Away."))))
    async with staged.playing():
        ended = await hear(staged, "hi")

    assert ended.error is not None
    assert ended.error.code == "credentials_refused"


async def test_a_model_that_asked_for_a_pause_is_not_asked_before_its_end() -> None:
    first, second = Model(breaks(RateLimited("Slow down.", retry_after=40.0)), says("back")), Second(says("hello"))
    staged = stage(first, second)
    async with staged.playing():
        await hear(staged, "hi")
        staged.clock.move(39)
        await hear(staged, "hi", "m2")
        assert (len(first.requests), len(second.requests)) == (1, 2)
        staged.clock.move(2)
        await hear(staged, "hi", "m3")

    assert staged.told(ModelReplied)[-1].text == "back"


async def test_a_pause_of_a_month_is_tried_again_within_an_hour() -> None:
    first, second = Model(breaks(RateLimited("Next month.", retry_after=3e6)), says("back")), Second(says("hello"))
    staged = stage(first, second)
    async with staged.playing():
        await hear(staged, "hi")
        staged.clock.move(LONGEST_PAUSE + 1)
        await hear(staged, "hi", "m2")

    assert staged.told(ModelReplied)[-1].text == "back"


async def test_a_paused_model_is_asked_if_no_other_is_left() -> None:
    providers = {"staged": Model(), "second": Second()}
    models = ModelRegistry(providers, AgentKeys(model="staged:model", fallback_models=("second:spare",)))
    models.choose().cooldowns.begin("second:spare", RateLimited("Slow down.", retry_after=40.0))
    asked = []

    async def ask(model: ChosenModel) -> None:
        asked.append(model.name)
        if model.name == "staged:model":
            raise Unreachable("away")

    await FallbackChain(models.choose()).answer(ask, lambda _: 1)
    assert asked == ["staged:model", "second:spare"]


async def test_a_models_pause_is_logged_at_its_beginning_and_end() -> None:
    away = breaks(Unreachable("away"))
    staged = stage(Model(away, away, away, says("back"), says("still"), away), Second(says("hello")))
    with capture_logs() as logs:
        async with staged.playing():
            for number in range(6):
                await hear(staged, "hi", f"m{number}")

    assert [line["event"] for line in logs] == ["model_steps_aside", "model_is_back", "model_steps_aside"]


def test_a_reopened_provider_is_not_paused() -> None:
    providers: dict[str, ChatProvider] = {"staged": Model()}
    models = ModelRegistry(providers, AgentKeys())
    cooldowns = models.choose().cooldowns
    cooldowns.begin("staged:model", RateLimited("Slow down.", retry_after=40.0))
    assert models.choose().cooldowns.remaining("staged:model") is not None
    providers["staged"] = Model()
    assert models.choose().cooldowns.remaining("staged:model") is None


def test_a_bounded_number_of_paused_models_is_remembered() -> None:
    cooldowns = Cooldowns(lambda: 0.0)
    for number in range(REMEMBERED + 10):
        cooldowns.begin(f"openai:{number}", RateLimited("Slow down.", retry_after=40.0))
    assert cooldowns.remaining("openai:9") is None
    assert cooldowns.remaining("openai:10") is not None


async def test_a_model_without_fallbacks_fails_with_its_own_error() -> None:
    staged = stage(Model(breaks(Unreachable("The host cannot be reached."))))
    async with staged.playing():
        ended = await hear(staged, "hi")

    assert ended.error is not None
    assert ended.error.sentence == "The host cannot be reached."


async def test_a_provider_that_failed_repeatedly_is_skipped_and_tried_later() -> None:
    first, second = Model(*[breaks(Unreachable("away"))] * OPENS_AFTER, says("back")), Second(says("hello"))
    staged = stage(first, second)
    async with staged.playing():
        for number in range(OPENS_AFTER + 3):
            await hear(staged, "hi", f"m{number}")
        assert (len(first.requests), len(second.requests)) == (OPENS_AFTER, OPENS_AFTER + 3)
        staged.clock.move(60)
        await hear(staged, "hi", "later")

    assert staged.told(ModelReplied)[-1].text == "back"


async def test_a_model_without_fallbacks_says_until_when_its_provider_is_skipped() -> None:
    staged = stage(Model(breaks(Unreachable("away"))))
    async with staged.playing():
        for number in range(OPENS_AFTER + 1):
            ended = await hear(staged, "hi", f"m{number}")

    assert ended.error is not None
    assert ended.error.sentence == "staged failed 5 times in a row and is asked again in 15 s: unreachable"


async def test_one_persons_words_in_a_servers_error_reach_no_other_session() -> None:
    failing = Model(breaks(Unreachable("The provider failed (500): cannot parse: Ana's bank is 4711")))
    models = ModelRegistry({"staged": failing}, AgentKeys(model="staged:model"))
    ana, ben = Stage(failing, models=models), Stage(failing, models=models)
    async with ana.playing():
        for number in range(OPENS_AFTER):
            await hear(ana, "q", f"m{number}")
    async with ben.playing():
        ended = await hear(ben, "hello")

    assert ended.error is not None
    assert "failed 5 times in a row" in ended.error.sentence
    assert "Ana" not in ended.error.sentence


async def test_one_persons_words_in_the_error_of_a_paused_model_reach_no_other_session() -> None:
    limited = RateLimited("Slow down with: Ana's bank is 4711", retry_after=40.0)
    models = ModelRegistry(
        {"staged": Model(breaks(limited)), "second": Second(breaks(Unreachable("away")))},
        AgentKeys(model="staged:model", fallback_models=("second:spare",)),
    )
    ana, ben = Stage(Model(), models=models), Stage(Model(), models=models)
    async with ana.playing():
        await hear(ana, "q")
    async with ben.playing():
        ended = await hear(ben, "hello")

    assert ended.error is not None
    assert "staged:model: rate limited; second:spare: away" in ended.error.sentence


async def test_a_fallback_that_no_provider_has_is_skipped_and_reported_by_status(tmp_path: Path) -> None:
    models = ModelRegistry({"staged": Model()}, AgentKeys(fallback_models=("nobody:model", "staged:other")))
    assert [chosen.name for chosen in models.choose().fallbacks] == ["staged:other"]
    assert models.unknown_fallbacks() == ["agent.fallback_models names 'nobody:model', which no provider has"]
    async with gateway(tmp_path / "home", settings={"agent.fallback_models": ["nobody:model"]}) as running:
        client = await running.connect()
        assert await client.chat("still answered") == "still answered"
        assert "- Trouble: agent.fallback_models names 'nobody:model'" in await client.command("/status")


def test_a_reopened_provider_has_a_new_breaker() -> None:
    providers = {"staged": Model()}
    models = ModelRegistry(providers, AgentKeys())
    before = models.choose().breaker
    assert models.choose().breaker is before
    providers["staged"] = Model()
    assert models.choose().breaker is not before


async def test_in_a_running_gateway_a_fallback_answers_for_a_failing_server(tmp_path: Path) -> None:
    failing = OpenAIServer(*[Fault(status=401, body=refusal("Incorrect API key", "invalid_api_key"))] * 9)
    async with failing.serving() as server:
        file = f"""
[agent]
model = "openai:gpt-test"
fallback_models = ["scripted:echo"]
[providers.openai]
api_key = "{KEY}"
base_url = "{server.url}"
api = "chat"
"""
        async with gateway(tmp_path, file=file) as running:
            client = await running.connect()
            assert "hello" in await client.chat("hello")
