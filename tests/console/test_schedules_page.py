"""The page of the schedules, in a browser: added, run, paused and removed; the month shows what is due."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.console.accessible import faults
from tests.console.browser import NARROW, visiting
from tests.gateway.gateways import gateway
from tests.gateway.test_schedules import logged

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTILE = "<img src=x onerror=alert(1)> **bold** \u202egnp.exe"


async def test_schedules_are_added_paused_run_and_removed_by_keyboard_and_mouse(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/schedules")
        await expect(page.get_by_text("Nothing is scheduled.")).to_be_visible()
        await page.get_by_role("button", name="0 9 * * 1-5").click()
        await expect(page.get_by_label("When")).to_have_value("0 9 * * 1-5")
        await page.get_by_label("Text").fill(HOSTILE)
        await page.keyboard.press("Control+Enter")
        item = page.locator(".schedule")
        await expect(item).to_have_count(1)
        await expect(item).to_be_focused()
        await expect(item).to_contain_text("<img src=x onerror=alert(1)> **bold** gnp.exe")
        await expect(item).to_contain_text("At 09:00 on Monday through Friday")
        assert await faults(page) == []
        await item.get_by_role("button", name="Details").click()
        await expect(item.locator("dl")).to_contain_text("the newest comes late")
        await item.get_by_role("button", name="Pause").click()
        await expect(item.get_by_role("button", name="Resume")).to_be_focused()
        await expect(page.locator(".chip")).to_have_count(0)
        await item.get_by_role("button", name="Resume").click()
        await expect(item.get_by_role("button", name="Pause")).to_be_focused()
        await item.get_by_role("button", name="Run now").click()
        await expect(page.locator("nav.sessions")).to_contain_text("gnp.exe")
        await item.get_by_role("button", name="Remove").click()
        await item.get_by_role("button", name="Remove").click()
        await expect(page.get_by_text("Nothing is scheduled.")).to_be_visible()
        kinds = {each["kind"] for each in logged(tmp_path)}
        assert kinds >= {"schedule_set", "schedule_paused", "schedule_resumed", "occurrence_due", "schedule_removed"}
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_the_month_shows_what_is_due_and_leads_to_it(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, settings={"agent.timezone": "Europe/Berlin"}) as running:
        client = await running.connect()
        for hour in (8, 9, 10, 11):
            await client.command(f"/remind 2027-02-03 {hour:02}:00 Meeting {hour}.")
        async with visiting(browser, running) as visit:
            await visit.sign_in()
            page = visit.page
            await page.goto(f"{visit.url}#/schedules")
            title = page.locator(".calendar h2")
            await expect(title).not_to_be_empty()
            for _ in range(24):
                if await title.inner_text() == "February 2027":
                    break
                before = await title.inner_text()
                await page.get_by_role("button", name="Next month").click()
                await expect(title).not_to_have_text(before)
            day = page.locator("td", has_text="Wednesday 3 February")
            await expect(day.locator(".chip")).to_have_count(3)
            await day.get_by_role("button", name="1 more").click()
            await expect(day.locator(".chip")).to_have_count(4)
            assert await faults(page) == []
            width = await day.evaluate("cell => cell.clientWidth")
            assert await day.locator(".chip").first.evaluate("chip => chip.offsetWidth") <= width
            await day.get_by_role("button", name="11:00 Meeting 11.").click()
            await expect(page.locator(".schedule", has_text="Meeting 11.")).to_be_focused()
            assert (visit.errors, visit.elsewhere) == ([], [])


async def test_what_is_refused_says_why_and_keeps_the_form(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running, size=NARROW, dark=True) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/schedules")
        await page.get_by_label("When").fill("10m")
        await page.get_by_label("Text").fill("Drink.")
        await page.get_by_text("Options").click()
        await page.get_by_label("Time zone").fill("Mars/Base")
        await page.get_by_role("button", name="Schedule", exact=True).click()
        await expect(page.get_by_role("alert").filter(has_text="no time zone")).to_be_visible()
        await expect(page.get_by_label("Text")).to_have_value("Drink.")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await faults(page) == []
        assert logged(tmp_path) == []
        assert [error for error in visit.errors if "422" not in error] == []  # which a browser says of every refusal
