"""Chatting in the console, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from benchmarks.ports import free_port
from gateway.http import websocket_connection
from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse, refusal
from tests.console.browser import NARROW, visiting
from tests.faults.gateway_process import gateway_process, journals
from tests.gateway.elsewhere import LINES, Elsewhere
from tests.gateway.gateways import gateway
from tests.shelf import Shelf

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDLESS = {"text": "one " * 2000, "delay_ms": 100}
"""An answer that is stopped."""


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


NUMBERS = " ".join(map(str, range(1, 2001)))


class Counting(ScriptedResponse):
    """An answer that counts for longer than any test takes, until it is told to come to its end."""

    def __init__(self, text: str = f"{NUMBERS} This is the end.", delay: float = 0.1) -> None:
        super().__init__(text, delay=delay)

    def finish_now(self) -> None:
        self.delay = 0


def asking(provider: OpenAIServer) -> dict[str, str]:
    """The settings of a gateway that asks this provider."""
    return {"agent.model": "openai:fake", "providers.openai.base_url": provider.url, "providers.openai.api_key": KEY}


async def test_a_reload_during_an_answer_a_killed_gateway_and_a_second_tab_lose_nothing(
    tmp_path: Path, browser: Browser
) -> None:
    counted, cut, counted_again = Counting(), Counting(), Counting()
    counted_again.finish_now()
    port = free_port()
    async with OpenAIServer(counted, cut, counted_again, ScriptedResponse("I was away.")).serving() as provider:
        settings = {
            "EXUVIA__AGENT__MODEL": '"openai:fake"',
            "EXUVIA__PROVIDERS__OPENAI__BASE_URL": f'"{provider.url}"',
            "EXUVIA__PROVIDERS__OPENAI__API_KEY": f'"{KEY}"',
        }
        async with (
            gateway_process(tmp_path, settings=settings, port=port) as first,
            visiting(browser, url_of(port)) as visit,
        ):
            page = visit.page
            await visit.sign_in()
            second = await visit.tab()
            await say(page, "Count for me")
            await expect(entries(page, "assistant.live")).to_contain_text("1 2 3")
            await page.reload()
            for each in (second, page):
                await expect(entries(each, "assistant.live")).to_contain_text("5 6")
            counted.finish_now()
            for each in (second, page):
                await expect(entries(each, "assistant")).to_contain_text("the end.")
                await expect(entries(each, "assistant.live")).to_have_count(0)
                await expect(each.locator("article")).to_have_count(2)
            assert (visit.errors, visit.elsewhere) == ([], [])

            await say(page, "And again")
            for each in (second, page):
                await expect(entries(each, "assistant.live")).to_contain_text("1 2")
            await first.kill()
            await expect(page.locator(".foot .state")).not_to_have_text("Connected")
            await say(page, "Are you there?")
            await expect(entries(page, "person").last).to_contain_text("Sending…")
            async with gateway_process(tmp_path, settings=settings, port=port):
                await page.reload()  # what was not sent outlives the page; the other tab comes back by itself
                for each in (second, page):
                    await expect(entries(each, "assistant").last).to_contain_text("I was away.")
                    await expect(entries(each, "person")).to_have_count(3)
                    await expect(entries(each, "assistant")).to_have_count(3)
                    await expect(each.get_by_text("resumes this turn")).to_be_visible()
    assert received(tmp_path) == ["Count for me", "And again", "Are you there?"]


async def test_an_answer_is_announced_to_screen_readers_by_sentence(tmp_path: Path, browser: Browser) -> None:
    counting = Counting("one two three four five. And this is the end.", delay=5)
    async with (
        OpenAIServer(counting).serving() as provider,
        gateway(tmp_path, settings=asking(provider)) as running,
        visiting(browser, running) as visit,
    ):
        await visit.sign_in()
        await say(visit.page, "Count for me")
        await expect(entries(visit.page, "assistant.live")).to_contain_text("one")
        counting.finish_now()
        await expect(entries(visit.page, "assistant")).to_contain_text("the end.")
        said = visit.page.locator("#announcements[aria-live=polite] p")
        await expect(said).to_have_text(["one two three four five.", "And this is the end."])


async def test_a_fork_at_a_queued_message_includes_the_exchange_before_it(tmp_path: Path, browser: Browser) -> None:
    counting = Counting()
    async with (
        OpenAIServer(
            ScriptedResponse("One."), counting, *map(ScriptedResponse, ("Three.", "Four.", "Three."))
        ).serving() as provider,
        gateway(tmp_path, settings=asking(provider)) as running,
        visiting(browser, running) as visit,
    ):
        page = visit.page
        await visit.sign_in()
        await say(page, "first")
        await expect(entries(page, "assistant")).to_contain_text(["One."])
        await expect(entries(page, "assistant.live")).to_have_count(0)
        await say(page, "second")
        await expect(entries(page, "assistant.live")).to_contain_text("1 2")
        await say(page, "third")
        await expect(entries(page, "person").last).to_contain_text("Queued")
        counting.finish_now()
        await expect(entries(page, "assistant").last).to_contain_text("Three.")
        await entries(page, "person").last.hover()
        await entries(page, "person").last.get_by_role("button", name="Edit").click()
        await page.get_by_role("textbox", name="Edit the message").fill("fourth")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile("main-fork$"))
        await expect(entries(page, "person")).to_contain_text(["first", "second", "fourth"])
        await expect(entries(page, "person")).to_have_count(3)
        await expect(entries(page, "assistant")).to_have_count(3)

        await page.goto(f"{visit.url}/#/chat/main")
        await entries(page, "assistant").last.hover()
        await entries(page, "assistant").last.get_by_role("button", name="Answer again").click()
        await expect(page).to_have_url(re.compile("main-fork-2$"))
        await expect(entries(page, "assistant")).to_contain_text(["One.", "the end.", "Three."])
        await expect(entries(page, "person")).to_contain_text(["first", "second", "third"])
        await expect(entries(page, "person")).to_have_count(3)

        await page.goto(f"{visit.url}/#/chat/main")
        await entries(page, "assistant").nth(1).hover()
        await entries(page, "assistant").nth(1).get_by_role("button", name="Fork after this").click()
        await expect(page).to_have_url(re.compile("/first-[a-z0-9]{4}$"))
        await expect(entries(page, "assistant")).to_have_count(2)
        await expect(entries(page, "person")).to_have_count(2)
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_session_begins_with_its_first_message_and_drafts_are_kept(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await expect(page.get_by_role("heading", level=1)).to_have_text("New conversation")
        await message(page).fill("half a thought")
        await page.get_by_role("button", name="New conversation").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("New conversation")
        await say(page, "Plan the garden: où sont les fèves?")
        await expect(entries(page, "assistant")).to_contain_text("où sont les fèves")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Plan the garden ou sont les feves")
        await page.goto(f"{visit.url}/#/chat/main")
        await expect(message(page)).to_have_value("half a thought")
        await message(page).blur()
        await message(page).fill("/sto")
        await page.evaluate("new Promise((resolve) => setTimeout(resolve, 200))")  # longer than commands stay after a blur
        await expect(page.get_by_role("option")).to_have_count(1)
        await message(page).press("Tab")
        await expect(message(page)).to_have_value("/stop")
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_an_answer_can_be_stopped_and_queued_messages_are_shown(tmp_path: Path, browser: Browser) -> None:
    script: list[dict[str, Any]] = [ENDLESS, {"text": "And now this."}]
    async with gateway(tmp_path, script=script) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await say(page, "Count for me")
        await expect(entries(page, "assistant.live")).to_contain_text("one")
        await say(page, "And then?")
        await expect(entries(page, "person").last).to_contain_text("Queued")
        await page.get_by_role("button", name="Stop").click()
        await expect(entries(page, "aside").get_by_text("Stopped.")).to_be_visible()
        await expect(entries(page, "assistant").last).to_contain_text("And now this.")
        await expect(page.get_by_text("Queued")).to_have_count(0)


async def test_a_pasted_picture_is_sent_with_the_message_and_shown(tmp_path: Path, browser: Browser) -> None:
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
        await expect(entries(page, "assistant")).to_have_count(1)  # it is shown before it is stored
        (lines,) = journals(tmp_path)
        (sent,) = [event["attachments"] for event in lines if event["kind"] == "message_received"]
        assert [(file["name"], file["media"]) for file in sent] == [("half.png", "image/png")]
        assert (visit.errors, visit.elsewhere) == ([], [])


LONG = "a word and another, " * 60_000


async def test_a_message_that_is_too_long_stays_in_the_composer_with_the_reason(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await say(page, LONG)
        alert = page.locator(".composer [role=alert]")
        await expect(alert).to_contain_text("too long")
        await expect(message(page)).to_have_value(LONG)
        await expect(entries(page, "person")).to_have_count(0)
        await page.reload()
        await expect(message(page)).to_have_value(LONG)
        await message(page).fill("short")
        await expect(alert).to_be_empty()
        await message(page).press("Enter")
        await expect(entries(page, "assistant")).to_contain_text("short")
        await page.get_by_role("button", name="New conversation").click()
        await say(page, LONG)
        await expect(alert).to_contain_text("too long")
        await expect(message(page)).to_have_value(LONG)
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_message_that_the_gateway_refuses_as_too_long_returns_to_the_composer(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(websocket_connection.LIMITS, "frame", 3 * 1024 * 1024)  # so that only the gateway's answer tells
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await say(page, LONG)
        await expect(page.locator(".composer [role=alert]")).to_contain_text("too long")
        await expect(message(page)).to_have_value(LONG.strip())
        await expect(entries(page, "person")).to_have_count(0)
        assert await page.evaluate("localStorage.getItem('exuvia.unsent.main')") is None
        await message(page).fill("")
        await page.reload()
        await expect(page.get_by_text("Connected", exact=True)).to_be_attached()
        await say(page, "hello")
        await expect(entries(page, "assistant")).to_contain_text("hello")
    assert received(tmp_path) == ["hello"]


async def test_a_stored_unsent_message_that_is_too_long_returns_to_the_composer_at_the_next_visit(
    tmp_path: Path, browser: Browser
) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await page.evaluate(
            """(text) => localStorage.setItem("exuvia.unsent.main",
                JSON.stringify([{ id: "stuck", text, attachments: [], at: new Date().toISOString() }]))""",
            LONG * 4,  # such a frame would end the connection
        )
        await page.reload()
        await expect(page.locator(".composer [role=alert]")).to_contain_text("too long")
        await expect(message(page)).to_have_value(LONG * 4)
        await message(page).fill("hello")
        await message(page).press("Enter")
        await expect(entries(page, "assistant")).to_contain_text("hello")
        assert visit.errors == []


async def test_a_message_that_does_not_fit_into_the_browsers_storage_is_not_sent(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await page.evaluate(
            """() => { for (let size = 2 ** 22; size >= 1; size /= 2) try {
                for (let n = 0; n < 4; n++) localStorage.setItem(`full.${size}.${n}`, "x".repeat(size));
            } catch {} }"""
        )
        await say(page, "hello")
        await expect(page.locator(".composer [role=alert]")).to_contain_text("storage is full")
        await expect(message(page)).to_have_value("hello")
        await page.evaluate("() => localStorage.clear()")
        await message(page).press("Enter")
        await expect(entries(page, "assistant")).to_contain_text("hello")
        assert visit.errors == []


async def test_a_failed_turn_can_be_retried_until_another_begins(tmp_path: Path, browser: Browser) -> None:
    script: list[dict[str, Any]] = [{"error": "bad_request"}, {"text": "Now it works."}]
    async with gateway(tmp_path, script=script) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await say(page, "Do it")
        failed = entries(page, "aside.fault")
        await expect(failed).to_contain_text("bad_request")
        await page.reload()
        await failed.get_by_role("button", name="Try again").click()
        await expect(entries(page, "assistant")).to_contain_text("Now it works.")
        await expect(page.get_by_role("button", name="Try again")).to_have_count(0)
        assert visit.errors == []
    assert received(tmp_path) == ["Do it", "Do it"]


async def test_escape_stops_the_turn_unless_it_closes_something_else(tmp_path: Path, browser: Browser) -> None:
    script: list[dict[str, Any]] = [ENDLESS, ENDLESS]
    async with gateway(tmp_path, script=script) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await say(page, "Count for me")
        await expect(entries(page, "assistant.live")).to_contain_text("one")
        await message(page).fill("/st")
        await expect(page.get_by_role("option").first).to_be_visible()
        await message(page).press("Escape")
        await expect(page.get_by_role("option")).to_have_count(0)
        await page.get_by_role("button", name="Actions for this conversation").click()
        await page.get_by_role("menuitem", name="Rename…").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        await page.locator(".timeline").press("Escape")
        await expect(entries(page, "aside").get_by_text("Stopped.")).to_have_count(1)
        await message(page).fill("Again")
        await message(page).press("Enter")
        await expect(entries(page, "assistant.live")).to_contain_text("one")
        await message(page).press("Escape")
        await expect(entries(page, "aside").get_by_text("Stopped.")).to_have_count(2)


async def test_the_composer_keeps_the_focus_after_stop_and_after_attaching(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, script=[ENDLESS]) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await say(page, "Count for me")
        await page.get_by_role("button", name="Stop").click()
        await expect(entries(page, "aside").get_by_text("Stopped.")).to_be_visible()
        await expect(message(page)).to_be_focused()
        async with page.expect_file_chooser() as choosing:
            await page.get_by_role("button", name="Attach files").click()
        await (await choosing.value).set_files({"name": "note.txt", "mimeType": "text/plain", "buffer": b"tea"})
        await expect(page.get_by_label("Files of this message")).to_contain_text("note.txt")
        await expect(message(page)).to_be_focused()


async def test_a_phone_shows_the_state_of_the_connection(tmp_path: Path, browser: Browser) -> None:
    port = free_port()
    async with (
        gateway_process(tmp_path, port=port) as running,
        visiting(browser, url_of(port), size=NARROW) as visit,
    ):
        await visit.sign_in()
        state = visit.page.locator("header .connection")
        await expect(state).to_be_visible()
        await expect(state).to_have_accessible_name("Connected")
        await expect(state).to_have_text("")
        await running.kill()
        await expect(state).to_have_text(re.compile("Not connected|Connecting…"))
        await expect(state).to_be_in_viewport()


async def test_the_page_counts_down_until_a_refused_request_is_retried(tmp_path: Path, browser: Browser) -> None:
    refusing = Fault(status=429, body=refusal("Slow down.", "rate_limit_exceeded"), headers={"Retry-After": "60"})
    async with (
        OpenAIServer(refusing).serving() as provider,
        gateway(tmp_path, settings=asking(provider)) as running,
        visiting(browser, running) as visit,
    ):
        page = visit.page
        await visit.sign_in()
        await say(page, "Hello")
        doing = page.locator(".doing")
        waited = re.compile(r"The provider is not accepting requests \(.*429\)\. Trying again in [1-6]?[0-9] s…")
        await expect(doing).to_have_text(waited)
        await page.reload()
        await expect(doing).to_have_text(waited)
        await page.get_by_role("button", name="Stop").click()
        await expect(entries(page, "aside").get_by_text("Stopped.")).to_be_visible()
        await expect(doing).to_be_hidden()
        assert visit.errors == []


async def test_a_message_that_is_edited_or_deleted_on_its_channel_before_its_turn_disappears(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_lines", "lines", LINES)
    service = Elsewhere()
    await service.open()
    file = f'[plugins]\nallow = ["lines"]\nsenders = {{ "lines:ana" = "owner" }}\n[plugins.lines]\nport = {service.port}\n'
    counted = Counting()
    async with (
        OpenAIServer(counted, ScriptedResponse("It is there.")).serving() as provider,
        gateway(tmp_path / "home", file=file, settings=asking(provider)) as running,
        visiting(browser, running) as visit,
    ):
        await service.say("Count for me.")
        await service.say("Where is the tee?", id_="2")
        await service.say("And the coffee?", id_="3")
        await service.until_heard(ok="3")
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/chat/lines:kitchen")
        said = entries(page, "person")
        await expect(said).to_have_text([re.compile(text) for text in ("Count for me", "tee", "coffee")])
        await service.say("Where is the tea?", id_="2-1", edits="2")
        await expect(said).to_have_text([re.compile(text) for text in ("Count for me", "coffee", "the tea")])
        await service.say("Where is the tea, really?", id_="2-2", edits="2")
        await expect(said).to_have_text([re.compile(text) for text in ("Count for me", "coffee", "really")])
        await service.say("", id_="gone", deletes="3")
        for _ in range(2):
            await expect(said).to_have_text([re.compile(text) for text in ("Count for me", "really")])
            await page.reload()
        counted.finish_now()
        await expect(entries(page, "assistant").last).to_contain_text("It is there.")
        await expect(said).to_have_count(2)
        assert visit.errors == []
    service.close()
