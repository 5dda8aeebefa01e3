"""The console as an application: its manifest, its service worker, and notifications."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from playwright.async_api import Browser, Page, expect

from benchmarks.ports import free_port
from gateway.http.console import pages
from tests.console.accessible import faults
from tests.console.asked import ask
from tests.console.browser import visiting
from tests.gateway.gateways import gateway
from tests.waiting import deadline

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEPT = """async () => {
  const found = [];
  for (const name of await caches.keys())
    for (const { url } of await (await caches.open(name)).keys()) found.push([name, new URL(url).pathname]);
  return found;
}"""
HIDDEN = """Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true });
document.dispatchEvent(new Event('visibilitychange'));"""
VISIBLE = "delete document.visibilityState; document.dispatchEvent(new Event('visibilitychange'));"
NOTIFIED = """async () => (await (await navigator.serviceWorker.ready).getNotifications())
  .map(({ title, body, data }) => ({ title, body, data }))"""

# Counts the notifications that the browser has shown. Chromium forgets one that is being shown while it is asked for those
# that are there, so a test that waits for a notification must not wait by asking.
COUNTED = """const show = ServiceWorkerRegistration.prototype.showNotification;
ServiceWorkerRegistration.prototype.showNotification = async function (...what) {
  await show.apply(this, what);
  localStorage.shown = Number(localStorage.shown ?? 0) + 1;
};"""


async def until_true(page: Page, expression: str) -> None:
    """Wait until an asynchronous expression is true in the page."""
    async with deadline():
        await page.evaluate(f"async () => {{ while (!({expression})) await new Promise(requestAnimationFrame) }}")


async def controlled(page: Page) -> None:
    """Wait until the service worker has kept its files and serves the page."""
    await until_true(page, "navigator.serviceWorker.controller?.state === 'activated'")


async def test_the_manifest_names_icons_of_the_sizes_that_they_have(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        page = (await ask(running, "/")).body.decode()
        path = page.partition('rel="manifest" href="')[2].partition('"')[0]
        manifest = (await ask(running, path)).json
        assert (manifest["id"], manifest["start_url"], manifest["scope"], manifest["display"]) == (
            "/",
            "/",
            "/",
            "standalone",
        )
        assert {icon.get("purpose", "any") for icon in manifest["icons"]} == {"any", "maskable"}
        for icon in manifest["icons"]:
            given = await ask(running, urljoin(path, icon["src"]))
            assert (given.status, given.headers["Content-Type"].partition(";")[0]) == (200, icon["type"])
            if icon["type"] == "image/png":
                assert "{}x{}".format(*struct.unpack(">II", given.body[16:24])) == icon["sizes"]


async def test_the_page_starts_without_the_gateway_and_comes_back_with_it(tmp_path: Path, browser: Browser) -> None:
    port = free_port()
    async with visiting(browser, f"http://127.0.0.1:{port}", workers=True) as visit:
        page = visit.page
        async with gateway(tmp_path, settings={"gateway.port": port}):
            await visit.sign_in()
            await controlled(page)
            await page.get_by_role("textbox", name="Message").fill("hello")
            await page.keyboard.press("Enter")
            await expect(page.locator("article.assistant")).to_contain_text("hello")
        await page.reload()
        await expect(page.get_by_text("The gateway cannot be reached.")).to_be_visible()
        assert await faults(page) == []
        kept = await page.evaluate(KEPT)
        assert {path for _, path in kept if not path.startswith("/console/")} == {"/"}  # nothing of a person
        assert any(path.endswith("/context/context.js") for _, path in kept)
        async with gateway(tmp_path, settings={"gateway.port": port}):
            await page.get_by_role("button", name="Try again").click()
            await expect(page.locator("article.assistant")).to_contain_text("hello")


async def test_an_update_is_shown_at_once_and_ends_what_was_kept_of_the_version_before(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    async with visiting(browser, f"http://127.0.0.1:{port}", workers=True) as visit:
        page = visit.page
        async with gateway(tmp_path / "home", settings={"gateway.port": port}):
            await visit.sign_in()
            await controlled(page)
        before = {name for name, _ in await page.evaluate(KEPT)}
        newer = Path(shutil.copytree(pages.FOLDER, tmp_path / "newer"))
        with (newer / "console.css").open("a") as sheet:
            sheet.write("\n:root { --version: newer; }\n")
        monkeypatch.setattr(pages.read_files, "__defaults__", (newer,))
        async with gateway(tmp_path / "home", settings={"gateway.port": port}):
            await expect(page.get_by_text("The gateway has a new version of this page.")).to_be_visible()
            await page.get_by_role("button", name="Load it").click()
            await expect(page.locator(":root")).to_have_css("--version", "newer")
            await until_true(page, f"!(await caches.keys()).includes({json.dumps(before.pop())})")
            assert len({name for name, _ in await page.evaluate(KEPT)}) == 1


async def test_a_hidden_page_notifies_of_an_answer_once_it_was_asked_to(tmp_path: Path, whole_browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(whole_browser, running, workers=True) as visit:
        page = visit.page
        await page.add_init_script(
            "window.asked = 0; const ask = Notification.requestPermission.bind(Notification);"
            "Notification.requestPermission = () => (window.asked++, ask())"
        )
        await visit.context.add_init_script(COUNTED)
        await visit.context.grant_permissions(["notifications"])
        await visit.sign_in()
        await controlled(page)
        client = await running.connect()
        await page.get_by_role("textbox", name="Message").fill("first")
        await page.keyboard.press("Enter")
        await expect(page.locator("article.assistant")).to_contain_text("first")
        await page.evaluate(HIDDEN)
        await client.chat("nobody asked for news yet")
        await expect(page.locator("article.assistant")).to_have_count(2)
        assert (await page.evaluate("window.asked"), await page.evaluate(NOTIFIED)) == (0, [])

        await page.get_by_role("button", name="Preferences").click()
        await page.get_by_role("button", name="Notify me when something waits").click()
        await expect(page.get_by_role("button", name="Notifications are on")).to_be_visible()
        assert await faults(page) == []
        assert await page.evaluate("window.asked") == 1
        await client.chat("a secret")
        await until_true(page, "localStorage.shown === '1'")
        assert await page.evaluate(NOTIFIED) == [{"title": "first", "body": "The answer is ready.", "data": "#/chat/main"}]
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_hidden_pages_notify_once_of_what_happens_in_any_conversation(tmp_path: Path, whole_browser: Browser) -> None:
    write = {"text": "", "calls": [{"tool": "write", "arguments": {"path": "a.txt", "content": "a"}}]}
    script: list[Mapping[str, Any]] = [{"text": "the answer"}, write]
    async with (
        gateway(tmp_path, script=script, file="[approvals]\n") as running,
        visiting(whole_browser, running, workers=True) as visit,
    ):
        page = visit.page
        await visit.context.add_init_script(COUNTED)
        await visit.context.grant_permissions(["notifications"])
        await visit.sign_in()
        await controlled(page)
        other = await visit.context.new_page()
        await other.goto(f"{visit.url}#/memory")
        await expect(other.get_by_role("tab", name="Search")).to_be_visible()
        await page.get_by_role("button", name="Preferences").click()
        await page.get_by_role("button", name="Notify me when something waits").click()
        await expect(page.get_by_role("button", name="Notifications are on")).to_be_visible()
        client = await running.connect()

        await page.evaluate(HIDDEN)
        await client.chat("seen in the other tab", session="garden")
        for tab in (page, other):
            await expect(tab.locator(".sessions a", has_text="garden")).to_be_visible()
        await other.evaluate(HIDDEN)
        await client.chat("seen nowhere", session="kitchen")
        await until_true(page, "localStorage.shown === '1'")
        await client.send("write it", session="garden")
        await until_true(page, "localStorage.shown === '2'")
        found = await page.evaluate(NOTIFIED)
        assert sorted((each["data"], each["body"]) for each in found) == [
            ("#/chat/garden", "A tool waits for your approval."),
            ("#/chat/kitchen", "The answer is ready."),
        ]
        assert len(json.loads(await page.evaluate("localStorage['exuvia.notified']"))) == 2
        await other.evaluate(VISIBLE)
        assert (visit.errors, visit.elsewhere) == ([], [])
