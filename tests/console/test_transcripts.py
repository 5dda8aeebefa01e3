"""What the console makes of transcripts that are hostile, or long."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from sessions.events.codec import FIRST, encode
from sessions.events.events import (
    CallRef,
    CompactionBegan,
    ContextCompacted,
    Event,
    MemoryRecalled,
    MessageReceived,
    ModelReplied,
    RecalledHit,
    Recorded,
    RequestedCall,
    SessionOpened,
    SettingChanged,
    ToolCalled,
    ToolReturned,
    Trigger,
    TurnEnded,
    TurnStarted,
)
from sessions.events.messages import Usage
from sessions.store.protocols import LONGEST_LINE
from tests.console.accessible import faults
from tests.console.browser import NARROW, WIDE, visiting
from tests.gateway.gateways import gateway
from tests.waiting import deadline

pytestmark = pytest.mark.asyncio(loop_scope="session")

SESSION = "20261121-090000-aaaaaa"

HOSTILE = [
    "<script>window.hit = 1</script><img src=x onerror='window.hit = 2'><b>not bold</b>",
    "![a picture](http://evil.example/a.png) ![](//evil.example/b.png) ![x](data:image/svg+xml,<svg onload=alert(1)>)",
    "[a](javascript:window.hit=3) [b](JaVaScRiPt&colon;window.hit=4) [c](data:text/html,<script>window.hit=5</script>)",
    '<https://evil.example/"onmouseover="window.hit=6> [d](/api/sign-out) [e](vbscript:x) [f]( javascript:window.hit=7 )',
    "<style>* { display: none }</style><link rel=stylesheet href=http://evil.example/c.css><iframe src=//evil.example>",
    '```html\n<script>window.hit = 8</script>\n```\n```"><script>window.hit = 9</script>\nx\n```',
    "| <img src=http://evil.example/d.png> | [g](javascript:1) |\n|---|---|\n| `<b>` | <svg onload=window.hit=10> |",
    "[h]: http://evil.example/e.png\n![h] <form action=http://evil.example><button>go</button></form><base href=http://evil.example>",
    r"$\href{javascript:window.hit=11}{x}$ $\url{http://evil.example}$ $\includegraphics{http://evil.example/f.png}$",
    r"$\htmlClass{skip}{x} \htmlId{app}{y} \htmlStyle{position:fixed}{z} \htmlData{hit=12}{w}$",
    r"$\text{<img src=x onerror=window.hit=13>}$",
    r"$\def\a{xxxxxxxxxx}\def\b{\a\a\a\a}\b\b\b$ $\newcommand\c{\c\c}\c$ $$\let\d=\frac \d{1}{2}$$",
    r"$$\rule{9999em}{9999em}$$ $\kern-9999em x$ $\raisebox{-9999em}{x}$ $$x\\[9999em]y$$ $\hspace{-9999em}x$",
    r"$\color{url(http://evil.example/g)}x$ $\fcolorbox{red}{blue}{x}$ $\pmb{x}$ $\notacommand{<b>}$ $\unicode{x}$",
    "$" + "{" * 1800 + "$ $$" + r"\frac{" * 300 + "$$ " + "$x$" * 500,
    "> " * 500 + "deep",
    "*a **b " * 5000,
    "[" * 20_000,
    "\u202etxt.exe\u202c \x00\x07 \ufeff \U0001f600" + "\u0301" * 200,
    "x" * (LONGEST_LINE - 1000),
    "`" * 30_000 + "\n" + "<b>" * 10_000,
]


DIAGRAMS = [
    'flowchart LR\n  a --> b\n  click a callback\n  click a call callback()\n  click b href "javascript:window.hit=21"',
    "flowchart LR\n  a[\"<img src=x onerror='top.hit=22'><script>top.hit=23</script>\"]"
    " --> b[\"<a href='javascript:1'>x</a>\"]",
    "%%{init: {'securityLevel': 'loose', 'htmlLabels': true, 'flowchart': {'htmlLabels': true}}}%%\nflowchart LR\n"
    '  a["<img src=http://evil.example/h onerror=top.hit=24>"]',
    "---\nconfig:\n  securityLevel: loose\n  themeCSS: '* { background: url(http://evil.example/i) }'\n---\n"
    "flowchart LR\n  a --> b",
    "flowchart LR\n  classDef x fill:url(http://evil.example/j),background:url(http://evil.example/k)\n  a:::x --> b",
    "flowchart LR\n  a@{ img: 'http://evil.example/l.png', label: 'x' }\n  a --> b",
    "%%{init: {'themeVariables': {'primaryColor': 'red;} * { background: url(http://evil.example/m) }'}}}%%\n"
    'pie\n  "<b>x</b>" : 1',
    "sequenceDiagram\n  participant a as <svg onload=top.hit=25>\n  a->>a: <iframe src=http://evil.example>\n"
    "  link a: x @ javascript:top.hit=26",
    'classDiagram\n  class A["<img src=x onerror=top.hit=27>"]\n  link A "javascript:top.hit=28"\n  callback A "hit"',
    "flowchart LR\n" + "".join(f"  a{one} --> a{one + 1}\n" for one in range(400)),
    "flowchart LR\n  a[" + "x" * 30_000 + "]",
    'erDiagram\n  A ||--o{ B : "<script>top.hit=29</script>"',
    "not a diagram <script>top.hit=30</script>",
    "gitGraph\n" + "  commit\n" * 3000,
]
"""Diagrams that try to run or load something, or are too large to draw."""


def told(texts: Iterable[str]) -> list[tuple[int | None, Event]]:
    """The events of a session in which a person says each text, and the model says it back."""
    events: list[tuple[int | None, Event]] = [(None, SessionOpened(format=1, session=SESSION, key="main", person="owner"))]
    for turn, text in enumerate(texts, start=1):
        said = MessageReceived(
            id=str(turn), client="x", sender="owner", channel="websocket", chat="private", text=text, attachments=()
        )
        events += [
            (None, said),
            (turn, TurnStarted(takes=(len(events) + 1,), provider="scripted", model="echo", window=None, reserve=0)),
            (turn, ModelReplied(reply=1, model="echo", text=text, calls=(), stop="end", usage=None)),
            (turn, TurnEnded(outcome="replied", millis=1)),
        ]
    return events


def write(
    home: Path,
    events: Iterable[tuple[int | None, Event]],
    *,
    session: str = SESSION,
    first: datetime = datetime(2026, 11, 20, tzinfo=UTC),
) -> None:
    """Write a journal with these events, one a second from `first` on."""
    lines, previous = [], FIRST
    for seq, (turn, event) in enumerate(events, start=1):
        at = f"{first + timedelta(seconds=seq):%Y-%m-%dT%H:%M:%S}.000Z"
        line, previous = encode(Recorded(seq=seq, at=at, turn=turn, event=event), previous)
        lines.append(line)
    (home / "sessions").mkdir(parents=True, exist_ok=True)
    (home / "sessions" / f"{session}.jsonl").write_bytes(b"".join(lines))


async def scroll_to(page: Page, place: Locator) -> None:
    """Scroll up, page by page, until a place is there."""
    await page.locator(".timeline").wait_for()
    async with deadline():
        while await place.count() == 0:
            await page.evaluate("document.querySelector('.timeline').scrollTop = 0")
            await page.wait_for_timeout(50)
    await page.evaluate("document.querySelector('.timeline').scrollTop = 0")


async def test_a_hostile_transcript_is_shown_as_text_and_neither_runs_nor_loads_anything(
    tmp_path: Path, browser: Browser
) -> None:
    write(tmp_path, told(HOSTILE))
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await scroll_to(page, page.get_by_text("bold", exact=False).first)
        await expect(page.locator("article.assistant")).to_have_count(len(HOSTILE))
        answers = page.locator("article.assistant .prose")
        await expect(answers.first).to_have_text(HOSTILE[0])
        await expect(answers.nth(4)).to_have_text(HOSTILE[4])
        await expect(page.locator("article.person .said").first).to_have_text(HOSTILE[0])
        await expect(page.get_by_text("Picture: a picture")).to_have_count(1)
        await expect(page.locator("article .katex").first).to_be_attached()
        inside = page.locator("article :is(script, style, link, iframe, form, img, base, object, embed)")
        await expect(inside).to_have_count(0)
        await expect(page.locator("article :is([style*='url'], [data-hit], .skip, #app)")).to_have_count(0)
        heights = await page.locator("article").evaluate_all("articles => articles.map(({ offsetHeight }) => offsetHeight)")
        assert max(heights) < 20_000
        links = await page.locator("article a").evaluate_all("links => links.map(link => link.protocol)")
        assert set(links) <= {"http:", "https:"}
        own = f"a[href^='{visit.url}'], a[href^='/']"
        await expect(page.locator("article").locator(own)).to_have_count(0)
        long = page.locator("article.assistant", has=page.locator("pre.long")).first
        await long.get_by_role("button", name="Show more").click()
        assert await page.evaluate("window.hit") is None
        await page.get_by_role("textbox", name="Message").fill("still here")
        await page.keyboard.press("Enter")
        await expect(answers.last).to_have_text("still here")
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_hostile_diagram_runs_and_loads_nothing(tmp_path: Path, browser: Browser) -> None:
    """Each is a picture, or its source with the reason. The frame's policy refuses what a diagram tries to load."""
    write(tmp_path, told(f"```mermaid\n{source}\n```" for source in DIAGRAMS))
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        refused: dict[str, str | None] = {}
        page.on("requestfailed", lambda request: refused.update({request.url: request.failure}))
        await visit.sign_in()
        await expect(page.locator("article.assistant")).to_have_count(len(DIAGRAMS))
        for answer in await page.locator("article.assistant").all():
            await answer.scroll_into_view_if_needed()
            await expect(answer.locator(".diagram:visible, .problem:visible").first).to_be_visible()
        pictures = await page.locator("article .diagram img[src]").evaluate_all(
            "all => all.map(({ src }) => src.slice(0, 19))"
        )
        assert len(pictures) >= 3
        assert set(pictures) == {"data:image/svg+xml;"}
        await expect(page.locator("article :is(script, style, link, iframe, svg:not(.icon), object, embed)")).to_have_count(
            0
        )
        assert await page.evaluate("window.hit") is None
        await expect(page.locator(".problem:visible").last).to_contain_text("The diagram cannot be drawn: ")
        frames = await page.locator("iframe").evaluate_all("all => all.map(({ sandbox }) => sandbox.value)")
        assert frames == ["allow-scripts"]
        await page.get_by_role("textbox", name="Message").fill("still here")
        await page.keyboard.press("Enter")
        await expect(page.locator("article.assistant .prose").last).to_have_text("still here")
        assert [error for error in visit.errors if "violates the following Content Security Policy" not in error] == []
        assert {url: refused.get(url) for url in visit.elsewhere} == {"http://evil.example/l.png": "csp"}


