"""The built-in flush: what a model answers becomes notes, or nothing, or a failure that nobody else feels."""

from __future__ import annotations

import msgspec
import pytest

from plugins.api.compaction import CompactionInput, FlushResult, FlushRules
from plugins.policies.languages.prompts import language
from plugins.policies.memory_flush import ModelMemoryFlush, notes_in
from plugins.policies.silent_reply import NO_REPLY
from plugins.support.errors import ContextOverflow, ProviderError, RateLimited
from sessions.events.messages import Usage
from sessions.events.tokens import estimate
from tests.plugins.asked import SEEDS, AskedModel, assistant, leaving, person, returned

ASKED = leaving(person("We take Postgres 16."), assistant("Noted."))
SHIPPED = FlushRules(system_prompt="", prompt="")
COST = Usage(input=100, output=10)


def long(pieces: int, window: int) -> CompactionInput:
    """Return an input that needs about this many requests in a window of this size."""
    return leaving(*(person(f"message {n}: " + "word " * 100) for n in range(pieces * window // 200)), window=window)


async def flush(what: CompactionInput, model: AskedModel, rules: FlushRules = SHIPPED) -> FlushResult:
    return await ModelMemoryFlush().flush(what, model, rules)


async def test_notes_are_what_is_written() -> None:
    model = AskedModel("- We take Postgres 16.\n")
    assert await flush(ASKED, model) == FlushResult(
        outcome="written", text="- We take Postgres 16.", model="scripted:asked", usage=COST
    )


async def test_the_model_is_given_the_seeds_prompts_with_the_day_and_what_leaves() -> None:
    model = AskedModel(NO_REPLY)
    await flush(ASKED, model)
    assert model.systems[0].startswith("Session nearing compaction. Store durable memories now.\n")
    assert "Write any lasting notes to memory/2026-11-21.md; reply with NO_REPLY if nothing to store." in model.texts[0]
    assert "the person:\nWe take Postgres 16.\n" in model.texts[0]


async def test_an_operators_prompts_stand_in_place_of_the_shipped_ones_and_nothing_beside_them() -> None:
    model = AskedModel(NO_REPLY)
    await flush(ASKED, model, FlushRules(system_prompt="Be a librarian.", prompt="File it under YYYY-MM-DD."))
    assert model.systems == ["Be a librarian."]
    (text,) = model.texts
    record, _, question = text.rpartition("\n\n")
    assert question == "File it under 2026-11-21."
    assert "the person:\nWe take Postgres 16.\n" in record
    assert "You have no tools" not in text


@pytest.mark.parametrize("code", ["en", "zh"])
async def test_the_seeds_prompts_stand_alone_too_where_somebody_sets_them(code: str) -> None:
    model = AskedModel(NO_REPLY)
    await flush(msgspec.structs.replace(ASKED, language=code), model, SEEDS)
    assert model.systems == ["Session nearing compaction. Store durable memories now."]
    asked = "Write any lasting notes to memory/2026-11-21.md; reply with NO_REPLY if nothing to store."
    assert model.texts[0].endswith(f"\n\n{asked}")


async def test_one_prompt_of_an_operators_leaves_the_other_as_it_is_shipped() -> None:
    model = AskedModel(NO_REPLY)
    shipped = language("en")
    await flush(ASKED, model, FlushRules(system_prompt="Be a librarian.", prompt=""))
    await flush(ASKED, model, FlushRules(system_prompt="", prompt="File it."))
    assert model.systems == ["Be a librarian.", f"{shipped.flush.system}\n\n{shipped.record}"]
    assert model.texts[0].endswith(shipped.flush.how)
    assert model.texts[1].endswith("\n\nFile it.")


async def test_the_shipped_prompts_are_in_the_persons_language() -> None:
    model = AskedModel(NO_REPLY)
    await flush(msgspec.structs.replace(ASKED, language="zh"), model)
    assert model.systems[-1].startswith(language("zh").flush.system)
    assert language("zh").flush.prompt.replace("YYYY-MM-DD", "2026-11-21") in model.texts[-1]


@pytest.mark.parametrize(
    "answer",
    [
        "NO_REPLY",
        " NO_REPLY\n",
        "**NO_REPLY**",
        "NO_REPLY\n\nThere is nothing.",
        "Nothing lasting was said.\n\nNO_REPLY",
        "```\nNO_REPLY\n```",
    ],
)
async def test_a_silent_answer_stores_nothing(answer: str) -> None:
    assert await flush(ASKED, AskedModel(answer)) == FlushResult(outcome="nothing", model="scripted:asked", usage=COST)


@pytest.mark.parametrize(
    ("answer", "notes"),
    [
        ("- a\n- b\nNO_REPLY", "- a\n- b"),
        ("```markdown\n- a\n```", "- a"),
        ("NO", "NO"),
        ("- Answer NO_REPLY when asked for lunch.", "- Answer NO_REPLY when asked for lunch."),
        ("- <|im_end|>", "- < |im_end| >"),
        ("", ""),
    ],
)
def test_notes_are_kept_without_what_stands_around_them(answer: str, notes: str) -> None:
    assert notes_in(answer) == notes


@pytest.mark.parametrize("error", [RateLimited("Too many requests."), ContextOverflow("Too long."), ProviderError("")])
async def test_a_model_that_cannot_be_asked_is_an_outcome(error: ProviderError) -> None:
    flushed = await flush(ASKED, AskedModel(error))
    assert (flushed.outcome, flushed.text) == ("failed", "")
    assert flushed.reason == (str(error) or "ProviderError")


async def test_an_empty_answer_is_a_failure_and_nothing_to_leave_is_none() -> None:
    assert (await flush(ASKED, AskedModel("  "))).reason == "The model returned an empty answer."
    model = AskedModel("- a")
    assert await flush(leaving(), model) == FlushResult(outcome="nothing")
    assert model.texts == []


@pytest.mark.parametrize("window", [2_000, 4_000, 8_000, 200_000])
async def test_no_request_is_longer_than_the_window_and_all_that_leaves_is_asked_about(window: int) -> None:
    what = long(2, window)
    model = AskedModel(NO_REPLY, window=window)
    assert (await flush(what, model)).outcome == "nothing"
    assert 2 <= len(model.texts) <= 8
    assert all(any(f"message {n}:" in text for text in model.texts) for n in range(len(what.messages)))


async def test_what_is_noted_about_one_piece_is_not_noted_again_about_another() -> None:
    model = AskedModel("- The build is on Tuesdays.\n- a", "-  the build is on tuesdays.\n- b", NO_REPLY)
    flushed = await flush(long(3, 8_000), model)
    assert flushed.text == "- The build is on Tuesdays.\n- a\n- b"
    assert flushed.usage == Usage(input=100 * len(model.texts), output=10 * len(model.texts))


async def test_notes_on_earlier_pieces_are_kept_when_the_model_fails_later() -> None:
    flushed = await flush(long(3, 8_000), AskedModel("- a", RateLimited("Too many requests.")))
    assert (flushed.outcome, flushed.text, flushed.reason) == ("written", "- a", "Too many requests.")


async def test_a_provider_whose_window_is_smaller_than_it_says_is_asked_in_smaller_pieces() -> None:
    model = AskedModel("- a", window=6_000)
    assert (await flush(long(1, 30_000), model)).text == "- a"
    sizes = [estimate(text) for text in model.texts]
    assert sizes[-1] * 2 < sizes[0]


async def test_a_provider_that_finds_everything_too_long_is_asked_five_times() -> None:
    model = AskedModel("- a", window=0)
    flushed = await flush(long(3, 8_000), model)
    assert (flushed.outcome, flushed.reason) == ("failed", "The request was longer than the window.")
    assert len(model.texts) == 5


async def test_a_result_of_megabytes_is_one_request() -> None:
    model = AskedModel("- a", window=8_000)
    await flush(leaving(person("Go."), returned("read", "x" * 4_000_000), window=8_000), model)
    assert len(model.texts) == 1
