"""The reasoning before an answer, what the answer cost, and what can be done after it, in a real browser."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import OpenAIServer, ScriptedResponse, refusal
from tests.console.accessible import faults
from tests.console.browser import NARROW, visiting
from tests.console.test_chat import asking, entries, say
from tests.gateway.gateways import gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")

THOUGHTS = "**Reading the question.** It asks for a sum.\n\n**Adding.** Two and two are four: <img src=x onerror=alert(1)>"
PRICES = '[prices."openai:fake"]\ninput = 2.0\noutput = 10.0\n'


class Thinking(ScriptedResponse):
    """An answer that thinks slowly until it is told to go on."""

    def __init__(self, text: str, reasoning: str, delay: float = 5) -> None:
        super().__init__(text, reasoning=reasoning, delay=delay)

    def go_on(self) -> None:
        self.delay = 0


async def shot(page: Page, name: str) -> None:
    """Keep a screenshot where the variable says, for people to look at."""
    if folder := os.environ.get("EXUVIA_SHOTS"):
        await page.screenshot(path=f"{folder}/{name}.png")


async def test_reasoning_is_folded_live_and_after_a_reload(tmp_path: Path, browser: Browser) -> None:
    thinking = Thinking("It is **four**.", THOUGHTS)
    async with (
        OpenAIServer(thinking).serving() as provider,
        gateway(tmp_path, settings=asking(provider)) as running,
        visiting(browser, running) as visit,
    ):
        page = visit.page
        await visit.sign_in()
        await say(page, "How much is 2 and 2?")
        block = entries(page, "assistant").locator(".reasoning")
        await expect(block.get_by_text("Thinking…")).to_be_visible()
        await expect(block.locator(".last")).to_contain_text("Reading")
        await expect(page.locator(".doing")).to_be_hidden()  # the block says it already
        await shot(page, "thinking")
        await block.locator("summary").click()
        await expect(block.locator(".inside")).to_contain_text("Reading")
        thinking.go_on()
        await expect(entries(page, "assistant").locator(".prose strong", has_text="four")).to_be_visible()
        await expect(block.locator(".label")).to_contain_text("Thought for")
        await expect(block.locator(".inside strong")).to_have_text(["Reading the question.", "Adding."])
        await shot(page, "thought")
        await page.reload()
        await expect(block.locator(".label")).to_contain_text("Thought for")
        await expect(block.locator(".inside")).to_be_hidden()
        await block.locator("summary").click()
        await expect(block.locator(".inside")).to_contain_text("<img src=x onerror=alert(1)>")
        assert (visit.errors, visit.elsewhere) == ([], [])


@pytest.mark.parametrize("dark", [False, True])
async def test_an_answer_says_its_time_its_tokens_and_its_price(tmp_path: Path, browser: Browser, dark: bool) -> None:
    thinking = Thinking("It is four.", THOUGHTS, delay=0)
    async with (
        OpenAIServer(thinking).serving() as provider,
        gateway(tmp_path, settings=asking(provider), file=PRICES) as running,
        visiting(browser, running, size=NARROW, dark=dark) as visit,
    ):
        page = visit.page
        await visit.sign_in()
        await say(page, "How much is 2 and 2?")
        spent = entries(page, "assistant").locator(".spent")
        await expect(spent).to_contain_text("$0.0")
        await expect(spent).to_contain_text("tokens")
        assert "out" in (await spent.get_attribute("title") or "")
        await expect(entries(page, "assistant").locator(".reasoning .label")).to_have_text("Thought")  # in no time
        await entries(page, "assistant").locator(".reasoning summary").click()
        assert await faults(page) == []
        await shot(page, f"spent-{dark}")


async def test_an_answer_that_was_cut_off_is_continued(tmp_path: Path, browser: Browser) -> None:
    answers = ScriptedResponse("One two", finish="length"), ScriptedResponse("three.")
    async with (
        OpenAIServer(*answers).serving() as provider,
        gateway(tmp_path, settings=asking(provider)) as running,
        visiting(browser, running) as visit,
    ):
        page = visit.page
        await visit.sign_in()
        await say(page, "Count")
        await expect(page.get_by_text("The answer reached its maximum length.")).to_be_visible()
        await shot(page, "cut")
        await page.get_by_role("button", name="Continue").click()
        await expect(entries(page, "assistant").last).to_contain_text("three.")
        await expect(page.get_by_role("button", name="Continue")).to_be_hidden()
        assert provider.requests[-1]["messages"][-1]["content"] == "Continue exactly where you stopped."
        assert "reasoning" not in str(provider.requests)


async def test_the_wait_for_a_provider_is_counted_down(tmp_path: Path, browser: Browser) -> None:
    busy = Fault(status=429, body=refusal("Slow down.", "rate_limit_exceeded"), headers={"Retry-After": "3"})
    async with (
        OpenAIServer(busy, Thinking("Four.", "Hm.", delay=0)).serving() as provider,
        gateway(tmp_path, settings=asking(provider)) as running,
        visiting(browser, running) as visit,
    ):
        page = visit.page
        await visit.sign_in()
        await say(page, "How much?")
        await expect(page.locator(".doing")).to_contain_text("Trying again in")
        await shot(page, "paused")
        await expect(entries(page, "assistant")).to_contain_text("Four.")
        await expect(page.locator(".doing")).to_be_hidden()
