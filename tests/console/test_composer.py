"""The composer: the model and its options, completions, templates, files from anywhere, the palette, the keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse
from tests.console.accessible import faults
from tests.console.browser import NARROW, WIDE, Visit, visiting
from tests.gateway.gateways import gateway

MODEL = "gpt-oss-20b"

pytestmark = pytest.mark.asyncio(loop_scope="session")


def configured(server: OpenAIServer) -> str:
    """A configuration with a model that has levels of effort, and another one that has none."""
    server.models = {MODEL: {}, "plain": {}}
    return f"""
[agent]
model = "openai:{MODEL}"
context_windows = {{ "openai:{MODEL}" = 131072 }}
[providers.openai]
base_url = "{server.url}"
api_key = "{KEY}"
[prices."openai:{MODEL}"]
input = 0.1
output = 0.5
"""


def bodies(server: OpenAIServer) -> list[tuple[Any, ...]]:
    """The model, the effort and the temperature of each request."""
    return [(body["model"], body.get("reasoning_effort"), body.get("temperature")) for body in server.requests]


async def wrote(page: Page, text: str) -> None:
    """Send a message and wait for its answer."""
    answers = page.locator(".entry.assistant .prose")
    before = await answers.count()
    await page.get_by_role("textbox", name="Message", exact=True).fill(text)
    await page.keyboard.press("Enter")
    await expect(answers).to_have_count(before + 1)


@pytest.mark.parametrize("size", [WIDE, (320, 700)])
async def test_a_new_conversation_begins_with_the_model_and_the_options_that_were_chosen(
    tmp_path: Path, browser: Browser, size: tuple[int, int]
) -> None:
    async with (
        OpenAIServer(*[ScriptedResponse("ok")] * 3).serving() as server,
        gateway(tmp_path, file=configured(server)) as running,
        visiting(browser, running, size=size) as visit,
    ):
        await visit.sign_in()
        page = visit.page
        await page.evaluate("location.hash = '#/chat/~'")
        await expect(page.locator(".title")).to_have_text("New conversation")
        button = page.get_by_role("button", name=f"Model: openai:{MODEL}")
        await button.click()
        search = page.get_by_role("combobox", name="Search models")
        await expect(search).to_be_focused()
        row = page.get_by_role("option", name=MODEL).nth(1)
        await expect(row).to_contain_text("131k")
        await expect(row).to_contain_text("$0.1 / $0.5")
        assert await faults(page) == []
        await search.fill("plain")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Model: openai:plain")).to_be_visible()
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
        await page.get_by_role("button", name="Model: openai:plain").click()
        await page.keyboard.press("ArrowUp")
        await search.fill(MODEL)
        await page.get_by_role("option").nth(1).click()
        await page.get_by_role("button", name="Options").click()
        await expect(page.get_by_role("radio", name="Default", exact=True)).to_be_focused()
        await page.get_by_text("high", exact=True).click()
        await page.get_by_role("slider", name="Temperature").fill("0.3")
        assert await faults(page) == []
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Options, effort: high, temperature: 0.3")).to_be_visible()
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
        await wrote(page, "one")
        await expect(page.get_by_role("button", name="Options, effort: high, temperature: 0.3")).to_be_visible()
        await page.get_by_role("button", name="Options, effort: high").click()
        await page.get_by_text("Default", exact=True).first.click()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Options, temperature: 0.3")).to_be_visible()
        await wrote(page, "two")
        assert (visit.errors, visit.elsewhere) == ([], [])
    assert bodies(server) == [(MODEL, "high", 0.3), (MODEL, None, 0.3)]


async def test_an_empty_composer_has_one_line_and_the_width_of_the_text(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running, size=NARROW) as visit:
        page = visit.page
        await visit.sign_in()
        await wrote(page, "one")
        await page.reload()
        area = page.get_by_role("textbox", name="Message", exact=True)
        await expect(area).to_be_focused()
        await expect(area).to_have_attribute("placeholder", "Write a message")
        empty = await area.evaluate("(area) => area.clientHeight")
        await area.fill("one")
        assert empty == await area.evaluate("(area) => area.clientHeight")
        edges = "(part) => { const { left, right } = part.getBoundingClientRect(); return [left, right]; }"
        text, box = [await page.locator(part).evaluate(edges) for part in (".column", ".composer .box")]
        assert text == pytest.approx(box, abs=0.5)


async def test_what_another_client_changes_is_shown(tmp_path: Path, browser: Browser) -> None:
    async with (
        OpenAIServer(ScriptedResponse("ok")).serving() as server,
        gateway(tmp_path, file=configured(server)) as running,
        visiting(browser, running) as visit,
    ):
        await visit.sign_in()
        page = visit.page
        await wrote(page, "hi")
        client = await running.connect()
        await client.say("subscribe", id="s", session="main")
        await client.say("configure", id="c", session="main", name="model", value="openai:plain")
        await client.until(lambda frame: frame.get("id") == "c")
        await expect(page.get_by_role("button", name="Model: openai:plain")).to_be_visible()
        await page.get_by_role("button", name="Options").click()
        await expect(page.get_by_text("This model has no levels of effort, or they are not known.")).to_be_visible()
        await page.get_by_text("Interrupt", exact=True).click()
        await page.keyboard.press("Escape")
        await client.until(lambda frame: frame["type"] == "settings" and frame["queue"] == "interrupt")
        assert visit.errors == []


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with notes, files and a template."""
    folder = tmp_path / "workspace"
    (folder / "prompts").mkdir(parents=True)
    (folder / "memory").mkdir()
    (folder / "prompts" / "review.md").write_text("---\ntitle: Review a text\n---\nReview {{what}} for {{whom}}.\n")
    (folder / "MEMORY.md").write_text("# What I know\n")
    (folder / "garden-plan.md").write_text("Tulips.\n")
    return folder


