"""The browser that the tests of the console share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.console.browser import CHROMIUM, SHELL, chromium


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Headless Chromium."""
    if SHELL is None:
        pytest.skip("Chromium is missing (Debian: apt install chromium): the console was not tried in a browser")
    async with chromium() as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def whole_browser() -> AsyncIterator[Browser]:
    """Headless Chromium with notifications."""
    if CHROMIUM is None:
        pytest.skip("Chromium is missing (Debian: apt install chromium): the console was not tried in a browser")
    async with chromium(program=CHROMIUM) as running:
        yield running
