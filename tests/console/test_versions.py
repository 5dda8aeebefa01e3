"""Versions of a conversation: edited messages and repeated answers in their place, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from plugins.testing.servers.openai_server import OpenAIServer, ScriptedResponse
from tests.console.accessible import faults
from tests.console.browser import visiting
from tests.console.test_chat import Counting, asking, entries, message, received, say
from tests.console.test_sidebar import rows
from tests.gateway.gateways import gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")


def versions(entry: Locator) -> Locator:
    return entry.get_by_role("group", name="Version")


async def edit(page: Page, number: int, text: str) -> None:
    """Edit a message in its place."""
    entry = entries(page, "person").nth(number)
    await entry.hover()
    await entry.get_by_role("button", name="Edit").click()
    await entry.get_by_role("textbox", name="Edit the message").fill(text)
    await page.keyboard.press("Enter")


async def answer_again(page: Page, number: int) -> None:
    entry = entries(page, "assistant").nth(number)
    await entry.hover()
    await entry.get_by_role("button", name="Answer again").click()


async def test_an_edited_message_and_a_repeated_answer_are_versions_in_their_place(tmp_path: Path, browser: Browser) -> None:
    replies = [ScriptedResponse(text) for text in ("One.", "Beans are.", "Peas are.", "Peas, again.", "Corn is.")]
    async with (
        OpenAIServer(*replies).serving() as provider,
        gateway(tmp_path, settings=asking(provider)) as running,
        visiting(browser, running) as visit,
    ):
        page = visit.page
        people, answers = entries(page, "person"), entries(page, "assistant")
        await visit.sign_in()
        await say(page, "first")
        await expect(answers).to_contain_text(["One."])
        await expect(entries(page, "assistant.live")).to_have_count(0)
        await say(page, "Plant <b>beans</b>")
        await expect(answers.last).to_contain_text("Beans are.")
        await expect(page.get_by_role("button", name="Answer again")).to_have_count(2)
        await edit(page, 1, "Plant peas")
        await expect(answers.last).to_contain_text("Peas are.")
        await expect(people).to_contain_text(["first", "Plant peas"])
        await expect(page).to_have_url(re.compile("main-fork$"))
        await expect(versions(people.last)).to_have_accessible_name("Version 2 of 2")
        await answer_again(page, 1)
        await expect(answers.last).to_contain_text("Peas, again.")
        await expect(versions(people.last)).to_have_accessible_name("Version 2 of 2")
        await expect(versions(answers.last)).to_have_accessible_name("Version 2 of 2")
        await edit(page, 0, "the very first")
        await expect(answers).to_contain_text(["Corn is."])
        await expect(people).to_contain_text(["the very first"])
        await expect(versions(people.first)).to_have_accessible_name("Version 2 of 2")

        await people.first.get_by_role("button", name="Previous version").press("Enter")
        await expect(answers).to_contain_text(["One.", "Peas, again."])
        await expect(people.first.get_by_role("button", name="Next version")).to_be_focused()
        await answers.last.get_by_role("button", name="Previous version").press("Enter")
        await expect(answers.last).to_contain_text("Peas are.")
        await expect(versions(answers.last)).to_have_accessible_name("Version 1 of 2")
        await expect(answers.last.get_by_role("button", name="Next version")).to_be_focused()
        await people.last.get_by_role("button", name="Previous version").press("Enter")
        await expect(answers.last).to_contain_text("Beans are.")
        await expect(people.last.locator(".said")).to_have_text("Plant <b>beans</b>")
        await expect(page).to_have_url(re.compile("/main$"))
        await expect(rows(page)).to_have_count(1)
        await expect(page.locator("body")).not_to_contain_text("fork")
        assert await faults(page) == []

        await page.get_by_role("button", name="Actions for this conversation").click()
        await page.get_by_role("menuitem", name="Versions…").click()
        tree = page.get_by_role("dialog", name="Versions of this conversation")
        await expect(tree).to_contain_text("4 versions")
        await expect(tree.get_by_role("link")).to_contain_text(["first", "Plant peas", "Plant peas", "the very first"])
        await expect(tree.get_by_role("link", name="first").first).to_be_focused()
        assert await faults(page) == []
        await tree.get_by_role("link", name="the very first").press("Enter")
        await expect(answers).to_contain_text(["Corn is."])
        await expect(tree).to_have_count(0)
        assert (visit.errors, visit.elsewhere) == ([], [])
    said = ["first", "Plant <b>beans</b>", "Plant peas", "Plant peas", "the very first"]
    assert sorted(set(received(tmp_path))) == sorted(set(said))


async def test_the_version_in_a_long_conversation_is_switched_without_moving_the_page(
    tmp_path: Path, browser: Browser
) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        client = await running.connect()
        for number in range(12):
            await client.chat(f"message {number}\n" * 5)
        page = visit.page
        await visit.sign_in()
        await expect(entries(page, "assistant")).to_have_count(12)
        await edit(page, 6, "edited")
        await expect(entries(page, "assistant").last).to_contain_text("edited")
        previous = entries(page, "person").last.get_by_role("button", name="Previous version")
        await expect(previous).to_be_visible()
        top = await previous.evaluate("(button) => button.closest('article').getBoundingClientRect().top")
        await previous.click()
        await expect(entries(page, "assistant")).to_have_count(12)
        following = entries(page, "person").nth(6).get_by_role("button", name="Next version")
        await expect(following).to_be_focused()
        moved = "([button, top]) => Math.abs(button.closest('article').getBoundingClientRect().top - top) < 2"
        await page.wait_for_function(moved, arg=[await following.element_handle(), top])
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_an_edit_is_left_by_escape_and_keeps_the_other_messages_of_its_turn(tmp_path: Path, browser: Browser) -> None:
    counting = Counting()
    async with (
        OpenAIServer(counting, ScriptedResponse("Both."), ScriptedResponse("Again both.")).serving() as provider,
        gateway(tmp_path, settings={**asking(provider), "sessions.queue": "collect"}) as running,
        visiting(browser, running) as visit,
    ):
        page = visit.page
        people = entries(page, "person")
        await visit.sign_in()
        await say(page, "go")
        await expect(entries(page, "assistant.live")).to_contain_text("1 2")
        await say(page, "The garden is small.")
        await say(page, "What fits?")
        await expect(page.get_by_text("Queued")).to_have_count(2)
        counting.finish_now()
        await expect(entries(page, "assistant").last).to_contain_text("Both.")
        await people.last.hover()
        await people.last.get_by_role("button", name="Edit").click()
        await people.last.get_by_role("textbox", name="Edit the message").press("Escape")
        await expect(people.last.get_by_role("button", name="Edit")).to_be_focused()
        await expect(people.last.locator(".said")).to_have_text("What fits?")
        await edit(page, 2, "What does not fit?")
        await expect(entries(page, "assistant").last).to_contain_text("Again both.")
        await expect(people).to_contain_text(["go", "The garden is small.", "What does not fit?"])
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_conversation_goes_on_in_a_new_one_after_an_answer(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await say(page, "Hello there")
        await expect(entries(page, "assistant")).to_contain_text("Hello there")
        await entries(page, "assistant").hover()
        await page.get_by_role("button", name="Fork after this").click()
        await expect(page).to_have_url(re.compile("/hello-there-[a-z][0-9][a-z][0-9]$"))
        await expect(page.get_by_text("Forked here")).to_be_visible()
        await expect(rows(page)).to_have_count(2)
        await expect(message(page)).to_be_focused()
        assert (visit.errors, visit.elsewhere) == ([], [])