async def test_thousands_of_messages_are_reached_by_scrolling(tmp_path: Path, browser: Browser) -> None:
    write(tmp_path, told(f"message **{number}** of many" for number in range(1500)))
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        await expect(page.get_by_text("message **1499** of many")).to_be_visible()
        await scroll_to(page, page.locator("article").get_by_text("message **0** of many"))
        await expect(page.locator("article").get_by_text("message **0** of many")).to_be_visible()
        await expect(page.locator("article")).to_have_count(3_000)
        await page.get_by_role("button", name="Scroll to the newest message").click()
        await expect(page.get_by_text("message **1499** of many")).to_be_visible()
        assert (visit.errors, visit.elsewhere) == ([], [])


PLAN = """The upload is as fast as before. **Reading is slow:** since the photos moved to the NAS, NFS reports new inode
numbers, so restic reads every file again.

| phase | 14 Nov | 21 Nov |
|---|---:|---:|
| read and hash | 21 min | **3 h 38 min** |
| upload | 16 min | 17 min |

With `--ignore-inode`, it takes 40 minutes again:

```sh
export PHOTOS=/mnt/nas/photos
# compare size and time only
restic backup --ignore-inode "$PHOTOS"
```

Shall I change `backup.sh`, and note this in `MEMORY.md`?"""

