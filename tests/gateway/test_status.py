"""`/status` in words."""

from __future__ import annotations

import pytest

from gateway.status import SessionStatus, context_used, describe, span
from sessions.messages import Usage


def test_status_says_all_it_knows() -> None:
    status = SessionStatus(
        version="1.0",
        uptime=3700,
        model="a:b, because",
        key="main",
        session="20261121-120000-aaaaaa",
        age=90,
        turns=2,
        events=11,
        usage=Usage(input=12000, output=300, cached=4000),
        context=2500,
        window=10000,
        waiting=1,
        queue_limit=20,
        running=True,
        refused=["the plugin x was refused"],
    )
    assert describe(status) == (
        "**Exuvia 1.0**, up 1 h 1 min\n"
        "- Model: a:b, because\n"
        "- Tokens: 12,000 in (4,000 cached), 300 out\n"
        "- Context: 2,500 of 10,000 tokens (25 %)\n"
        "- Session: `main` (20261121-120000-aaaaaa), 1 min 30 s old, 2 turns, 11 events\n"
        "- Queue: 1 waiting of 20, a turn is running\n"
        "- Plugin: the plugin x was refused"
    )


@pytest.mark.parametrize(
    ("context", "window", "words"),
    [
        (None, 1000, "unknown of 1,000 tokens"),
        (None, None, "unknown tokens of a window that is unknown"),
        (10, None, "10 tokens of a window that is unknown"),
    ],
)
def test_what_is_unknown_is_called_unknown(context: int | None, window: int | None, words: str) -> None:
    assert context_used(context, window) == words


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (90061, "1 d 1 h"), (-5, "0 s")])
def test_durations_are_said_in_their_two_largest_units(seconds: float, words: str) -> None:
    assert span(seconds) == words
