"""The circuit breaker of a provider: when it opens, for how long, and which errors do not count."""

from __future__ import annotations

import asyncio

import pytest

from gateway.models.breaker import FIRST_PAUSE, LONGEST_PAUSE, OPENS_AFTER, WITHIN, CircuitBreaker
from plugins.support.errors import (
    BadAnswer,
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    RateLimited,
    StreamCut,
    Unreachable,
)


class Time:
    """A manual clock."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def ends(breaker: CircuitBreaker, error: BaseException | None = None) -> None:
    """End one request, with this error or successfully."""
    if error is None:
        with breaker.track():
            return
    with pytest.raises(type(error)), breaker.track():
        raise error


def opened(time: Time) -> CircuitBreaker:
    breaker = CircuitBreaker(time)
    for _ in range(OPENS_AFTER):
        ends(breaker, Unreachable("It is away."))
    return breaker


def test_it_opens_after_failures_in_a_row_and_says_why() -> None:
    breaker = CircuitBreaker(Time())
    for _ in range(OPENS_AFTER - 1):
        ends(breaker, Unreachable("It is away."))
    assert (breaker.view().state, breaker.allows()) == ("closed", True)

    ends(breaker, StreamCut("It broke off."))

    view = breaker.view()
    assert (view.state, view.failures, view.wait, view.why) == ("open", OPENS_AFTER, FIRST_PAUSE, "stream cut")
    assert not breaker.allows()


def test_an_answer_resets_the_count() -> None:
    breaker = CircuitBreaker(Time())
    for _ in range(3 * OPENS_AFTER):
        ends(breaker, Unreachable("It is away."))
        ends(breaker)

    assert breaker.view().state == "closed"


def test_old_failures_are_forgotten() -> None:
    time = Time()
    breaker = CircuitBreaker(time)
    for _ in range(3 * OPENS_AFTER):
        ends(breaker, Unreachable("It is away."))
        time.seconds += WITHIN + 1

    assert breaker.view().state == "closed"


@pytest.mark.parametrize(
    "kind", [BadRequest, ContextOverflow, CredentialsRefused, RateLimited, BadAnswer, asyncio.CancelledError]
)
def test_errors_caused_by_one_session_never_open_it(kind: type[BaseException]) -> None:
    breaker = CircuitBreaker(Time())
    for _ in range(3 * OPENS_AFTER):
        ends(breaker, kind("no"))

    assert breaker.view().state == "closed"


def test_half_open_it_admits_one_probe_and_closes_when_that_is_answered() -> None:
    time = Time()
    breaker = opened(time)
    time.seconds += FIRST_PAUSE
    assert (breaker.view().state, breaker.allows()) == ("half_open", True)

    with breaker.track():
        assert not breaker.allows()

    assert (breaker.view().state, breaker.view().failures, breaker.allows()) == ("closed", 0, True)


def test_each_probe_that_fails_doubles_the_pause_up_to_its_bound() -> None:
    time = Time()
    breaker = opened(time)
    pauses = []
    for _ in range(7):
        pauses.append(breaker.view().wait)
        time.seconds += breaker.view().wait
        ends(breaker, Unreachable("It is still away."))

    assert pauses == [15.0, 30.0, 60.0, 120.0, 240.0, LONGEST_PAUSE, LONGEST_PAUSE]


@pytest.mark.parametrize("end", [asyncio.CancelledError(), BadAnswer("What is this?")])
def test_a_probe_without_a_result_allows_another(end: BaseException) -> None:
    time = Time()
    breaker = opened(time)
    time.seconds += FIRST_PAUSE

    ends(breaker, end)

    assert (breaker.view().state, breaker.allows()) == ("half_open", True)


def test_requests_that_were_on_their_way_when_it_opened_do_not_lengthen_the_pause() -> None:
    time = Time()
    breaker = CircuitBreaker(time)
    for _ in range(3 * OPENS_AFTER):
        ends(breaker, Unreachable("It is away."))

    assert breaker.view().wait == FIRST_PAUSE


def test_a_late_failure_of_an_earlier_request_frees_no_second_probe() -> None:
    time = Time()
    breaker = CircuitBreaker(time)
    late = breaker.track()
    late.__enter__()
    for _ in range(OPENS_AFTER):
        ends(breaker, Unreachable("It is away."))
    time.seconds += FIRST_PAUSE
    with breaker.track():
        assert not late.__exit__(Unreachable, Unreachable("late"), None)
        assert not breaker.allows()