OTHERS = {
    "release-notes": ("Release notes for 2.4", timedelta(hours=2)),
    "postgres": ("Postgres 17 upgrade", timedelta(days=1)),
    "porto": ("Four days in Porto", timedelta(days=2)),
    "interviews": ("Interview questions", timedelta(days=4)),
    "bread": ("Sourdough starter", timedelta(days=9)),
}


def backups() -> list[tuple[int | None, Event]]:
    """A conversation with a recalled note, two tool calls, a table and code."""
    text = "Moved the photos to the NAS, over NFS."
    note = RecalledHit(path="memory/2026-11-18.md", lines=(12, 13), digest="0" * 64, text=text, score=0.9)
    call = RequestedCall(id="1", tool="read", arguments='{"path": "logs/restic.log"}')
    output = "20 Nov: 182,388 files, read 0:41:17, uploaded 0:16:55\n21 Nov: 182,410 files, read 3:38:02, uploaded 0:17:10"
    said = MessageReceived(
        id="1",
        client="x",
        sender="owner",
        channel="websocket",
        chat="private",
        text="The nightly backup took four hours. What changed since last week?",
        attachments=(),
    )
    usage = Usage(input=6120, output=412, cached=4096)
    reply = "I’ll compare both weeks in the log."
    return [
        (None, said),
        (1, TurnStarted(takes=(3,), provider="openai", model="gpt-5.1", window=None, reserve=0)),
        (1, MemoryRecalled(query="backup", hits=(note,), mark="0" * 16, millis=6)),
        (1, ModelReplied(reply=1, model="gpt-5.1", text=reply, calls=(call,), stop="calls", usage=None)),
        (1, ToolCalled(call=CallRef(of=6, index=0), repeatable=True)),
        (1, ToolReturned(call=CallRef(of=6, index=0), outcome="returned", output=output, millis=12)),
        (1, ModelReplied(reply=2, model="gpt-5.1", text=PLAN, calls=(), stop="end", usage=usage)),
        (1, TurnEnded(outcome="replied", millis=9400)),
        (None, SettingChanged(name="model", value="openai:gpt-5.1", by="owner")),
    ]


