"""The empty page of the console."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.console.accessible import faults
from tests.console.browser import WIDE, visiting
from tests.gateway.gateways import gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(("size", "dark"), [((320, 640), True), (WIDE, False), ((2560, 1440), True)])
async def test_a_suggestion_becomes_the_draft_and_never_replaces_a_persons_text(
    tmp_path: Path, browser: Browser, size: tuple[int, int], dark: bool
) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running, size=size, dark=dark) as visit:
        page = visit.page
        await visit.sign_in()
        await page.goto(f"{visit.url}/#/chat/~")
        await page.get_by_role("button", name="Remember something").click()
        message = page.get_by_role("textbox", name="Message")
        await expect(message).to_have_value("Remember that my sister’s birthday is on 4 May, and that she likes tulips.")
        await expect(message).to_be_focused()
        await page.get_by_role("button", name="Ask what it knows").click()
        await expect(message).to_have_value("What do you know about me, and where did you learn it?")
        await message.fill("In my own words")
        await page.get_by_role("button", name="Think together").click()
        assert (await message.input_value()).endswith("until we know.\n\nIn my own words")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await faults(page) == []
        assert (visit.errors, visit.elsewhere) == ([], [])
