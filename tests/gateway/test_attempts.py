"""Failed sign-ins slow down further attempts of their address, and of nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.limits import ADDRESSES, FORGET_AFTER, FREE, LONGEST_WAIT, STORM, AuthThrottle, source_of


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def guess(attempts: AuthThrottle, address: str, times: int, first: int = 0) -> None:
    for number in range(first, first + times):
        attempts.count_wrong(address, str(number).encode())


def test_after_a_few_free_attempts_each_further_one_doubles_the_wait(clock: Clock) -> None:
    attempts = AuthThrottle(clock)
    guess(attempts, "192.0.2.1", FREE)
    assert attempts.wait("192.0.2.1") == 0
    waits = []
    for number in range(12):
        guess(attempts, "192.0.2.1", 1, first=FREE + number)
        waits.append(attempts.wait("192.0.2.1"))
        clock.now += waits[-1]
        assert attempts.wait("192.0.2.1") == 0
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT]


def test_a_program_that_repeats_an_old_token_locks_nobody_out(clock: Clock) -> None:
    attempts = AuthThrottle(clock)
    for _ in range(1000):
        attempts.count_wrong("127.0.0.1", b"the old token")
    assert attempts.wait("127.0.0.1") == 0


def test_attempts_of_an_address_are_forgotten_after_a_while(clock: Clock) -> None:
    attempts = AuthThrottle(clock)
    guess(attempts, "192.0.2.1", FREE + 5)
    clock.now += FORGET_AFTER + 1
    guess(attempts, "192.0.2.1", 1)
    assert attempts.wait("192.0.2.1") == 0


def test_an_ipv6_network_and_a_mapped_ipv4_address_count_as_one(clock: Clock) -> None:
    attempts = AuthThrottle(clock)
    for number in range(FREE + 1):
        guess(attempts, f"2001:db8::{number:x}", 1, first=number)
    assert attempts.wait("2001:db8::ffff") == 1
    assert attempts.wait("2001:db8:0:1::1") == 0
    assert source_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert source_of("fe80::1%eth0") == source_of("fe80::2")


def test_the_table_is_bounded_and_forgets_the_oldest_failures(clock: Clock) -> None:
    attempts = AuthThrottle(clock)
    guess(attempts, "192.0.2.1", FREE + 1)
    for number in range(ADDRESSES):
        guess(attempts, f"2001:db8:0:{number:x}::1", 1)
        clock.now += 0.0001
        assert len(attempts) <= ADDRESSES
    assert attempts.wait("192.0.2.1") == 0


def test_in_a_storm_no_address_has_free_attempts(clock: Clock) -> None:
    attempts = AuthThrottle(clock)
    for number in range(STORM + 1):
        guess(attempts, f"2001:db8:0:{number:x}::1", 1)
    assert attempts.wait(f"2001:db8:0:{STORM:x}::1") == 1
    assert attempts.wait("192.0.2.1") == 0
    clock.now += 60
    guess(attempts, "192.0.2.1", 1)
    assert attempts.wait("192.0.2.1") == 0


@given(
    st.lists(st.tuples(st.sampled_from(["192.0.2.1", "192.0.2.2", "2001:db8::1"]), st.binary(max_size=2), st.floats(0, 400)))
)
def test_an_address_waits_for_its_own_attempts_and_at_most_the_longest_wait(
    guesses: list[tuple[str, bytes, float]],
) -> None:
    clock = Clock()
    attempts = AuthThrottle(clock)
    for address, mark, later in guesses:
        attempts.count_wrong(address, mark)
        assert 0 <= attempts.wait(address) <= LONGEST_WAIT
        assert attempts.wait("203.0.113.9") == 0
        clock.now += later
