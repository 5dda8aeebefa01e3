"""The scenes of the attacks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import get_args

import pytest

from tests.sandbox.scene import Scene, User


@pytest.fixture(scope="module", params=get_args(User) if os.geteuid() == 0 else [])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A stand-in for the gateway, as root and as an ordinary user."""
    with Scene(request.param) as scene:
        yield scene


@pytest.fixture(params=["full", "partial"])
def level(request: pytest.FixtureRequest) -> str:
    """The levels that confine."""
    return str(request.param)
