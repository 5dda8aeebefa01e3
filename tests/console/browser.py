"""A real browser, headless, without a window or a network beyond this machine. One serves a whole module of tests."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator

from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.gateway.gateways import TOKEN, Gateway
from tests.waiting import DEADLINE

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
"""A whole browser, which has a microphone and notifications."""

SHELL = shutil.which("chromium-headless-shell") or CHROMIUM
"""Chromium's engine without a browser's own interface, if it is installed: it takes half the processor time."""

PATIENCE = DEADLINE * 1000  # milliseconds
expect.set_options(timeout=PATIENCE)

WIDE, NARROW = (1280, 800), (390, 844)


@contextlib.asynccontextmanager
async def chromium(*arguments: str, program: str | None = SHELL) -> AsyncIterator[Browser]:
    """The browser, started with further arguments, while the block runs."""
    async with async_playwright() as play:
        # Root may start Chromium only without its sandbox; what it loads here is our own.
        browser = await play.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage", *arguments], timeout=PATIENCE
        )
        try:
            yield browser
        finally:
            await browser.close()


class Visit:
    """A browser's window at a gateway. What its pages ask of other hosts, and every error in their console, is kept."""

    def __init__(self, context: BrowserContext, page: Page, url: str) -> None:
        self.context = context
        self.page = page
        self.url = url
        self.elsewhere: list[str] = []
        self.errors: list[str] = []
        self.watch(page)

    def watch(self, page: Page) -> None:
        """Keep what this page does, too."""
        page.on("request", lambda request: self._asked(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)

    async def sign_in(self, token: str = TOKEN) -> None:
        """Come in by the form."""
        await self.page.goto(self.url)
        await self.page.get_by_label("Token").fill(token)
        await self.page.get_by_role("button", name="Sign in").click()
        await self.page.get_by_text("Connected", exact=True).wait_for(state="attached")

    async def tab(self) -> Page:
        """A further page of this window, at the same place."""
        page = await self.context.new_page()
        self.watch(page)
        await page.goto(self.page.url)
        return page

    def _asked(self, url: str) -> None:
        if not url.startswith((self.url, self.url.replace("http", "ws"), "blob:", "data:")):
            self.elsewhere.append(url)


@contextlib.asynccontextmanager
async def visiting(
    browser: Browser,
    gateway: Gateway | str,
    *,
    size: tuple[int, int] = WIDE,
    dark: bool = False,
    scale: float = 1,
    language: str = "en-GB",
    workers: bool = False,
) -> AsyncIterator[Visit]:
    """Open a window, with cookies of its own, at a gateway or its address; `scale` is the device pixels in one of CSS,
    `workers` lets the page have its service worker."""
    url = gateway if isinstance(gateway, str) else gateway.url
    width, height = size
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        locale=language,
        service_workers="allow" if workers else "block",
        device_scale_factor=scale,
    )
    context.set_default_timeout(PATIENCE)
    try:
        yield Visit(context, await context.new_page(), url)
    finally:
        for page in context.pages:
            await page.unroute_all(behavior="ignoreErrors")  # one may be answering a request that the page repeats
        await context.close()
