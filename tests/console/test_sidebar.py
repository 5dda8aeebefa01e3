"""The sidebar of the console: conversations by date, their marks and menus, in a real browser."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from plugins.testing.servers.openai_server import OpenAIServer, ScriptedResponse
from sessions.events.events import SessionOpened, SessionTitled
from tests.console.accessible import faults
from tests.console.browser import WIDE, Visit, visiting
from tests.console.test_chat import Counting, asking, entries, message, say
from tests.console.test_transcripts import told, write
from tests.gateway.gateways import Client, gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = (320, 640)
HIGHLIGHTED = """[...CSS.highlights.get("sought") ?? []]
  .map(({ startContainer, startOffset, endOffset }) => startContainer.data.slice(startOffset, endOffset))"""


def sidebar(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Conversations")


def rows(page: Page) -> Locator:
    return sidebar(page).get_by_role("link")


def heading(page: Page) -> Locator:
    return page.get_by_role("heading", level=1)


async def begin(visit: Visit) -> Page:
    """Sign in, and wait until the page of the conversation has the focus."""
    await visit.sign_in()
    await expect(message(visit.page)).to_be_focused()
    return visit.page


async def choose(page: Page, name: str, action: str) -> None:
    """Choose an action from the menu of a conversation, by the keyboard."""
    await rows(page).filter(has_text=name).focus()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.get_by_role("menuitem", name=action).press("Enter")


def put(home: Path, number: int, age: timedelta, *, key: str = "", title: str = "") -> None:
    """Write the journal of a conversation that began so long ago."""
    session = f"20260101-000000-{chr(97 + number // 676 % 26)}{chr(97 + number // 26 % 26)}{chr(97 + number % 26)}aaa"
    events = told(["Hello"])
    events[0] = (None, SessionOpened(format=1, session=session, key=key or f"c{number}", person="owner"))
    if title:
        events.append((None, SessionTitled(title=title, by="owner")))
    write(home, events, session=session, first=datetime.now(UTC) - age)


async def fork(client: Client, session: str, upto: int, **fields: str) -> str:
    """Fork a conversation and return the key of the fork."""
    await client.say("fork", id=f"{session}:{upto}", session=session, upto=upto, **fields)
    made = await client.until(lambda frame: frame.get("id") == f"{session}:{upto}")
    key: str = made["session"]
    return key


async def test_conversations_are_grouped_by_date_with_readable_names(tmp_path: Path, browser: Browser) -> None:
    put(tmp_path, 1, timedelta(days=1), key="please-think-hard-m71t")
    put(tmp_path, 2, timedelta(days=3), title="Another \u202egarden")
    put(tmp_path, 3, timedelta(days=400), key="home-plan")
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await (await running.connect()).chat("Hello", session="plan-the-garden-m7x2")
        page = await begin(visit)
        await expect(rows(page)).to_have_text(["Plan the garden", "Please think hard", "Another garden", "home-plan"])
        long_ago = datetime.now(UTC).astimezone() - timedelta(days=400)
        groups = ["Today", "Yesterday", "Previous 7 days", f"{long_ago:%B %Y}"]
        await expect(sidebar(page).get_by_role("heading")).to_have_text(groups)
        await rows(page).first.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(heading(page)).to_have_text("Please think hard")
        await expect(rows(page).nth(1)).to_have_attribute("aria-current", "page")
        await page.get_by_role("searchbox").press("ArrowDown")
        await expect(rows(page).first).to_be_focused()
        await page.keyboard.press("End")
        await expect(rows(page).last).to_be_focused()
        await page.keyboard.press("PageUp")
        await expect(rows(page).first).to_be_focused()
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_versions_of_a_conversation_are_one_row_that_opens_the_one_used_last(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        client = await running.connect()
        await client.chat("Hello", session="plan-the-garden-m7x2")
        version = await fork(client, "plan-the-garden-m7x2", 1)
        await client.chat("Hello again", session=version)
        deeper = await fork(client, version, 2)
        await client.chat("Once more", session=deeper)
        apart = await fork(client, "plan-the-garden-m7x2", 1, key="the-other-garden")
        await client.chat("Apart", session=apart)
        page = await begin(visit)
        await expect(rows(page)).to_contain_text(["the-other-garden", "Plan the garden"])
        await expect(rows(page)).to_have_count(2)
        await rows(page).last.click()
        await expect(entries(page, "person")).to_contain_text(["Once more"])
        await expect(heading(page)).to_have_text("Plan the garden")
        await expect(page.locator("body")).not_to_contain_text("-fork")
        await page.goto(f"{visit.url}/#/chat/{version}")
        await expect(entries(page, "person")).to_contain_text(["Hello again"])
        await expect(rows(page).last).to_have_attribute("aria-current", "page")
        await expect(rows(page).last).to_have_attribute("href", f"#/chat/{version}")
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_conversation_is_renamed_pinned_and_archived_from_its_menu(tmp_path: Path, browser: Browser) -> None:
    for number, title in enumerate(("Beans", "Peas", "Tea")):
        put(tmp_path, number, timedelta(days=number), title=title)
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = await begin(visit)
        await expect(rows(page)).to_have_text(["Beans", "Peas", "Tea"])
        await choose(page, "Tea", "Rename…")
        await page.get_by_role("textbox", name="Title").fill("Green tea")
        await page.keyboard.press("Enter")
        await expect(rows(page)).to_have_text(["Beans", "Peas", "Green tea"])
        await expect(page.get_by_role("button", name="Actions for “Green tea”")).to_be_focused()
        await choose(page, "Green tea", "Pin")
        await expect(rows(page)).to_have_text(["Green tea", "Beans", "Peas"])
        await expect(sidebar(page).get_by_role("heading").first).to_have_text("Pinned")
        await choose(page, "Beans", "Archive")
        await expect(rows(page)).to_have_text(["Green tea", "Peas"])
        await page.reload()
        await expect(rows(page)).to_have_text(["Green tea", "Peas"])
        await sidebar(page).get_by_role("button", name="1 archived").press("Enter")
        await expect(rows(page)).to_have_text(["Green tea", "Peas", "Beans"])
        await choose(page, "Beans", "Unarchive")
        await expect(sidebar(page).get_by_role("button", name="archived")).to_have_count(0)
        await choose(page, "Green tea", "Unpin")
        await expect(rows(page)).to_have_text(["Beans", "Peas", "Green tea"])
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_the_focus_stays_on_a_title_when_the_messages_are_found(tmp_path: Path, browser: Browser) -> None:
    put(tmp_path, 0, timedelta(0), title="Peas")
    put(tmp_path, 1, timedelta(days=1), title="Green tea")
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page, go_on = await begin(visit), asyncio.Event()

        async def answer(route: Route) -> None:
            await go_on.wait()
            await route.continue_()

        await page.route("**/api/conversations/search?*", answer)
        search = page.get_by_role("searchbox", name="Search conversations")
        await search.fill("EA")
        await expect(sidebar(page).get_by_role("status")).to_have_text("Searching…")
        await search.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        go_on.set()
        await expect(sidebar(page).get_by_text("Searching…")).to_have_count(0)
        await expect(rows(page).last).to_be_focused()


async def test_a_search_finds_titles_and_is_left_by_escape(tmp_path: Path, browser: Browser) -> None:
    for number, title in enumerate(("Corn", "Peas", "Green tea")):
        put(tmp_path, number, timedelta(days=number), title=title)
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = await begin(visit)
        search = page.get_by_role("searchbox", name="Search conversations")
        await search.fill("EA")
        await expect(rows(page)).to_have_text(["Peas", "Green tea"])
        await search.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await expect(rows(page).last).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(search).to_be_focused()
        await expect(rows(page)).to_have_text(["Corn", "Peas", "Green tea"])
        await search.fill("tea")
        await search.press("Enter")
        await expect(heading(page)).to_have_text("Green tea")
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_search_finds_messages_in_all_conversations_and_opens_them_at_their_place(
    tmp_path: Path, browser: Browser
) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        client = await running.connect()
        for number in range(60):
            await client.chat(f"Message {number} is about plants.", session="garden")
        await client.chat("Lobsters <b>walk</b> sideways, too.", session="sea")
        await client.chat("Nothing of it.", session="other")
        page = await begin(visit)
        search = page.get_by_role("searchbox", name="Search conversations")
        await search.fill("sideways lobst")
        hits = page.get_by_role("list", name="Messages").get_by_role("link")
        await expect(hits).to_have_count(2)
        await expect(hits.first).to_contain_text("Lobsters <b>walk</b> sideways, too.")
        await expect(hits.first.locator("mark")).to_have_text(["Lobsters", "sideways"])
        await search.fill("message")
        await expect(hits).to_have_count(20)
        await page.get_by_role("button", name="More results").press("Enter")
        await expect(hits).to_have_count(40)
        await expect(hits.nth(20)).to_be_focused()
        assert await faults(page) == []
        await search.fill("message 3 plants")
        await expect(hits.last).to_contain_text("Message 3 is about plants.")
        await expect(hits.last).to_contain_text("You")
        await hits.last.press("Enter")
        await expect(page.locator(".sought")).to_contain_text("Message 3 is about plants.")
        await expect(page.locator(".sought")).to_be_in_viewport()
        assert await page.evaluate(HIGHLIGHTED) == ["Message", "3", "plants"]
        assert await faults(page) == []
        await page.keyboard.press("Escape")
        assert await page.evaluate(HIGHLIGHTED) == []
        await page.reload()
        await expect(page.locator(".sought")).to_be_in_viewport()
        assert await page.evaluate(HIGHLIGHTED) == ["Message", "3", "plants"]
        await message(page).fill("Which plants?")
        assert await page.evaluate(HIGHLIGHTED) == []
        await search.fill("unheard-of")
        await expect(page.get_by_text("Nothing was found.")).to_be_visible()
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_conversation_is_exported_and_deleted_with_its_versions(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        client = await running.connect()
        await client.chat("Keep this", session="kept")
        await client.chat("Hello", session="garden")
        await client.chat("Hello again", session=await fork(client, "garden", 1))
        page = await begin(visit)
        second = await visit.tab()
        await page.goto(f"{visit.url}/#/chat/garden")
        await expect(heading(page)).to_have_text("garden")
        await page.get_by_role("button", name="Actions for this conversation").click()
        await page.get_by_role("menuitem", name="Export…").click()
        async with page.expect_download() as downloading:
            await page.get_by_role("link", name="Markdown").click()
        download = await downloading.value
        assert download.suggested_filename == "garden.md"
        assert "Hello" in Path(await download.path()).read_text()
        await expect(page.get_by_role("dialog")).to_have_count(0)

        await rows(page).filter(has_text="garden").press("Delete")
        dialog = page.get_by_role("dialog", name="Delete “garden”?")
        await expect(dialog).to_contain_text("All of its 2 versions are deleted.")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        assert await faults(page) == []
        await page.keyboard.press("Escape")
        await expect(rows(page)).to_have_count(2)
        await rows(page).filter(has_text="garden").press("Delete")
        await dialog.get_by_role("button", name="Delete").press("Enter")
        done = page.get_by_role("dialog", name="Deleted")
        await expect(done).to_contain_text("“garden” was deleted")
        await expect(done).to_contain_text("backups, are unchanged")
        await expect(done).not_to_contain_text("fork")
        await done.get_by_role("button", name="Close").press("Enter")
        await expect(heading(page)).to_have_text("New conversation")
        for each in (page, second):
            await expect(rows(each)).to_have_text(["kept"])
        assert [each["text"] for events in running.journals().values() for each in events if "text" in each][:1] == [
            "Keep this"
        ]
        assert len(running.journals()) == 1
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_conversation_is_not_deleted_while_it_is_answered(tmp_path: Path, browser: Browser) -> None:
    script = [{"text": "one " * 2000, "delay_ms": 100}]
    async with gateway(tmp_path, script=script) as running, visiting(browser, running) as visit:
        page = await begin(visit)
        await say(page, "Count")
        await expect(entries(page, "assistant.live")).to_contain_text("one")
        await rows(page).press("Delete")
        await page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
        await expect(page.get_by_role("dialog").get_by_role("alert")).not_to_be_empty()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_running_conversations_and_new_answers_are_marked(tmp_path: Path, browser: Browser) -> None:
    counting = Counting()
    async with (
        OpenAIServer(ScriptedResponse("One."), counting).serving() as provider,
        gateway(tmp_path, settings=asking(provider)) as running,
        visiting(browser, running) as visit,
    ):
        page = await begin(visit)
        await say(page, "first")
        await expect(entries(page, "assistant")).to_contain_text("One.")
        await expect(entries(page, "assistant.live")).to_have_count(0)
        await say(page, "second")
        await expect(rows(page)).to_have_text(["firstis being answered"])
        await page.get_by_role("button", name="New conversation").click()
        await expect(heading(page)).to_have_text("New conversation")
        counting.finish_now()
        await expect(rows(page)).to_have_text(["firsthas a new answer"])
        await page.reload()
        await expect(rows(page)).to_have_text(["firsthas a new answer"])
        await rows(page).click()
        await expect(rows(page)).to_have_text(["first"])
        await page.reload()
        await expect(rows(page)).to_have_text(["first"])
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_five_thousand_conversations_are_a_list_of_few_elements(tmp_path: Path, browser: Browser) -> None:
    for number in range(5000):
        put(tmp_path, number, timedelta(hours=number))
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = await begin(visit)
        await expect(rows(page).first).to_have_text("c0")
        await rows(page).first.press("End")
        await expect(rows(page).last).to_have_text("c4999")
        await expect(rows(page).last).to_be_focused()
        await expect(rows(page).last).to_be_in_viewport()
        item = sidebar(page).get_by_role("listitem").last
        assert await item.get_attribute("aria-posinset") == await item.get_attribute("aria-setsize") == "5000"
        assert await sidebar(page).get_by_role("listitem").count() < 60
        await page.keyboard.press("Home")
        await expect(rows(page).first).to_be_focused()
        assert (visit.errors, visit.elsewhere) == ([], [])


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (WIDE, True), (PHONE, False), (PHONE, True)])
async def test_the_sidebar_can_be_used_by_everybody(
    tmp_path: Path, browser: Browser, size: tuple[int, int], dark: bool
) -> None:
    for number, title in enumerate(("Beans", "Peas " * 20, "Tea")):
        put(tmp_path, number, timedelta(days=number), title=title)
    async with gateway(tmp_path) as running, visiting(browser, running, size=size, dark=dark) as visit:
        page = await begin(visit)
        if size == PHONE:
            await page.get_by_role("button", name="Navigation").click()
        await expect(rows(page).first).to_be_visible()
        assert await faults(page) == []
        await rows(page).first.click(button="right")
        await expect(page.get_by_role("menu")).to_be_in_viewport(ratio=1)
        await expect(page.get_by_role("menuitem").first).to_be_focused()
        assert await faults(page) == []
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("menu")).to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_conversation_without_a_title_is_called_by_its_first_message(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        client = await running.connect()
        await client.chat("Which roses are <b>pruned</b> in winter?")
        await client.chat("a name that somebody chose stays", session="garden")
        page = await begin(visit)
        await expect(rows(page)).to_have_text(["garden", "Which roses are <b>pruned</b> in winter?"])
        await expect(heading(page)).to_have_text("Which roses are <b>pruned</b> in winter?")
        assert "\nmain\n" in str(await rows(page).last.get_attribute("title"))
        await page.get_by_role("searchbox", name="Search conversations").fill("main")
        await expect(
            sidebar(page).get_by_role("list", name="Conversations with this title").get_by_role("link")
        ).to_have_text("Which roses are <b>pruned</b> in winter?")
        await client.command("/title Roses")
        await page.get_by_role("searchbox", name="Search conversations").fill("")
        await expect(rows(page)).to_have_text(["Roses", "garden"])
        assert visit.errors == []