async def signed_in(visit: Visit) -> Page:
    """The page, with the focus in its input."""
    await visit.sign_in()
    await expect(visit.page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
    return visit.page


async def test_templates_are_completed_and_filled_in_in_place(tmp_path: Path, browser: Browser, workspace: Path) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = await signed_in(visit)
        area = page.get_by_role("textbox", name="Message", exact=True)
        await area.press_sequentially("/rev")
        await expect(page.get_by_role("option", name="Review a text")).to_be_visible()
        await page.get_by_role("option", name="Review a text").click()
        await expect(area).to_have_value("Review {{what}} for {{whom}}.")
        await page.keyboard.type("my letter")
        await page.keyboard.press("Tab")
        await page.keyboard.type("my aunt")
        await expect(area).to_have_value("Review my letter for my aunt.")
        await expect(area).to_be_focused()
        assert visit.errors == []


async def test_an_at_sign_completes_notes_and_files(tmp_path: Path, browser: Browser, workspace: Path) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running, size=NARROW) as visit:
        page = await signed_in(visit)
        area = page.get_by_role("textbox", name="Message", exact=True)
        await area.press_sequentially("What is in @gard")
        await expect(page.get_by_role("option")).to_have_count(1)
        assert await faults(page) == []
        await page.keyboard.press("Enter")
        await expect(area).to_have_value("What is in garden-plan.md ")
        await page.keyboard.type("and @nothing-there")
        await expect(page.get_by_text("No note or file has this in its path.")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator(".completions")).to_be_hidden()
        await expect(area).to_be_focused()
        await area.fill("mail me@memory")
        await expect(page.locator(".completions")).to_be_hidden()


async def test_a_command_shows_what_it_takes_and_completes_it(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = await signed_in(visit)
        area = page.get_by_role("textbox", name="Message", exact=True)
        await area.press_sequentially("/que")
        await page.keyboard.press("Tab")
        await expect(area).to_have_value("/queue ")
        await expect(page.locator(".completions .hint mark")).to_have_text("[followup|collect|steer|interrupt|default]")
        await page.keyboard.type("st")
        await expect(page.get_by_role("option")).to_have_text(["steer"])
        await page.keyboard.press("Enter")
        await expect(area).to_have_value("/queue steer")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("From now on steer")).to_be_visible()
        await area.fill("/remember the tulips")
        await expect(page.locator(".completions .hint")).to_contain_text("/remember TEXT")
        await expect(page.get_by_role("option")).to_have_count(0)


