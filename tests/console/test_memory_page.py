"""The page of the memory, in a browser: searched as one types, a note edited while the file changes, facts kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from playwright.async_api import Browser, Route, expect

from sessions.events.events import (
    CallRef,
    Event,
    MemoryRecalled,
    ModelReplied,
    RecalledHit,
    RequestedCall,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from tests.console.accessible import faults
from tests.console.asked import ask
from tests.console.browser import NARROW, visiting
from tests.console.test_memory_endpoints import BOB, MEMORY, PORT, TEA, home, remembering
from tests.console.test_sidebar import HIGHLIGHTED
from tests.console.test_transcripts import SESSION, write
from tests.gateway.gateways import gateway
from tests.stories import opened, received
from tests.waiting import deadline

__all__ = ["home"]

HOSTILE = "# Alps\n\n<img src=x onerror=alert(1)> [x](javascript:alert(1)) ![p](http://elsewhere.example/p.png)\n"

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_search_runs_while_typing_and_a_hit_opens_its_note(home: Path, browser: Browser) -> None:
    async with remembering(home) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/memory")
        await page.get_by_label("Search notes and conversations").press_sequentially("which kettle is blue", delay=5)
        hit = page.locator(".hit").first
        await expect(hit).to_contain_text("The kettle is blue")
        await expect(hit.locator("mark")).to_have_text(["kettle", "blue"])
        await hit.locator(".score summary").click()
        worths = [float(text) for text in await hit.locator("tbody td:nth-child(4)").all_inner_texts()]
        assert sum(worths) == pytest.approx(float(await hit.locator("tfoot td").first.inner_text()), abs=0.001)
        bar = await hit.locator(".piece").evaluate_all("all => all.reduce((sum, each) => sum + each.clientWidth, 0)")
        assert bar > 50  # the policy lets it be drawn
        assert await faults(page) == []
        await hit.get_by_role("link", name="MEMORY.md#L3-L3").click()
        await expect(page.get_by_role("tab", name="Notes")).to_have_attribute("aria-selected", "true")
        await expect(page.locator(".cited")).to_have_text("The kettle is blue")
        await expect(page.locator(".cited")).to_be_focused()
        await expect(page.locator("mark")).to_have_text(["kettle", "blue"])
        await expect(page.get_by_text("Line 3", exact=True)).to_be_visible()
        assert await faults(page) == []
        await page.go_back()
        await expect(page.locator(".hit").first).to_contain_text("The kettle is blue")  # the search is there again
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_hit_in_a_conversation_opens_its_message(home: Path, browser: Browser) -> None:
    async with remembering(home) as running, visiting(browser, running) as visit:
        client = await running.connect()
        await client.chat("The heron nests behind the boathouse.")
        for number in range(150):
            await client.chat(f"Something else, number {number}.")
        await client.chat("Two herons were nesting at the <b>café</b>.")
        await client.command("/new")
        await client.chat("And now another thing.")
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/memory")
        await page.get_by_label("Search notes and conversations").fill("where do herons nest")
        hit = page.locator(".hit").filter(has_text="heron nests").first
        await expect(hit.locator("mark").first).to_have_text("heron")
        await hit.get_by_role("link").first.click()
        found = page.locator(".entry.sought")
        await expect(found).to_contain_text("The heron nests behind the boathouse.")
        await expect(found).to_be_in_viewport()
        assert await page.evaluate(HIGHLIGHTED) == ["heron", "nests"]
        assert "#/chat/main/" in page.url
        await page.go_back()  # not to the redirection
        await expect(page.get_by_label("Search notes and conversations")).to_have_value("where do herons nest")
        await page.get_by_label("Search notes and conversations").fill("which herons nest at cafes")
        hit = page.locator(".hit").filter(has_text="nesting at").first  # among other messages
        await expect(hit.locator("mark").get_by_text("café").first).to_be_visible()
        await hit.get_by_role("link").first.click()
        await expect(found).to_contain_text("Two herons were nesting at the <b>café</b>.")
        assert await page.evaluate(HIGHLIGHTED) == ["herons", "nesting", "café"]
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_citation_in_an_answer_links_to_its_note(home: Path, browser: Browser) -> None:
    async with remembering(home) as running, visiting(browser, running) as visit:
        client = await running.connect()
        async with deadline():
            while "`MEMORY.md#L3-L3`" not in await client.command("/memory blue kettle"):
                await asyncio.sleep(0.05)  # it is not indexed yet
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/chat/main")
        await page.get_by_role("link", name="MEMORY.md#L3-L3").click()
        await expect(page.locator(".cited")).to_have_text("The kettle is blue")
        await expect(page.locator("mark")).to_have_text(["kettle", "blue"])
        long = "".join(f"Paragraph {number}.\n\n" for number in range(300)) + "| a | b |\n|---|---|\n| 1 | **tea** |\n"
        (home / "workspace" / "memory" / "long one.md").write_text(long)
        await page.goto(f"{visit.url}#/memory/memory%2Flong%20one.md/603/603/TEA")
        await expect(page.locator("tr.cited mark")).to_have_text("tea")
        await expect(page.locator("mark")).to_be_in_viewport()
        await page.goto(f"{visit.url}#/memory/sessions%2Fnobody-knows-it.jsonl/1/1")
        await expect(page.locator("main")).to_contain_text("There is no such session.")


SENCHA = "sencha.md#L3-L3"


def found_twice(home: Path, handbook: Path) -> list[tuple[int | None, Event]]:
    """The events of a turn for which a note was recalled, and in which the model found an added file."""
    place = f"{handbook}/{SENCHA}"
    hit = {"citation": place, "score": 0.5, "headings": ["Tea"], "text": "Boiling water spoils <b>sencha</b>."}
    called = RequestedCall(id="c", tool="memory_search", arguments='{"query": "does boiled water spoil it"}')
    recalled = RecalledHit(path="MEMORY.md", lines=(3, 3), digest="d", text="The kettle is blue", score=0.5)
    output = json.dumps({"results": [hit], "remarks": ["The index is behind."]})
    return [
        (None, opened(SESSION)),
        (None, received("Which kettles are blue?")),
        (1, TurnStarted(takes=(2,), provider="scripted", model="echo", window=None, reserve=0)),
        (1, MemoryRecalled(query="Which kettles are blue?", hits=(recalled,), mark="0a1b2c3d", millis=3)),
        (1, ModelReplied(reply=1, model="echo", text="I’ll look.", calls=(called,), stop="calls", usage=None)),
        (1, ToolCalled(call=CallRef(of=5, index=0), repeatable=True)),
        (1, ToolReturned(call=CallRef(of=5, index=0), outcome="returned", output=output, millis=9)),
        (1, ModelReplied(reply=2, model="echo", text="The blue one.", calls=(), stop="end", usage=None)),
        (1, TurnEnded(outcome="replied", millis=9)),
    ]


async def test_what_was_recalled_and_found_is_marked_and_opens_its_place_also_in_an_added_file(
    home: Path, tmp_path: Path, browser: Browser
) -> None:
    handbook = tmp_path / "handbook"
    handbook.mkdir()
    (handbook / "sencha.md").write_text("# Tea\n\nBoiling water spoils <b>sencha</b>.\n")
    write(home, found_twice(home, handbook))
    settings = {"memory.embedding.provider": "none", "memory.extra_paths": [str(handbook)]}
    async with gateway(home, settings=settings) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        recalled = page.locator(".aside").filter(has_text="Recalled 1 passage")
        await recalled.locator("summary").click()
        await expect(recalled.locator("mark")).to_have_text(["kettle", "blue"])
        call = page.locator(".call").filter(has_text="memory_search")
        await call.locator("summary").click()
        await expect(call.locator("pre.long")).to_have_text("Boiling water spoils <b>sencha</b>.")
        await expect(call).to_contain_text("The index is behind.")
        await expect(call.locator("mark")).to_have_text(["Boiling", "water", "spoils"])
        assert await faults(page) == []
        await call.get_by_role("link", name=SENCHA).click()
        await expect(page.locator(".cited")).to_contain_text("Boiling water spoils")
        await expect(page.locator("mark")).to_have_text(["Boiling", "water", "spoils"])
        await expect(page.locator(".note-page header")).to_contain_text("added to the memory by the operator")
        await expect(page.get_by_role("button", name="Edit", exact=True)).to_have_count(0)
        await page.goto(f"{visit.url}#/memory")
        await page.get_by_label("Search notes and conversations").fill("water for sencha")
        await page.locator(".hit").first.get_by_role("link", name=SENCHA).click()
        await expect(page.locator(".cited mark")).to_have_text(["water", "sencha"])
        elsewhere = await ask(running, "/api/memory/file", params={"path": str(home / "config.toml")})
        assert (elsewhere.status, elsewhere.json["code"]) == (404, "not_found")
        assert [
            error for error in visit.errors if "404" not in error
        ] == []  # which a browser says where there is no such note


async def test_a_note_that_changes_while_it_is_edited_is_shown_and_not_overwritten(
    home: Path,
    browser: Browser,
) -> None:
    note = home / "workspace" / "MEMORY.md"
    async with remembering(home) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/memory")
        await page.get_by_role("tab", name="Notes").click()
        await page.get_by_role("button", name="MEMORY.md").click()
        await page.get_by_role("button", name="Edit", exact=True).click()
        await page.get_by_label("Text of MEMORY.md").fill(MEMORY.replace("blue", "green"))
        theirs = MEMORY + "- The gate squeaks\n"
        note.write_text(theirs)
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("heading", name="Somebody else changed this note")).to_be_visible()
        assert note.read_text() == theirs
        await expect(page.locator(".changes .theirs")).to_contain_text(["The kettle is blue", "The gate squeaks"])
        await expect(page.locator(".changes .mine")).to_contain_text(["The kettle is green"])
        assert await faults(page) == []
        await page.get_by_role("button", name="Edit mine next to theirs").click()
        both = theirs.replace("blue", "green")
        await page.get_by_label("Text of MEMORY.md").fill(both)
        await page.keyboard.press("Control+s")
        await expect(page.get_by_role("button", name="Edit", exact=True)).to_be_visible()
        assert note.read_text() == both
        assert [error for error in visit.errors if "409" not in error] == []  # which a browser says of every refusal


async def test_other_people_see_and_write_their_own_notes(home: Path, browser: Browser) -> None:
    (home / "workspace" / "shared").mkdir()
    (home / "workspace" / "shared" / "house.md").write_text("The boiler stands in the cellar.\n")
    async with remembering(home) as running, visiting(browser, running) as visit:
        await visit.sign_in(BOB)
        page = visit.page
        await page.goto(f"{visit.url}#/memory")
        await page.get_by_label("Search notes and conversations").press_sequentially("boiler", delay=5)
        await page.locator(".hit").get_by_role("link", name="shared/house.md#L1-L1").click()
        await expect(page.get_by_text("Read-only")).to_be_visible()
        await expect(page.locator(".note-list li")).to_have_count(1)
        await page.get_by_label("New note").fill("memory/alps.md")
        await page.get_by_role("button", name="Create").click()
        await page.get_by_label("Text of memory/alps.md").fill("Snow.\n")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("heading", name="people/bob/memory/alps.md")).to_be_visible()
        await expect(page.locator(".note-list li")).to_have_count(2)
        assert (visit.errors, visit.elsewhere) == ([], [])
    assert (home / "workspace/people/bob/memory/alps.md").read_text() == "Snow.\n"


async def test_a_draft_survives_a_reload(home: Path, browser: Browser) -> None:
    async with remembering(home) as running, visiting(browser, running, size=NARROW, dark=True) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/memory")
        await page.get_by_role("tab", name="Notes").click()
        await page.get_by_label("New note").fill("memory/alps.md")
        await page.get_by_role("button", name="Create").click()
        await page.get_by_label("Text of memory/alps.md").fill(HOSTILE)
        await page.get_by_role("button", name="Save").click()
        await page.get_by_role("button", name="Edit", exact=True).click()
        await page.get_by_label("Text of memory/alps.md").fill(f"{HOSTILE}\nSnow.\n")
        assert await faults(page) == []
        await page.reload()
        await page.get_by_role("tab", name="Notes").click()
        await page.get_by_role("button", name="memory/alps.md").click()
        await expect(page.get_by_label("Text of memory/alps.md")).to_have_value(f"{HOSTILE}\nSnow.\n")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator(".rendered")).to_contain_text("<img src=x onerror=alert(1)>")
        await expect(page.locator(".rendered img, .rendered a[href^=javascript]")).to_have_count(0)
        assert (home / "workspace/memory/alps.md").read_text() == HOSTILE
        assert (visit.errors, visit.elsewhere) == ([], [])
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_facts_can_be_filtered_pinned_explained_and_forgotten_after_a_confirmation(
    home: Path,
    browser: Browser,
) -> None:
    async with remembering(home) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/memory")
        await page.get_by_role("tab", name="Search").press("End")
        await expect(page.locator(".fact")).to_have_count(2)
        await page.get_by_label("Filter by words").fill("staging")
        fact = page.locator(".fact")
        await expect(fact).to_have_count(1)
        await fact.get_by_role("button", name="Pin").click()
        await expect(fact.get_by_text("Pinned")).to_be_visible()
        await fact.get_by_role("button", name="Why").click()
        await expect(fact.locator(".story li")).to_contain_text(["Written by operator.", "Pinned by owner."])
        assert await faults(page) == []
        await fact.get_by_role("button", name="Forget").click()
        await fact.get_by_role("button", name="Cancel").click()
        await fact.get_by_role("button", name="Forget").click()
        await fact.get_by_role("button", name="Forget").click()
        await expect(page.get_by_text("0 facts")).to_be_visible()
        await page.get_by_label("Filter by words").fill("")
        await expect(page.locator(".fact")).to_contain_text([str(TEA["content"])])
        assert str(PORT["content"]) not in await page.content()
        assert visit.errors == []


async def test_a_fact_is_edited_restored_and_not_overwritten(home: Path, browser: Browser) -> None:
    path = f"/api/facts/{TEA['id']}"
    async with remembering(home) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/memory")
        await page.get_by_role("tab", name="Search").press("End")
        fact = page.locator(".fact").filter(has_text=str(TEA["content"]))
        await fact.get_by_role("button", name="Edit").click()
        form = page.locator(".fact-form")
        await expect(form.get_by_label("Text")).to_be_focused()
        await form.get_by_label("Text").fill("Ann drinks <b>oolong</b>")
        await form.get_by_label("Type").select_option("preference")
        await form.get_by_label("Tags").fill("drinks, tea,")
        await form.get_by_label("Importance").fill("0.95")
        await form.get_by_label("Use it in all workspaces").check()
        assert await faults(page) == []
        await form.get_by_label("Text").press("Control+Enter")
        edited = page.locator(".fact").filter(has_text="Ann drinks <b>oolong</b>")
        await expect(edited).to_contain_text("preference · Long-term")
        await expect(edited).to_contain_text("#drinks · #tea · in all workspaces")
        await expect(edited.get_by_role("button", name="Edit")).to_be_focused()

        # Another tab edits it while this one does.
        await edited.get_by_role("button", name="Edit").click()
        await form.get_by_label("Text").fill("Ann drinks mate")
        revision = (await ask(running, path)).json["fact"]["revision"]
        theirs = json.dumps({"content": "Ann drinks water"}).encode()
        assert (await ask(running, path, "PATCH", data=theirs, headers={"If-Match": f'"{revision}"'})).status == 200
        await form.get_by_role("button", name="Save").click()
        await expect(form.get_by_role("alert")).to_contain_text("It now says: Ann drinks water")
        assert await faults(page) == []
        await form.get_by_role("button", name="Replace it by mine").click()
        mine = page.locator(".fact").filter(has_text="Ann drinks mate")
        await expect(mine).to_be_visible()

        # The history has every text, and each can be restored.
        await mine.get_by_role("button", name="Why").click()
        await expect(mine.locator(".story q")).to_have_text(
            [str(TEA["content"]), "Ann drinks <b>oolong</b>", "Ann drinks water"]
        )
        assert await faults(page) == []
        await mine.locator(".story li").filter(has_text="<b>").get_by_role("button", name="Restore").click()
        await expect(edited).to_contain_text("preference")
        assert (await ask(running, path)).json["fact"]["tags"] == ["drinks", "tea"]

        # Escape leaves everything as it is.
        await edited.get_by_role("button", name="Edit").click()
        await form.get_by_label("Text").fill("nothing")
        await form.get_by_label("Text").press("Escape")
        await expect(edited.get_by_role("button", name="Edit")).to_be_focused()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert [error for error in visit.errors if "409" not in error] == []


async def test_the_focus_stays_where_it_is_while_the_facts_are_loaded_again(home: Path, browser: Browser) -> None:
    async with remembering(home) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/memory")
        await page.get_by_role("tab", name="Search").press("End")
        fact = page.locator(".fact").filter(has_text=str(TEA["content"]))
        asked, answered = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            asked.set()
            await answered.wait()
            await route.continue_()

        await expect(fact).to_be_visible()
        await page.route("**/api/facts", hold)
        status = page.locator("#panel-facts .status")
        for pinned, focused in (("Pin", "Edit"), ("Unpin", "Text")):
            asked.clear()
            answered.clear()
            before = await status.inner_text()
            await fact.get_by_role("button", name=pinned, exact=True).click()
            await asked.wait()
            if focused == "Edit":
                control = fact.get_by_role("button", name="Edit")
                await control.focus()
            else:
                await fact.get_by_role("button", name="Edit").click()
                control = page.locator(".fact-form").get_by_label("Text")
            answered.set()
            await expect(status).not_to_have_text(before)
            await expect(control).to_be_focused()


async def test_a_note_is_moved_and_deleted_in_the_page(home: Path, browser: Browser) -> None:
    workspace = home / "workspace"
    async with remembering(home) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/memory/MEMORY.md")
        await page.get_by_role("button", name="Move…").click()
        await page.get_by_label("New path of MEMORY.md").fill("memory/kitchen.md")
        await page.get_by_role("button", name="Move", exact=True).click()
        await expect(page.get_by_role("heading", name="memory/kitchen.md")).to_be_visible()
        assert ((workspace / "MEMORY.md").exists(), (workspace / "memory/kitchen.md").read_text()) == (False, MEMORY)
        (workspace / "memory/kitchen.md").write_text("Written in an editor.")
        await page.get_by_role("button", name="Delete…").click()
        await page.get_by_role("button", name="Delete", exact=True).click()
        await expect(page.get_by_role("alert").get_by_text("Somebody else has changed this note.")).to_be_visible()
        assert (workspace / "memory/kitchen.md").exists()
        await page.goto(f"{visit.url}#/memory/memory%2Fkitchen.md")
        await page.get_by_role("button", name="Delete…").click()
        assert await faults(page) == []
        await page.get_by_role("button", name="Delete", exact=True).click()
        await expect(page.get_by_text("The note was deleted.")).to_be_visible()
        assert not (workspace / "memory/kitchen.md").exists()
