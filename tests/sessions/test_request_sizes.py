"""The next request's tokens: the provider's count where it holds, a calibrated estimate for the rest."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.events.messages import Usage
from sessions.events.tokens import TokenFeatures
from sessions.state.request_sizes import MODELS, Calibration, RequestSizes

NUMBER = st.integers(0, 100_000)
UNITS = st.builds(
    TokenFeatures, head=NUMBER, words=NUMBER, marks=NUMBER, unspaced=NUMBER, scripts=NUMBER, frames=NUMBER, pictures=NUMBER
)
USAGES = st.none() | st.builds(Usage, input=st.integers(0, 10**9) | NUMBER, output=st.integers(0, 10**9))
REPLIES = st.lists(st.tuples(UNITS, st.sampled_from(["a:x", "b:y"]), UNITS, USAGES, st.booleans()), max_size=12)


def after(*steps: tuple[TokenFeatures, str, TokenFeatures, Usage | None, bool]) -> RequestSizes:
    counts = RequestSizes()
    for units, model, said, usage, opaque in steps:
        counts = counts.after_request(units, model).after_reply(said, usage, opaque=opaque)
    return counts


@given(REPLIES, UNITS)
def test_the_estimate_is_bounded_for_any_count_and_survives_a_checkpoint(steps: list[Any], units: TokenFeatures) -> None:
    counts = after(*steps)
    for model in ("a:x", "b:y", "c:z"):
        # A count that is believed may be eight times what we make of that request; what is added is within the bounds.
        assert 0 <= counts.estimate(units, model) <= 12 * (units.total + 9 * 700_000) + 200_000
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(counts), type=RequestSizes) == counts


@given(REPLIES, UNITS, UNITS)
def test_more_text_is_never_estimated_as_less(steps: list, units: TokenFeatures, more: TokenFeatures) -> None:  # type: ignore[type-arg]
    counts = after(*steps)
    units += counts.last.units if counts.last else TokenFeatures()  # nothing has left since
    assert counts.estimate(units, "a:x") <= counts.estimate(units + more, "a:x")


def test_a_providers_count_is_used_exactly_while_nothing_changes() -> None:
    asked, said = TokenFeatures(head=500, words=1000, frames=40), TokenFeatures(words=50, frames=4)
    counts = after((asked, "a:x", said, Usage(input=2345, output=61), False))
    assert counts.estimate(asked + said, "a:x") == 2345 + 61


def test_removed_messages_are_subtracted_and_if_most_were_removed_everything_is_estimated() -> None:
    counts = after((TokenFeatures(words=100_000), "a:x", TokenFeatures(), Usage(input=160_000), False))
    calibration = counts.calibration("a:x")
    assert counts.estimate(TokenFeatures(words=90_000), "a:x") == round(
        160_000 - calibration.tokens(TokenFeatures(words=10_000))
    )
    assert counts.estimate(TokenFeatures(words=9_000), "a:x") == round(
        calibration.tokens(TokenFeatures(words=9_000), whole=True)
    )


def test_another_model_is_estimated_with_its_own_calibration() -> None:
    counts = after((TokenFeatures(words=1000), "a:x", TokenFeatures(), Usage(input=1200), False))
    assert counts.estimate(TokenFeatures(words=1000), "b:y") == 1000


@pytest.mark.parametrize("counted", [0, 1, 10, 10**9])
def test_an_implausible_count_is_ignored(counted: int) -> None:
    known = after((TokenFeatures(words=8000), "a:x", TokenFeatures(), Usage(input=8100), False))
    fooled = known.after_request(TokenFeatures(words=9000), "a:x").after_reply(
        TokenFeatures(), Usage(input=counted), opaque=False
    )
    assert fooled == known


def test_hidden_reasoning_counts_only_while_it_is_sent_back() -> None:
    units, said = TokenFeatures(words=1000), TokenFeatures(words=10)
    kept = after((units, "a:x", said, Usage(input=1000, output=5000), False))
    assert kept.estimate(units + said, "a:x") < 1100
    signed = after((units, "a:x", said, Usage(input=1000, output=5000), True))
    assert signed.estimate(units + said, "a:x") > 5900
    for _ in range(6):  # this provider counts none of it
        units += said
        signed = signed.after_request(units, "a:x").after_reply(said, Usage(input=units.total, output=5000), opaque=True)
    assert signed.estimate(units + said, "a:x") < units.total + 600


def test_a_count_of_no_output_is_not_trusted_for_a_visible_reply() -> None:
    counts = after((TokenFeatures(words=1000), "a:x", TokenFeatures(words=400), Usage(input=1000, output=0), False))
    assert counts.estimate(TokenFeatures(words=1400), "a:x") == pytest.approx(1400, rel=0.02)


@pytest.mark.parametrize(
    "factors",
    [
        {"words": 1.0, "marks": 1.0, "unspaced": 1.4, "scripts": 1.0, "frames": 1.0, "pictures": 1.0},
        {"words": 1.3, "marks": 0.8, "unspaced": 0.9, "scripts": 1.6, "frames": 4.0, "pictures": 0.5},
        {"words": 0.8, "marks": 1.5, "unspaced": 1.0, "scripts": 0.7, "frames": 0.5, "pictures": 1.8},
    ],
)
def test_another_tokenizer_is_learnt_in_a_few_dozen_replies(factors: dict[str, float]) -> None:
    chance, counts, units = random.Random(3), RequestSizes(), TokenFeatures(head=3000)

    def counted(units: TokenFeatures) -> int:  # of the head it makes little, and the vendor adds 700 tokens to all
        return round(700 + units.head / 2 + sum(int(getattr(units, name)) * factor for name, factor in factors.items()))

    for _ in range(60):
        kind = chance.choice(list(factors))
        units += TokenFeatures(frames=chance.randint(4, 30)) + TokenFeatures(**{kind: chance.randint(50, 4000)})
        usage = Usage(input=counted(units))
        counts = counts.after_request(units, "a:x").after_reply(TokenFeatures(), usage, opaque=False)
    calibration = counts.calibration("a:x")
    for name, factor in factors.items():
        if name != "frames":
            assert calibration.tokens(TokenFeatures(**{name: 10_000})) == pytest.approx(10_000 * factor, rel=0.1), name
    assert calibration.tokens(units, whole=True) == pytest.approx(counted(units), rel=0.05)


def test_a_bounded_number_of_models_is_remembered_those_that_replied_last() -> None:
    names = [f"a:{number}" for number in range(MODELS + 3)]
    counts = after(*((TokenFeatures(words=1000), name, TokenFeatures(), Usage(input=1000), False) for name in names))
    assert list(counts.models) == names[-MODELS:]


@given(st.lists(st.tuples(UNITS, st.integers(-(10**12), 10**12), st.booleans()), max_size=30))
def test_no_series_of_counts_moves_a_factor_out_of_its_bounds(seen: list[tuple[TokenFeatures, int, bool]]) -> None:
    calibration = Calibration()
    for units, counted, whole in seen:
        calibration = calibration.updated(units, counted, whole=whole)
    assert all(0 <= factor <= 12 for factor in (*calibration.factors[:7], calibration.factors[8]))
    assert -2000 <= calibration.factors[7] <= 20_000


def test_a_count_after_compaction_by_the_service_is_a_base_but_does_not_update_the_calibration() -> None:
    whole = TokenFeatures(words=40_000)
    fewer = TokenFeatures(words=30_000)
    before = RequestSizes().after_request(fewer, "a:x").after_reply(TokenFeatures(), Usage(input=30_000), opaque=False)
    after = before.after_request(whole, "a:x").after_reply(TokenFeatures(), Usage(input=900), opaque=False, compacted=True)
    assert after.models == before.models
    assert after.estimate(whole, "a:x") == 900
    assert 900 < after.estimate(whole + TokenFeatures(words=100), "a:x") < 1200
    assert after.estimate(whole, "a:other") == before.estimate(whole, "a:other") > 30_000
    without = before.after_request(whole, "a:x").after_reply(TokenFeatures(), Usage(input=900), opaque=False)
    assert without.estimate(whole, "a:x") > 35_000
