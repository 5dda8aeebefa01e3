"""What is told of stalls of the event loop: each callback that ran for long, and where."""

from __future__ import annotations

import asyncio
import time

from tests.stalls import NOTED, Stalls


def block(seconds: float) -> None:
    time.sleep(seconds)


def test_a_callback_that_blocks_is_told_with_its_test_and_the_place() -> None:
    stalls = Stalls()
    stalls.pytest_runtest_logstart("tests/test_stalls.py::this")
    stalls.start()
    try:

        async def run() -> None:
            await asyncio.sleep(2 * NOTED)  # which keeps nothing waiting
            block(6 * NOTED)

        asyncio.run(run())
    finally:
        stalls.stop()
    longest = stalls.found[0]
    assert longest.seconds > 3 * NOTED > longest.computed  # its start is noticed late on a loaded machine
    assert longest.test == "tests/test_stalls.py::this"
    assert "test_stalls.py" in longest.where
    assert "block" in longest.where
