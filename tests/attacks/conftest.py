"""The browser of the console's tests, and what more than one attack needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.console.conftest import browser

__all__ = ["browser"]


@pytest.fixture
def restored_logs() -> Iterator[None]:
    """Restore the logging of the process, which `logs.configure` changes."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