def write_conversation(
    home: Path, key: str, title: str, age: timedelta, events: Sequence[tuple[int | None, Event]] = ()
) -> None:
    """Write the journal of a conversation whose last event is of this age."""
    session = f"20261121-090000-{sha256(key.encode()).hexdigest()[:6]}"
    opened = SessionOpened(format=1, session=session, key=key, person="owner")
    named = SettingChanged(name="title", value=title, by="owner")
    write(home, [(None, opened), (None, named), *events], session=session, first=datetime.now(UTC) - age)


PICTURES = os.environ.get("EXUVIA_PICTURES")
"""A folder that is given the pictures of the documentation; without it, none are taken: they differ from font to font."""


@pytest.mark.parametrize(("name", "size", "dark"), [("console-chat", WIDE, False), ("console-phone", NARROW, True)])
async def test_a_conversation_has_no_serious_accessibility_problems(
    tmp_path: Path, browser: Browser, name: str, size: tuple[int, int], dark: bool
) -> None:
    for key, (title, age) in OTHERS.items():
        write_conversation(tmp_path, key, title, age)
    write_conversation(tmp_path, "main", "Slow nightly backup", timedelta(minutes=1), backups())
    async with (
        gateway(tmp_path) as running,
        visiting(browser, running, size=size, dark=dark, scale=2 if PICTURES else 1) as visit,
    ):
        page = visit.page
        await page.goto(visit.url)
        await page.get_by_label("Token").wait_for()
        assert await faults(page) == []
        await visit.sign_in()
        await expect(page.locator("code.coloured")).to_have_count(1)
        await expect(page.locator(".call[data-state=returned]")).to_have_count(1)
        if PICTURES:
            width, height = (430, 1000) if size == NARROW else (1280, 880)
            await page.set_viewport_size({"width": width, "height": height})
            await page.screenshot(path=Path(PICTURES) / f"{name}.png")
        await page.locator(".call summary").click()
        await expect(page.get_by_text("182,410 files")).to_be_visible()
        await page.get_by_role("textbox", name="Message").fill("/co")
        await expect(page.get_by_role("option").first).to_be_visible()
        assert await faults(page) == []
        await page.get_by_role("textbox", name="Message").fill("")
        await page.get_by_role("button", name="Actions for this conversation").click()
        await page.get_by_role("menuitem", name="Rename…").click()
        assert await faults(page) == []
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_an_automatic_compaction_is_labelled(tmp_path: Path, browser: Browser) -> None:
    def compacted(number: int, trigger: Trigger, keep_from: int) -> list[tuple[int | None, Event]]:
        began = CompactionBegan(compaction=number, trigger=trigger, keep_from=keep_from, tokens_before=90)
        made = ContextCompacted(
            compaction=number, keep_from=keep_from, tokens_before=90, tokens_after=9, summary="Tea.", by="x", messages=2
        )
        return [(None, began), (None, made)]

    events = [*told(["one", "two", "three"]), *compacted(1, "budget", 6), *compacted(2, "command", 10)]
    write(tmp_path, events)
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        marks = visit.page.locator(".aside", has_text="summarised")
        await expect(marks).to_have_count(2)
        await expect(marks.first).to_contain_text("🧹 Auto-compaction complete: 2 messages summarised")
        await expect(marks.last).not_to_contain_text("Auto-compaction")


