"""The channels on the page of the gateway's health, in a browser: their state, and who may speak."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from gateway.conversations.channels import channel_runner, reply_delivery
from gateway.status import last_hour
from tests.attacks.test_strangers import HOSTILE
from tests.console.accessible import faults
from tests.console.browser import NARROW, WIDE, visiting
from tests.gateway.elsewhere import LINES, Elsewhere
from tests.gateway.gateways import gateway
from tests.shelf import Shelf

pytestmark = pytest.mark.asyncio(loop_scope="session")

BEN = "the-token-of-ben-is-long-enough"


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (NARROW, True)])
async def test_the_owner_admits_a_sender_and_removes_them(
    size: tuple[int, int], dark: bool, tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_lines", "lines", LINES)
    monkeypatch.setattr(last_hour, "EVERY", 0.2)
    monkeypatch.setattr(channel_runner, "PAUSES", (0.05,))
    monkeypatch.setattr(reply_delivery, "CLOSED_SECONDS", 0.05)
    service = Elsewhere()
    await service.open()
    file = (
        '[agent]\nmodel = "scripted:echo"\n[plugins]\nallow = ["lines"]\nsenders = { "lines:ana" = "owner" }\n'
        f'[plugins.lines]\nport = {service.port}\n[people.ben]\ntoken = "{BEN}"\n'
    )
    async with gateway(tmp_path / "home", file=file) as running, visiting(browser, running, size=size, dark=dark) as visit:
        await service.say("hello", id_="1", sender="ben", name=HOSTILE)
        await service.until_heard(no="1")
        await service.say("never mind", id_="2")
        await service.until_heard(ok="2")
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/health")
        state = page.get_by_role("region", name="Channels").get_by_role("row").filter(has_text="lines")
        await expect(state).to_contain_text("connected since")
        await expect(state).to_contain_text("1 never delivered")
        await expect(state).to_contain_text("The room is gone.")
        asking = page.get_by_role("region", name="Senders who ask to speak").get_by_role("row").filter(has_text="lines:ben")
        await expect(asking).to_contain_text("<script>")
        assert not set("\x1b\x07\u202e\u2066") & set(await asking.inner_text())
        admit = asking.get_by_role("button", name="Admit")
        await expect(admit).to_be_disabled()
        await asking.get_by_role("combobox").select_option("ben")
        assert await faults(page) == []
        if folder := os.environ.get("SCREENSHOTS"):
            await page.get_by_role("heading", name="Channels").scroll_into_view_if_needed()
            await page.screenshot(path=f"{folder}/channels-{size[0]}-{dark}.png", full_page=True)
        await admit.click()
        paired = page.get_by_role("region", name="Paired senders").get_by_role("row").filter(has_text="lines:ben")
        await expect(paired).to_contain_text("ben")
        await service.say("hello", id_="3", sender="ben")
        await service.until_heard(text="hello")
        await paired.get_by_role("button", name="Remove").click()
        await paired.get_by_role("button", name="Remove").click()
        await expect(page.get_by_text("Nobody is paired.")).to_be_visible()
        await service.say("hello?", id_="4", sender="ben")
        await service.until_heard(no="4")
        service.close()
        service.hang_up()
        await expect(state).to_contain_text("closed since")
        await expect(page.locator(".verdict")).to_contain_text("The channel 'lines' is closed")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await faults(page) == []
        assert (visit.errors, visit.elsewhere) == ([], [])
