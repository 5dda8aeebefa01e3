"""Tool calls in the console: while they run, once they have returned, and after a reload."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from exuvia import OutputFile, ToolFailed, ToolOutput
from sessions.attachments.store import Attachments
from sessions.events.events import (
    CallRef,
    Event,
    MessageReceived,
    ModelReplied,
    Outcome,
    RequestedCall,
    SessionOpened,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from sessions.events.messages import Attachment
from tests.console.accessible import faults
from tests.console.browser import NARROW, WIDE, visiting
from tests.console.test_chat import say
from tests.console.test_transcripts import SESSION, write
from tests.gateway.gateways import gateway
from tests.gateway.working_tool import Working, working
from tests.pictures import png

pytestmark = pytest.mark.asyncio(loop_scope="session")

DIFF = "--- notes.md\n+++ notes.md\n@@ -1,3 +1,4 @@\n Tea\n-black\n+green\n+--- with <b>milk</b>\n sugar\n"

OUTPUT = "\x1b]0;title\x07\x1b[31mFAILED\x1b[0m test_a\r\n\x1b[2Kcollected 40\rpassed 39\n\u202eevil <img src=x>\n"


def call(tool: str, arguments: str) -> RequestedCall:
    return RequestedCall(id="c", tool=tool, arguments=arguments)


CALLS = (
    call("shell", '{"command": "python -m pytest -q tests/console", "timeout": 60}'),
    call("edit", '{"path": "notes.md", "old": "black", "new": "green\\n--- with <b>milk</b>"}'),
    call("plot", '{"query": "sales by month"}'),
    call("fetch", '{"url": "https://example.org/a/very/long/address/that/does/not/fit/on/the/line/of/a/phone/index.html"}'),
    call("write", '{"path'),
)


def returned(index: int, output: str, outcome: Outcome = "returned", **more: object) -> ToolReturned:
    return ToolReturned(call=CallRef(of=4, index=index), outcome=outcome, output=output, **more)  # type: ignore[arg-type]


def told(picture: Attachment) -> list[tuple[int | None, Event]]:
    """The events of a session in which the model calls several tools."""
    said = MessageReceived(
        id="1", client="x", sender="owner", channel="websocket", chat="private", text="Mend the test.", attachments=()
    )
    results = [
        returned(0, OUTPUT, exit_code=1, millis=2140),
        returned(1, "Edited notes.md in 1 place.", diff=DIFF, millis=12),
        returned(2, "Drawn.", attachments=(picture,), millis=65_000),
        returned(3, "The address is not public.", "refused"),
        returned(4, "This was interrupted; its outcome is unknown.", "unknown"),
    ]
    ran = [(1, each) for index, result in enumerate(results) for each in (called(index), result)]
    return [
        (None, SessionOpened(format=1, session=SESSION, key="main", person="owner")),
        (None, said),
        (1, TurnStarted(takes=(2,), provider="scripted", model="echo", window=None, reserve=0)),
        (1, ModelReplied(reply=1, model="echo", text="I’ll look.", calls=CALLS, stop="calls", usage=None)),
        *ran,
        (1, ModelReplied(reply=2, model="echo", text="The test is mended.", calls=(), stop="end", usage=None)),
        (1, TurnEnded(outcome="replied", millis=9)),
    ]


def called(index: int) -> ToolCalled:
    return ToolCalled(call=CallRef(of=4, index=index), repeatable=False)


def calls(page: Page) -> Locator:
    return page.locator(".call")


def line(page: Page, index: int) -> Locator:
    return calls(page).nth(index).locator("summary")


async def kept_picture(home: Path) -> Attachment:
    content = png(40, 30)
    kept = await Attachments(home / "attachments").keep(content, "owner", media="image/png", name="sales.png")
    assert kept.sha256 == sha256(content).hexdigest()
    return kept


PICTURES = os.environ.get("EXUVIA_TOOL_PICTURES")
"""A folder that is given pictures of the calls, to look at."""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_a_call_is_one_line_that_unfolds_by_the_keyboard(
    tmp_path: Path, browser: Browser, size: tuple[int, int], dark: bool
) -> None:
    write(tmp_path, told(await kept_picture(tmp_path)))
    async with gateway(tmp_path) as running, visiting(browser, running, size=size, dark=dark) as visit:
        page = visit.page
        await visit.sign_in()
        await expect(calls(page)).to_have_count(5)
        shown = [await line(page, index).inner_text() for index in range(5)]
        assert [re.sub(r"\s+", " ", text) for text in shown] == [
            "shell python -m pytest -q tests/console exit 1 · 4 lines 2.1 s",
            "edit notes.md +2 −1 12 ms",
            "plot sales by month Drawn. 1 min 5 s",
            f"fetch {CALLS[3].arguments[9:-2]} refused",
            'write {"path outcome unknown',
        ]
        heights = [box["height"] for index in range(5) if (box := await line(page, index).bounding_box())]
        assert max(heights) < 40
        picture = calls(page).nth(2).locator("img")
        await expect(picture).to_be_visible()
        assert await picture.evaluate("each => each.complete && each.naturalWidth") == 40
        assert await picture.get_attribute("alt") == "sales.png"
        await expect(page.locator(".inside pre")).to_have_count(0)
        await picture_of(page, "folded", size=size, dark=dark)

        for index in (0, 1):
            await line(page, index).focus()
            await page.keyboard.press("Enter")
        shell, edit = calls(page).nth(0), calls(page).nth(1)
        await expect(shell.locator(".label")).to_have_text(
            ["command python -m pytest -q tests/console", "timeout 60", "Result"]
        )
        assert (await shell.locator("pre").last.inner_text()).rstrip("\n") == (
            "FAILED test_a\ncollected 40\npassed 39\nevil <img src=x>"
        )
        await expect(edit.locator(".label")).to_have_text(["path notes.md", "old black", "new", "Changes", "Result"])
        assert await edit.locator(".diff > .added").all_inner_texts() == ["+green", "+--- with <b>milk</b>"]
        assert await edit.locator(".diff > .removed").all_inner_texts() == ["-black"]
        assert await faults(page) == []
        overflow = "each => each.scrollWidth > each.clientWidth"
        assert not await page.locator(".timeline").evaluate(overflow)
        await picture_of(page, "unfolded", size=size, dark=dark)
        await page.keyboard.press(" ")
        await expect(edit.locator(".diff")).to_be_hidden()
        assert (visit.errors, visit.elsewhere) == ([], [])


async def picture_of(page: Page, name: str, *, size: tuple[int, int], dark: bool) -> None:
    if PICTURES:
        await page.locator(".timeline").evaluate("each => each.scrollTop = 0")
        kind = f"{'narrow' if size == NARROW else 'wide'}-{'dark' if dark else 'light'}"
        await page.screenshot(path=Path(PICTURES) / f"{name}-{kind}.png")


async def test_a_running_tool_shows_its_time_and_its_output_and_a_reload_shows_the_same(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(tmp_path, monkeypatch) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await say(page, "Run the tests")
        await expect(calls(page)).to_have_attribute("data-state", "running")
        await expect(calls(page).locator(".took")).to_have_text(re.compile(r"^\d+ s$"))
        await line(page, 0).focus()
        await page.keyboard.press("Enter")
        live = calls(page).locator("pre").last
        await expect(live).to_have_text("(nothing yet)")
        Working.orders.put_nowait("\x1b[32mtest_a")
        Working.orders.put_nowait(" passed\x1b[0m\ntest_b ")
        await expect(live).to_have_text("test_a passed\ntest_b ")
        if PICTURES:
            await page.screenshot(path=Path(PICTURES) / "running.png")

        await page.reload()
        await line(page, 0).click()
        await expect(live).to_have_text("test_a passed\ntest_b ")
        Working.orders.put_nowait("failed\n")
        await expect(live).to_have_text("test_a passed\ntest_b failed\n")

        await line(page, 0).focus()
        Working.orders.put_nowait(ToolOutput(text="1 of 2 failed.", exit_code=1))
        await expect(calls(page)).to_have_attribute("data-state", "returned")
        await expect(live).to_have_text("1 of 2 failed.")
        await expect(line(page, 0)).to_be_focused()
        await expect(page.locator("#announcements p").first).to_have_text(re.compile("^work: exit 1, 1 of 2 failed., "))
        await expect(page.locator("article.assistant").last).to_contain_text("Done.")
        told_live = await line(page, 0).inner_text()
        await page.reload()
        await expect(line(page, 0)).to_have_text(re.sub(r"\n", "", told_live))
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_pictures_of_a_tool_appear_and_a_failure_says_so(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = {"text": "", "calls": [{"tool": "work", "arguments": {}}]}
    async with (
        working(tmp_path, monkeypatch, script=[again, again, {"text": "Done."}]) as running,
        visiting(browser, running) as visit,
    ):
        await visit.sign_in()
        await say(visit.page, "Draw")
        files = (
            OutputFile(content=png(30, 20), media="image/png", name="plot.png"),
            OutputFile(content=b"<svg onload='window.hit=1'/>", media="image/svg+xml", name="bad.svg"),
        )
        Working.orders.put_nowait(ToolOutput(text="Drawn.", attachments=files))
        first = calls(visit.page).first
        await expect(first.locator("img")).to_have_count(1)
        await expect(first.locator("a.file")).to_have_text("bad.svg")
        Working.orders.put_nowait(ToolFailed("There is no ink."))
        await expect(line(visit.page, 1)).to_contain_text("failed")
        await line(visit.page, 1).click()
        await expect(calls(visit.page).nth(1).locator("pre").last).to_have_text("There is no ink.")
        assert await visit.page.evaluate("window.hit") is None
        assert (visit.errors, visit.elsewhere) == ([], [])