async def test_the_palette_finds_conversations_pages_commands_models_and_themes(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        client = await running.connect()
        await client.chat("hi", session="plan-the-garden")
        page = await signed_in(visit)
        await page.keyboard.press("Control+k")
        search = page.get_by_role("combobox", name="Search", exact=True)
        await expect(search).to_be_focused()
        await expect(page.get_by_role("option", name="plan-the-garden")).to_be_visible()
        assert await faults(page) == []
        await search.fill("dark")
        await expect(page.get_by_role("option", name="dark").first).to_be_visible()
        await page.keyboard.press("Enter")
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
        await page.keyboard.press("Control+k")
        await search.fill("undo")
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("Control+k")
        await search.fill("undo")
        await expect(page.get_by_role("option", name="undo").first).to_be_visible()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_have_value("/undo")
        await page.keyboard.press("Control+k")
        await search.fill("garden")
        await expect(page.get_by_role("option", name="garden").first).to_be_visible()
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{visit.url}/#/chat/plan-the-garden")
        await page.keyboard.press("Control+k")
        await search.fill("echo")
        await expect(page.get_by_role("option", name="echo").first).to_be_visible()
        await page.keyboard.press("Enter")
        await client.say("subscribe", id="s", session="plan-the-garden")
        await client.until(lambda frame: frame["type"] == "settings" and frame.get("model") == "scripted:echo")
        await page.keyboard.press("Control+k")
        await search.fill("memory")
        await expect(page.get_by_role("option", name="memory").first).to_be_visible()
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{visit.url}/#/memory")
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_question_mark_lists_the_keys_only_where_nothing_is_typed(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running, size=(320, 700)) as visit:
        page = await signed_in(visit)
        await page.keyboard.type("?")
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_have_value("?")
        await page.evaluate("document.activeElement.blur()")
        await page.keyboard.type("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        assert await faults(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_the_agent_is_chosen_before_the_first_message_and_switched_later(tmp_path: Path, browser: Browser) -> None:
    echo = {"agent.model": "scripted:echo"}
    async with gateway(tmp_path, file="[agents.work]\n", settings=echo) as running, visiting(browser, running) as visit:
        page = await signed_in(visit)
        await page.evaluate("location.hash = '#/chat/~'")
        await page.get_by_role("button", name="Agent: Default").click()
        assert await faults(page) == []
        await page.get_by_role("button", name="work", exact=True).click()
        await wrote(page, "Hello")
        button = page.get_by_role("button", name="Agent: work")
        await button.click()
        assert await faults(page) == []
        await page.get_by_role("button", name="main", exact=True).press("Enter")
        await expect(page.get_by_role("button", name="Agent: main")).to_be_visible()
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
        assert [events[0].get("agent", "main") for events in running.journals().values()] == ["work", "main"]
        assert visit.errors == []


async def test_files_are_dropped_and_pasted_anywhere_in_the_page(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = await signed_in(visit)
        dropped = """(type) => {
          const data = new DataTransfer();
          data.items.add(new File(["x"], type === "drop" ? "dropped.txt" : "pasted.txt", { type: "text/plain" }));
          const place = document.querySelector(".side");
          if (type === "drop") {
            place.dispatchEvent(new DragEvent("dragover", { bubbles: true, cancelable: true, dataTransfer: data }));
            place.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: data }));
          } else place.dispatchEvent(new ClipboardEvent("paste", { bubbles: true, cancelable: true, clipboardData: data }));
        }"""
        await page.evaluate(dropped, "drop")
        await page.evaluate(dropped, "paste")
        await expect(page.locator(".chip .name")).to_have_text(["dropped.txt", "pasted.txt"])
        await expect(page.locator("main")).not_to_have_class("over")
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
        assert visit.errors == []
