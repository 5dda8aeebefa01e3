"""The browser that the tests of the console share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.console.browser import CHROMIUM, chromium


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("Chromium is missing (Debian: apt install chromium): the console was not tried in a browser")
    async with chromium() as running:
        yield running
