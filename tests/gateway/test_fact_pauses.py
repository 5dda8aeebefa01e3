"""Pauses after failures of the work on facts."""

from __future__ import annotations

import pytest

from gateway.conversations.facts.fact_requests import FIRST_PAUSE, LONGEST_PAUSE, FactPauses
from plugins.testing.contexts import ManualClock


def test_each_failure_in_a_row_doubles_the_pause_of_its_name_alone_up_to_the_longest() -> None:
    pauses = FactPauses(ManualClock())
    assert [pauses.fail("model a", "No.") for _ in range(3)] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert [pauses.fail("model a", "No.") for _ in range(40)][-1] == LONGEST_PAUSE
    assert pauses.is_paused("model a")
    assert not pauses.is_paused("model b")
    pauses.succeed("model a")
    assert not pauses.is_paused("model a")
    assert pauses.fail("model a", "No.") == FIRST_PAUSE


def test_a_pause_lasts_as_long_as_a_provider_asks() -> None:
    clock = ManualClock()
    pauses = FactPauses(clock)
    assert pauses.fail("model a", "Wait.", least=1000.0) == 1000.0
    clock.move(999)
    assert pauses.is_paused("model a")
    clock.move(2)
    assert not pauses.is_paused("model a")


@pytest.mark.parametrize(("hours", "told"), [(0.5, ["No."]), (2, [])])
def test_a_failure_is_no_longer_reported_long_after_its_pause(hours: float, told: list[str]) -> None:
    clock = ManualClock()
    pauses = FactPauses(clock)
    pauses.fail("model a", "No.")
    clock.move(FIRST_PAUSE + 3600 * hours)
    assert pauses.sentences() == told
