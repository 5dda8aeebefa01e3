"""Read-only links to conversations, made in the console and opened by somebody else's browser."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.console.accessible import faults
from tests.console.browser import visiting
from tests.console.test_chat import entries, say
from tests.console.test_sidebar import begin, rows
from tests.gateway.gateways import gateway
from tests.gateway.test_shares import share
from tests.pictures import png

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_pictures_of_a_conversation_are_seen_by_a_link(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as guest:
        client = await running.connect()
        files = [
            {"data": base64.b64encode(data).decode(), "name": name}
            for data, name in ((png(30, 20), "roof.png"), (b"of the roof", "notes.txt"))
        ]
        await client.say("send", id="1", session="main", text="The roof", attachments=files)
        await client.until_event("turn_ended")
        paths = [(await share(running, files=wanted)).removeprefix("/api") for wanted in (True, False)]
        await guest.page.goto(f"{guest.url}{paths[0]}")
        picture = guest.page.get_by_role("img", name="roof.png")
        await expect(picture).to_have_js_property("naturalWidth", 30)
        async with guest.page.expect_download() as download:
            await guest.page.get_by_role("link", name="notes.txt").click()
        assert Path(await (await download.value).path()).read_text() == "of the roof"
        assert await faults(guest.page) == []
        await guest.page.goto(f"{guest.url}{paths[1]}")
        await expect(guest.page.locator(".file")).to_have_text(["roof.png", "notes.txt"])
        assert (guest.errors, guest.elsewhere) == ([], [])


async def test_a_conversation_is_read_by_a_link_until_that_is_revoked(tmp_path: Path, browser: Browser) -> None:
    async with (
        gateway(tmp_path) as running,
        visiting(browser, running) as visit,
        visiting(browser, running, size=(320, 640), dark=True) as guest,
    ):
        page = await begin(visit)
        for text in ("<b>Hello</b> there", "How are you?"):
            await say(page, text)
            await expect(entries(page, "assistant").last).to_contain_text(text)
            await expect(entries(page, "assistant.live")).to_have_count(0)
        await rows(page).click(button="right")
        await page.get_by_role("menuitem", name="Share…").click()
        dialog = page.get_by_role("dialog", name="Share “<b>Hello</b> there”")
        await dialog.get_by_role("button", name="Create a link").click()
        link = dialog.get_by_role("textbox", name="The link")
        await expect(link).to_be_focused()
        assert await faults(page) == []
        url = await link.input_value()
        assert url.startswith(f"{visit.url}/shared/")

        await guest.page.goto(url)
        await expect(entries(guest.page, "person").locator(".said")).to_have_text(["<b>Hello</b> there", "How are you?"])
        await expect(guest.page.locator("article")).to_have_count(4)
        await expect(guest.page.locator("article").nth(1)).to_contain_text("<b>Hello</b> there")
        await expect(guest.page.get_by_role("button", name="Edit")).to_have_count(0)
        await expect(guest.page.get_by_role("button", name="Answer again")).to_have_count(0)
        await expect(guest.page.get_by_text("Shared, read-only")).to_be_visible()
        assert await faults(guest.page) == []
        assert await guest.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.keyboard.press("Escape")
        await say(page, "Secret")
        await expect(entries(page, "assistant").last).to_contain_text("Secret")
        await guest.page.reload()
        await expect(guest.page.locator("article")).to_have_count(4)
        assert (guest.errors, guest.elsewhere) == ([], [])

        await rows(page).click(button="right")
        await page.get_by_role("menuitem", name="Share…").click()
        await expect(link).to_have_count(0)
        await dialog.get_by_role("button", name="Revoke").click()
        await expect(dialog.get_by_role("button", name="Revoke")).to_have_count(0)
        await guest.page.reload()
        await expect(guest.page.get_by_role("alert")).to_contain_text("does not work any more")
        assert (visit.errors, visit.elsewhere) == ([], [])
