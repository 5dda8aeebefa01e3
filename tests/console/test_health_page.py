"""The page of the gateway's health, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, Route, expect

from gateway.status import last_hour
from tests.console.accessible import faults
from tests.console.browser import NARROW, visiting
from tests.gateway.gateways import gateway

BOB = "a-token-for-bob-that-is-long-enough"

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_owner_sees_the_last_hour_the_plugins_and_what_was_spent(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_hour, "EVERY", 0.2)
    script = [{"text": "Well."}, {"error": "credentials_refused"}]
    settings = {"plugins.allow": ["no-such-plugin"]}
    async with gateway(tmp_path, script=script, settings=settings) as running, visiting(browser, running) as visit:
        client = await running.connect()
        await client.chat("How are you?")
        await client.send("And now?")
        await client.until_event("turn_ended")
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/health")
        await expect(page.locator(".tiles")).to_contain_text("0 running, 0 waiting")
        await expect(page.get_by_role("figure").filter(has_text="Turns")).to_contain_text("at most")
        spent = page.get_by_role("region", name="Tokens by purpose, since the start")
        await expect(spent.get_by_role("row").filter(has_text="answer")).to_contain_text("scripted:script")
        plugins = page.get_by_role("region", name="Plugins")
        await expect(plugins.get_by_role("row").filter(has_text="no-such-plugin")).to_contain_text("is not used")
        errors = page.get_by_role("region", name="Failed provider requests, since the start")
        await expect(errors.get_by_role("row").filter(has_text="scripted")).to_contain_text("credentials refused")
        await expect(page.locator(".line-0").first).to_be_attached()
        assert await faults(page) == []
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_other_people_cannot_see_the_health_page(tmp_path: Path, browser: Browser) -> None:
    settings = {"people.bob.token": BOB, "memory.embedding.provider": "none"}
    async with (
        gateway(tmp_path, settings=settings) as running,
        visiting(browser, running, size=NARROW, dark=True) as visit,
    ):
        await visit.sign_in(BOB)
        page = visit.page
        await page.goto(f"{visit.url}#/health")
        await expect(page.get_by_text("Only the owner may see this")).to_be_visible()
        assert await faults(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_plugins_with_problems_are_listed_first(tmp_path: Path, browser: Browser) -> None:
    async def answer(route: Route) -> None:
        health = await (await route.fetch()).json()
        plain: dict[str, object] = {"ours": True, "provides": ["a"], "failures": {}, "refused": []}
        failing = {"failures": {"tool": 2}}
        health["plugins"] = [
            {**plain, "name": "well"},
            {**plain, "name": "theirs", "ours": False},
            {**plain, "name": "broken", **failing},
            {**plain, "name": "their-broken", "ours": False, **failing},
        ]
        await route.fulfill(json=health)

    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await visit.page.route("**/api/health", answer)
        await visit.sign_in()
        await visit.page.goto(f"{visit.url}#/health")
        names = visit.page.get_by_role("region", name="Plugins").locator("tbody th")
        await expect(names).to_have_text(["their-broken (third-party)", "broken", "theirs (third-party)", "well"])
