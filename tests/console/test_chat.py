"""Chatting in the console, in a real browser."""

from __future__ import annotations

import re
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
    script: list[dict[str, Any]] = [{**SLOW, "delay_ms": 200}, {**SLOW, "delay_ms": 100}, {"text": "I was away."}]
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


async def test_a_message_is_edited_and_an_answer_asked_for_again_in_forks(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await say(page, "The first thing")
        await expect(entries(page, "assistant")).to_have_count(1)  # a fork is cut between turns
        await expect(entries(page, "assistant.live")).to_have_count(0)
        await say(page, "Plant <b>beans</b>")
        await expect(entries(page, "assistant")).to_have_count(2)
        await entries(page, "person").last.hover()
        await entries(page, "person").last.get_by_role("button", name="Edit in a fork").click()
        await expect(message(page)).to_have_value("Plant <b>beans</b>")
        await expect(entries(page, "person")).to_have_count(1)
        await say(page, "Plant peas")
        await expect(entries(page, "assistant").last).to_contain_text("Plant peas")
        await entries(page, "assistant").last.hover()
        await entries(page, "assistant").last.get_by_role("button", name="Answer again in a fork").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("main-fork-fork")
        await expect(entries(page, "assistant").last).to_contain_text("Plant peas")
        await expect(entries(page, "assistant")).to_have_count(2)

        await page.get_by_role("button", name="Rename").click()
        await page.get_by_label("What “main-fork-fork” is called").fill("Peas")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Peas")
        sessions = page.get_by_role("navigation", name="Sessions").get_by_role("link")
        await expect(sessions).to_contain_text(["Peas", "main-fork", "main"])
        await page.get_by_role("searchbox", name="Search sessions").fill("pea")
        await expect(sessions).to_have_count(1)
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_session_begins_with_its_first_message_and_what_was_written_stays(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await message(page).fill("half a thought")
        await page.get_by_role("button", name="New session").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("New session")
        await say(page, "Plan the garden: où sont les fèves?")
        await expect(entries(page, "assistant")).to_contain_text("où sont les fèves")
        await expect(page.get_by_role("heading", level=1)).to_have_text(
            re.compile("plan-the-garden-ou-sont-les-feves-[a-z0-9]{4}")
        )
        await page.goto(f"{visit.url}/#/chat/main")
        await expect(message(page)).to_have_value("half a thought")
        await message(page).fill("/sto")
        await expect(page.get_by_role("option")).to_have_count(1)
        await message(page).press("Tab")
        await expect(message(page)).to_have_value("/stop")
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_an_answer_is_stopped_and_what_waits_is_seen(tmp_path: Path, browser: Browser) -> None:
    script: list[dict[str, Any]] = [{**SLOW, "delay_ms": 300}, {"text": "And now this."}]
    async with gateway(tmp_path, script=script) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await say(page, "Count for me")
        await expect(entries(page, "assistant.live")).to_contain_text("one")
        await say(page, "And then?")
        await expect(entries(page, "person").last).to_contain_text("Waiting for its turn")
        await page.get_by_role("button", name="Stop").click()
        await expect(entries(page, "aside").get_by_text("Stopped.")).to_be_visible()
        await expect(entries(page, "assistant").last).to_contain_text("And now this.")
        await expect(page.get_by_text("Waiting for its turn")).to_have_count(0)


async def test_a_pasted_picture_goes_with_the_message_and_is_seen(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await message(page).focus()
        await page.evaluate(
            """async () => {
                const canvas = new OffscreenCanvas(40, 30);
                canvas.getContext("2d").fillRect(0, 0, 20, 30);
                const file = new File([await canvas.convertToBlob()], "half.png", { type: "image/png" });
                const data = new DataTransfer();
                data.items.add(file);
                document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
            }"""
        )
        await expect(page.get_by_label("Files of this message")).to_contain_text("half.png")
        await say(page, "What is this?")
        picture = entries(page, "person").get_by_role("img", name="half.png")
        await expect(picture).to_be_visible()
        assert await picture.evaluate("async (shown) => { await shown.decode(); return shown.naturalWidth; }") == 40
        (lines,) = journals(tmp_path)
        (sent,) = [event["attachments"] for event in lines if event["kind"] == "message_received"]
        assert [(file["name"], file["media"]) for file in sent] == [("half.png", "image/png")]
        assert (visit.errors, visit.elsewhere) == ([], [])
