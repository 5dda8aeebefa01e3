"""Estimates by characters and script."""

from __future__ import annotations

import pytest

from sessions.events.tokens import estimate


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
def test_the_estimate_lies_near_what_tokenizers_give(text: str, low: int, high: int) -> None:
    assert low <= estimate(text) <= high
