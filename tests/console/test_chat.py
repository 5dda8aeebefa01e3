"""Chatting in the console, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.console.browser import visiting
from tests.faults.gateway_process import free_port, gateway_process, journals
from tests.gateway.gateways import gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")

SLOW = {"text": "one two three four five six seven eight nine ten eleven twelve. And this is the end.", "delay_ms": 30}


def message(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message")


async def say(page: Page, text: str) -> None:
    """Write a message and send it by the key."""
    await message(page).fill(text)
    await message(page).press("Enter")


def entries(page: Page, kind: str) -> Locator:
    return page.locator(f"article.{kind}")


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def received(home: Path) -> list[str]:
    """The texts of all messages in the journals of a home."""
    return [event["text"] for lines in journals(home) for event in lines if event["kind"] == "message_received"]


async def test_nothing_is_lost_by_a_reload_in_the_answer_a_killed_gateway_or_a_second_tab(
    tmp_path: Path, browser: Browser
) -> None:
    script: list[dict[str, Any]] = [{**SLOW, "delay_ms": 200}, {**SLOW, "delay_ms": 200}, {"text": "I was away."}]
    port = free_port()
    async with gateway_process(tmp_path, script=script, port=port) as first, visiting(browser, url_of(port)) as visit:
        page = visit.page
        await visit.sign_in()
        second = await visit.tab()
        await say(page, "Count for me")
        await expect(entries(page, "assistant.live")).to_contain_text("one two three")
        await page.reload()
        for each in (second, page):
            await expect(entries(each, "assistant.live")).to_contain_text("five six")
        for each in (second, page):
            await expect(entries(each, "assistant")).to_contain_text("the end.")
            await expect(entries(each, "assistant.live")).to_have_count(0)
            await expect(each.locator("article")).to_have_count(2)
        assert (visit.errors, visit.elsewhere) == ([], [])

        await say(page, "And again")
        await expect(entries(page, "assistant.live")).to_contain_text("one two")
        await first.kill()
        await expect(page.locator(".state")).not_to_have_text("Connected")
        await say(page, "Are you there?")
        await expect(entries(page, "person").last).to_contain_text("Sending…")
        async with gateway_process(tmp_path, script=script, port=port):
            await page.reload()  # what was not sent outlives the page; the other tab comes back by itself
            for each in (second, page):
                await expect(entries(each, "assistant").last).to_contain_text("I was away.", timeout=20_000)
                await expect(entries(each, "person")).to_have_count(3)
                await expect(entries(each, "assistant")).to_have_count(3)
                await expect(each.get_by_text("goes on with this turn")).to_be_visible()
    assert received(tmp_path) == ["Count for me", "And again", "Are you there?"]


async def test_an_answer_is_said_by_sentences_to_those_who_listen(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, script=[SLOW]) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        await say(visit.page, "Count for me")
        await expect(entries(visit.page, "assistant")).to_contain_text("the end.")
        said = visit.page.locator("#told[aria-live=polite] p")
        await expect(said).to_have_text(
            ["one two three four five six seven eight nine ten eleven twelve.", "And this is the end."]
        )