async def test_the_agent_and_the_subagents_of_a_conversation_are_shown(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file="[agents.work]\n", settings={"agent.model": "scripted:echo"}) as running:
        client = await running.connect()
        await client.command("/agent work")
        await client.command("/spawn Count the books.")
        await client.until_event("child_ended")
        async with visiting(browser, running) as visit:
            await visit.sign_in()
            asides = visit.page.locator(".aside")
            await expect(asides.filter(has_text="The agent work answers here")).to_have_count(1)
            await expect(asides.filter(has_text="works on a task")).to_contain_text("The subagent main.sub.")
            await expect(asides.filter(has_text="has ended")).to_have_count(1)
            result = visit.page.get_by_role("article", name="Result of a subagent")
            await expect(result.locator(".prose")).to_contain_text("Count the books.")
            await expect(visit.page.get_by_role("article", name="You")).to_have_text(
                [re.compile("/agent"), re.compile("/spawn")]
            )
            below = visit.page.locator(".sessions .child")
            await expect(below).to_have_text("Count the books.")
            await result.get_by_role("link", name="Open its conversation").click()
            await expect(visit.page.get_by_role("article", name="Task of this subagent")).to_contain_text("Count the books.")
            await expect(below.get_by_role("link")).to_have_attribute("aria-current", "page")
            assert await faults(visit.page) == []
            await visit.page.get_by_role("link", name="Open the conversation that has asked").click()
            if os.environ.get("SHOWN"):
                await visit.page.screenshot(path=os.environ["SHOWN"])


@pytest.mark.parametrize(
    ("trigger", "says"),
    [
        ("command", "1 message summarised"),
        ("budget", "🧹 Auto-compaction complete: 1 message summarised"),
    ],
)
async def test_a_compaction_that_began_on_an_earlier_page_is_labelled_once_that_is_loaded(
    tmp_path: Path, browser: Browser, trigger: Trigger, says: str
) -> None:
    began = CompactionBegan(compaction=1, trigger=trigger, keep_from=6, tokens_before=90)
    made = ContextCompacted(compaction=1, keep_from=6, tokens_before=90, tokens_after=9, summary="Tea.", by="x", messages=1)
    later: list[tuple[int | None, Event]] = [
        (None, SettingChanged(name="queue", value=None, by=str(number))) for number in range(99)
    ]  # the page has 100 events
    write(tmp_path, [*told(["one", "two", "three"]), (None, began), (None, made), *later])
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        await expect(visit.page.locator(".aside", has_text="summarised").locator("summary")).to_have_text(says)
