"""Token estimates: close to real tokenizers for any script, and never fewer tokens for a longer text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.events.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from sessions.events.tokens import (
    BLOCK,
    CALL,
    EXACT,
    MESSAGE,
    PART,
    TokenFeatures,
    estimate,
    head_features,
    message_features,
    text_features,
)

TEXT = st.text(max_size=200)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("", 0, 0),
        ("a", 1, 1),
        ("The quick brown fox jumps over the lazy dog.", 9, 13),
        ("今天天气很好，我们去公园散步吧。", 12, 22),
        ("Сегодня хорошая погода, пойдём гулять.", 9, 26),
        ("\ud800", 1, 2),
    ],
)
def test_the_estimate_is_close_to_real_tokenizers(text: str, low: int, high: int) -> None:
    assert low <= estimate(text) <= high


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The quick brown fox jumps over the lazy dog.", 10),
        ("今天天气很好，我们去公园散步吧。", 11),
        ("Сегодня хорошая погода, пойдём гулять.", 14),
        ("def area(self, width: int) -> int:\n    return self.height * width\n", 18),
        ('{"name": "read", "path": "a/b.py", "lines": [1, 2, 3]}', 23),
        ("오늘은 날씨가 좋아서 공원에 산책하러 갔습니다.", 16),
        ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 39),
    ],
)
def test_features_are_close_to_the_counts_of_o200k(text: str, tokens: int) -> None:
    assert 0.6 * tokens <= text_features(text).total <= 1.5 * tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("rjE8SEUqU/qXIhDuluz0qDSnkW75H5Vl3fYvDLMSV3HYLc7pYYL4JrkgmbOrNLnhTWyN/9zUNz6T5TBg9jl3nQ==", 65),
        ("1700000000,42.5,0.125\n" * 10, 130),
        ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 39),
    ],
)
def test_hashes_and_base64_are_not_counted_like_words(text: str, tokens: int) -> None:
    assert 0.9 * tokens <= text_features(text).total <= 1.2 * tokens


def test_a_row_of_dashes_costs_little() -> None:
    assert text_features("-" * 80).total <= 5


def test_a_very_long_text_is_sampled() -> None:
    text = "Twelve men went to sea, and 11 came back.\n" * 5000
    assert text_features(text).total == pytest.approx(5000 * text_features(text[:4200]).total / 100, rel=0.05)


@given(st.sampled_from([EXACT - 3, EXACT + PART, EXACT + BLOCK - 2]), TEXT, TEXT)
def test_a_longer_text_never_has_fewer_tokens_even_if_sampled(size: int, text: str, more: str) -> None:
    one, both = text_features("ab 1" * (size // 4) + text), text_features("ab 1" * (size // 4) + text + more)
    assert all(a <= b for a, b in zip(one.numbers, both.numbers, strict=True))


@given(TEXT, TEXT)
def test_a_longer_text_never_has_less_of_any_feature(text: str, more: str) -> None:
    one, both = text_features(text), text_features(text + more)
    assert all(0 <= a <= b for a, b in zip(one.numbers, both.numbers, strict=True))
    assert (one.total == 0) == (text == "")


def test_each_script_counts_as_its_own_kind() -> None:
    assert text_features("hello").words > 0 == text_features("hello").marks
    assert text_features("12 {}").marks > 0 == text_features("12 {}").words
    assert text_features("漢字かな한글").unspaced == text_features("漢字かな한글").total
    assert text_features("нормально नमस्ते").scripts > 0
    assert text_features("\ud800").total > 0  # a lone surrogate is sent as a replacement


def test_a_message_counts_with_its_calls_and_its_reasoning() -> None:
    call = ToolCall(id="call_1_0", tool="read", arguments='{"path":"a"}')
    said = message_features(AssistantMessage(text="Let me see.", calls=(call,), opaque="signed reasoning"))
    assert said.frames == MESSAGE + CALL
    assert said.words > message_features(AssistantMessage(text="Let me see.", calls=(call,))).words
    assert message_features(UserMessage(text="")) == TokenFeatures(frames=MESSAGE)
    assert message_features(ToolMessage(id="call_1_0", tool="read", text="")) == TokenFeatures(frames=CALL)
    assert head_features("Be brief.") == TokenFeatures(head=text_features("Be brief.").total)
