"""The page of a session's context, in a browser: a turn is chosen, its exact request shown, a compaction taken back."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from gateway.conversations.turn import recalling
from tests.console.accessible import faults
from tests.console.browser import NARROW, WIDE, visiting
from tests.console.test_context_endpoints import long_talk
from tests.console.test_memory_endpoints import home, remembering
from tests.gateway.gateways import gateway
from tests.waiting import deadline, until

__all__ = ["home"]

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_click_on_the_plot_shows_that_turns_exact_request(tmp_path: Path, browser: Browser) -> None:
    await long_talk(tmp_path)
    async with gateway(tmp_path / "home") as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/context/main")
        plot = page.get_by_role("slider", name="Turn")
        await expect(page.get_by_text("Turns 1 to 60")).to_be_visible()
        await plot.click(position={"x": 604, "y": 120})
        chosen = int(await plot.get_attribute("aria-valuenow") or 0)
        assert 25 < chosen < 55
        await expect(page.get_by_role("heading", name=f"Turn {chosen}", exact=True)).to_be_visible()
        await expect(page.get_by_text("Byte-identical")).to_be_visible()
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Exact bytes").click()
        given = Path(await (await download.value).path()).read_bytes()
        assert f"sha256 {hashlib.sha256(given).hexdigest()}" == await page.locator(".hash").inner_text()
        await page.get_by_text("Instructions", exact=True).click()
        await expect(page.locator(".request-row .whole").first).to_contain_text("Be brief.")
        cut = page.locator(".request-row.tool").filter(has_text="trimmed from").first
        await cut.locator("summary").click()
        await cut.get_by_role("button", name="Show the original").click()
        await expect(cut.locator("pre")).to_have_count(2)
        await expect(cut.locator("pre").last).not_to_be_empty()
        shown, kept = await cut.locator("pre").all_inner_texts()
        assert len(kept) > len(shown) > 3000
        await plot.press("ArrowRight")
        await expect(page.get_by_role("heading", name=f"Turn {chosen + 1}", exact=True)).to_be_visible()
        await expect(plot).to_have_attribute("aria-valuetext", re.compile(f"Turn {chosen + 1}, .* tokens"))
        await plot.press("Home")
        await expect(page.get_by_role("heading", name="Turn 1", exact=True)).to_be_visible()
        await expect(page.get_by_text("Byte-identical")).to_be_visible()
        assert await faults(page) == []
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_compaction_can_be_viewed_and_reverted(tmp_path: Path, browser: Browser) -> None:
    await long_talk(tmp_path)
    async with gateway(tmp_path / "home") as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/context/main")
        await page.locator(".mark.compacted").last.wait_for(state="attached")
        async with deadline():
            while (mark := await page.locator(".mark.compacted").last.bounding_box()) is None:  # it is drawn again
                await asyncio.sleep(0.05)
        await page.mouse.click(mark["x"] + 1, mark["y"] - 100)
        await page.get_by_role("button", name="Before and after").last.click()
        await expect(page.get_by_role("heading", name="After: the summary")).to_be_visible()
        assert await faults(page) == []
        before = len(running.journals())
        await page.get_by_role("button", name="Revert this compaction…").click()
        assert "compaction_reverted" not in kinds(running.journals())
        await page.get_by_role("button", name="Revert").click()
        await expect(page.get_by_text("Reverted compaction")).to_be_visible()
        await expect(page.get_by_text("Reverted: the model sees these messages again.")).to_be_visible()
        await expect(page.locator(".mark.reverted")).to_have_count(1)
        assert len(running.journals()) == before
        assert kinds(running.journals()).count("compaction_reverted") == 1
        assert visit.errors == []


async def test_a_new_turn_appears_in_the_plot_and_an_empty_session_says_so(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path / "home") as running, visiting(browser, running, size=NARROW, dark=True) as visit:
        client = await running.connect()
        await client.command("/help")
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/context/main")
        await expect(page.get_by_text("No model has been called in this session yet.")).to_be_visible()
        await client.chat("Good evening")
        await expect(page.get_by_role("slider", name="Turn")).to_have_attribute("aria-valuemax", "1")
        await client.chat("And good night")
        await expect(page.get_by_role("slider", name="Turn")).to_have_attribute("aria-valuemax", "2")
        assert await faults(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_conversation_that_has_not_begun_leads_to_its_first_message(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path / "home") as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/context/garden%20plan")
        await expect(page.get_by_role("heading", name="No model has been called in this session yet.")).to_be_visible()
        await expect(page.get_by_text("There is no session")).to_have_count(0)
        assert await faults(page) == []
        await page.get_by_role("link", name="Write a message").click()
        await expect(page).to_have_url(f"{visit.url}/#/chat/garden%20plan")
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()


def kinds(journals: dict[str, list[dict[str, str]]]) -> list[str]:
    return [line["kind"] for lines in journals.values() for line in lines]


async def test_the_tokens_of_turns_have_a_price(tmp_path: Path, browser: Browser) -> None:
    file = '[agent]\nmodel = "scripted:echo"\n[prices."scripted:echo"]\ninput = 2000.0\noutput = 4000.0\n'
    async with gateway(tmp_path, file=file) as running, visiting(browser, running) as visit:
        client = await running.connect()
        for _ in range(2):
            await client.chat("a" * 400)  # 100 tokens, and the same as the answer
        (journal,) = running.journals().values()
        usages = [event["usage"] for event in journal if event["kind"] == "model_replied"]
        costs = [(2000 * usage["input"] + 4000 * usage["output"]) / 1_000_000 for usage in usages]
        output = sum(usage["output"] for usage in usages)
        assert output == 200
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/context/main")
        await expect(page.locator(".spent")).to_contain_text(f"{output} out. Cost: ${sum(costs):.2f}")
        await page.get_by_role("slider", name="Turn").press("Home")
        row = page.get_by_role("row").filter(has_text="scripted:echo")
        await expect(row).to_contain_text(f"${costs[0]:.2f}")
        assert await faults(page) == []
        assert (visit.errors, visit.elsewhere) == ([], [])


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (NARROW, True)])
async def test_answers_to_a_changed_request_stand_side_by_side_and_stop_with_the_page(
    tmp_path: Path, browser: Browser, size: tuple[int, int], dark: bool
) -> None:
    slow = {"purpose": "what_if", "text": "One two three", "delay_ms": 60_000}
    file = '[agent]\nfallback_models = ["scripted:echo"]\n[prices."scripted:echo"]\ninput = 2000.0\noutput = 4000.0\n'
    async with (
        gateway(tmp_path, file=file, script=[{"text": "Sideways."}, slow]) as running,
        visiting(browser, running, dark=dark, size=size) as visit,
    ):
        client = await running.connect()
        await client.chat("How do crabs walk?")
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/chat/main")
        answer = page.locator(".entry.assistant")
        await answer.get_by_role("button", name="What if…").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="What if")).to_be_focused()
        then = page.get_by_role("article", name="The answer then: scripted:script")
        await expect(then).to_contain_text("Sideways.")
        await page.get_by_label("Model").select_option("scripted:echo")
        await page.get_by_label("Pruning").select_option("Shorten old tool results")
        await expect(page.get_by_label("Longest result, in characters")).to_have_value("4000")
        await page.get_by_role("button", name="Ask").click()
        echo = page.get_by_role("article", name="What if: scripted:echo")
        await expect(echo).to_contain_text("How do crabs walk?")
        await expect(echo.locator(".figures")).to_contain_text("$")
        await expect(echo).to_contain_text("Shorten old tool results.")
        await page.get_by_label("Model").select_option("scripted:script")
        await page.get_by_role("button", name="Ask").click()
        script = page.get_by_role("article", name="What if: scripted:script")
        await expect(script).to_contain_text("tokens, as before.")
        assert await faults(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await script.get_by_role("button", name="Stop").click()
        await expect(script).to_contain_text("Stopped.")
        await script.get_by_role("button", name="Remove").click()
        await expect(script).to_have_count(0)
        await page.get_by_role("button", name="Ask").click()
        await expect(script).to_contain_text("tokens, as before.")
        await until(lambda: running.daemon._in_flight._count == 1)  # the one that was stopped ends a little later
        await page.goto(f"{visit.url}#/health")
        await until(lambda: running.daemon._in_flight._count == 0)
        await until(lambda: kinds(running.journals()).count("request_repeated") == 3)
        assert kinds(running.journals()).count("request_sent") == 1
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_what_was_recalled_says_why(home: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("WITHIN", "PATIENCE"):
        monkeypatch.setattr(recalling, limit, 30.0)
    async with remembering(home) as running, visiting(browser, running) as visit:
        await (await running.connect()).chat("On which port is the staging server?")
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/context/main")
        await page.get_by_role("slider", name="Turn").press("End")
        recalled = page.locator(".request-row.recalled")
        await recalled.locator("summary").click()
        reasons = recalled.locator(".recall-reasons")
        await expect(reasons).to_contain_text("Searched for “On which port is the staging server?”, in ")
        row = reasons.get_by_role("row").filter(has_text="facts.jsonl#L2-L2")
        await expect(row.get_by_role("cell").last).to_have_text("staging, server, port, the, on")
        assert float(await row.get_by_role("cell").first.inner_text()) > 0
        assert await faults(page) == []
        assert (visit.errors, visit.elsewhere) == ([], [])
