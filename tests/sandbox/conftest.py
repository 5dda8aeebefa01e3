"""The scenes of the attacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.scene import USERS, Scene


@pytest.fixture(scope="module", params=USERS)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A stand-in for the gateway, as root and as an ordinary user."""
    with Scene(request.param) as scene:
        yield scene


@pytest.fixture(params=["full", "partial"])
def level(request: pytest.FixtureRequest) -> str:
    """The levels that confine."""
    return str(request.param)
