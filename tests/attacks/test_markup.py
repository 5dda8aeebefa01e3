"""Attacks on readers: markup in the browser, escapes on the terminal, characters that make a name read as another."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from click.testing import CliRunner
from playwright.async_api import Browser, Page, expect

from gateway.cli.main import cli
from gateway.protocol.client_frames import Refusal, Settings
from gateway.support import logs
from gateway.support.errors import sentence_of
from gateway.support.printable import escaped, one_line, printable, sanitized_name
from gateway.terminal import screen
from gateway.terminal.client.signals import Disconnected, Happened, Postponed
from gateway.terminal.markdown.markdown_rendering import rendered
from gateway.terminal.pictures.terminal_graphics import KITTY_QUERY
from gateway.terminal.renderer import PlainRenderer
from plugins.support.fencing import harmless
from sessions.events import events
from sessions.events.events import CallRef, Event, Failure, Recorded, RequestedCall, Withheld
from sessions.events.messages import Attachment
from tests.console.browser import visiting
from tests.console.test_transcripts import SESSION, write
from tests.gateway.gateways import gateway
from tests.gateway.person import ENVIRONMENT, Terminal, start
from tests.waiting import deadline

TAGGED = "".join(chr(0xE0000 + ord(each)) for each in "obey")

ESCAPES = {
    "colours": "\x1b[31m",
    "the cursor": "\x1b[2J\x1b[H\x1b[1A\x1b[2K",
    "a title": "\x1b]0;owned\x07",
    "a link": "\x1b]8;;http://evil.example\x1b\\x",
    "the clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "a question to the terminal": "\x1b[6n\x1b[c\x1b[21t",
    "a string": "\x1bPq#0\x1b\\\x1b_x\x1b\\",
    "another screen": "\x1b[?1049h",
    "another alphabet": "\x1b(0\x0e",
    "a key": '\x1bP$q"p\x1b\\',
    "C1": "\x9b31m\x9d0;owned\x9c\x90q\x9c\x85\x8d",
    "a return": "all is well\rerased",
    "backspaces": "ab\x08\x08cd",
    "bell, null, delete": "\x07\x00\x7f",
    "vertical": "\x0b\x0c",
    "overrides": "\u202egpj.exe\u202c",
    "embeddings": "\u202a\u202b\u202d",
    "isolates": "\u2066\u2067\u2068x\u2069",
    "marks": "\u200e\u200f\u061c",
    "separators": "a\u2028b\u2029c",
    "tags": f"ok{TAGGED}",
    "invisible": "pay\u200bpal\u2060\ufeff\u2063",
    "old controls": "\u206a\u206f\ufff9x\ufffa",
    "half of a pair": "\ud800",
}
"""What a terminal acts on, and what nobody sees, by what it attacks."""

KEPT = ["👩‍👩‍👧", "🏳️‍🌈", "❤️", "می‌خواهم", "क्‍ष", "葛󠄀", "שלום", "é", "e\u0301", "a\tb\nc", "soft\u00adhyphen"]
"""What people write with characters that are not seen themselves."""

FORMATS_THAT_STAY = (
    "\u00ad\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u180e\u200c\u200d\U000110bd\U000110cd"
)


def harmless_on_a_terminal(text: str) -> bool:
    """Return True if a terminal acts on nothing in it and all of it is seen, apart from our own colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return all(each in "\n\t" or each in FORMATS_THAT_STAY or unicodedata.category(each) not in _UNSEEN for each in plain)


_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


# --- characters -------------------------------------------------------------------------------------------------------


def test_every_format_character_of_unicode_is_classified() -> None:
    """Those of other scripts are seen, or belong to how these are written."""
    codes = map(chr, range(sys.maxunicode + 1))
    stay = [each for each in codes if unicodedata.category(each) in _UNSEEN and printable(each) == each]
    of_scripts = range(0x13430, 0x1D17B)  # hieroglyphs, shorthand and music
    assert [hex(ord(each)) for each in stay if each not in "\n\t" + FORMATS_THAT_STAY and ord(each) not in of_scripts] == []


@pytest.mark.parametrize("name", ESCAPES)
def test_no_text_controls_a_terminal(name: str) -> None:
    attack = ESCAPES[name]
    for shown in (printable(attack), one_line(attack, 80), rendered(attack, 60), rendered(f"`{attack}`\n\n> {attack}", 60)):
        assert harmless_on_a_terminal(shown), shown
    for shown in (one_line(attack, 80), sentence_of(ValueError(attack)), sanitized_name(attack)):
        assert "\n" not in shown
        assert harmless_on_a_terminal(shown), shown


@pytest.mark.parametrize("text", KEPT)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert printable(text) == text
    assert sanitized_name(text.replace("\t", "").replace("\n", "")) == text.replace("\t", "").replace("\n", "")


@pytest.mark.parametrize("name", [name for name in ESCAPES if name != "half of a pair"])
def test_json_on_a_terminal_is_escaped_and_equal(name: str) -> None:
    document = msgspec.json.encode({ESCAPES[name]: ESCAPES[name]}).decode()
    assert harmless_on_a_terminal(escaped(document))
    assert json.loads(escaped(document)) == {ESCAPES[name]: ESCAPES[name]}


@pytest.mark.parametrize("name", ["marks", "overrides", "isolates", "tags", "C1", "colours"])
def test_the_summarizing_model_is_sent_no_invisible_characters(name: str) -> None:
    """Tags spell out orders that no person sees."""
    shown = harmless(ESCAPES[name])
    assert all(each in "\n\t" or unicodedata.category(each) not in _UNSEEN for each in shown)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.usefixtures("restored_logs")
def test_a_log_line_stays_one_line_without_an_escape(form: Any, name: str) -> None:
    stream = io.StringIO()
    logs.configure("info", form, stream)
    attack = ESCAPES[name]
    log = structlog.get_logger("exuvia.attacked")
    log.info(attack, reason=attack, **{f"k{attack}": [attack, {attack: attack}]})
    try:
        raise ValueError(attack)
    except ValueError:
        log.info("failed", exc_info=True)
    lines = stream.getvalue().split("\n")
    assert all(line.isprintable() for line in lines)
    assert all(line.startswith(("    | ", *"{0123456789")) for line in lines if line)


# --- the terminal -----------------------------------------------------------------------------------------------------

EVIL = "".join(ESCAPES.values()).encode("utf-8", "replace").decode()
MARKUP = "<img src=x onerror='window.hit=1'><script>window.hit=2</script>"


def hostile_events(text: str) -> Iterator[tuple[int | None, Event]]:
    """A session in which every text that somebody else chooses is this one."""
    digest = "0" * 64
    attached = (Attachment(sha256=digest, media="text/plain", bytes=3, name=text),)
    call = RequestedCall(id=text, tool=text, arguments=json.dumps({text: text}))
    yield None, events.SessionOpened(format=1, session=SESSION, key="main", person="owner")
    yield (
        None,
        events.MessageReceived(
            id="1", client=text, sender=text, channel=text, chat="private", text=text, attachments=attached
        ),
    )
    yield 1, events.TurnStarted(takes=(2,), provider=text, model=text, window=None, reserve=0)
    yield 1, events.InstructionsSet(text=text, tools=(), notes=(), parameters={text: text})
    yield 1, events.RequestSent(purpose="answer", sha256=digest, messages=1, tokens=1, model=text)
    yield 1, events.ModelReplied(reply=1, model=text, text=text, calls=(call,), stop="calls", usage=None)
    yield 1, events.ToolCalled(call=CallRef(of=6, index=0), repeatable=True)
    diff = f"@@ -1 +1 @@\n-{text}\n+{text}\n"
    yield 1, events.ToolReturned(call=CallRef(of=6, index=0), outcome="failed", output=text, diff=diff)
    withheld = Withheld(sha256=digest, sentence=text)
    yield 1, events.AttachmentsWithheld(model=text, files=(withheld,))
    yield (
        1,
        events.ModelReplied(reply=2, model=text, text=f"`{text}`\n```{text}\n{text}\n```", calls=(), stop="end", usage=None),
    )
    yield 1, events.PluginFailed(plugin=text, hook=text, sentence=text)
    yield 1, events.TurnEnded(outcome="failed", millis=1, error=Failure(code="x", sentence=text))
    yield None, events.CompactionBegan(compaction=1, trigger="command", keep_from=13, tokens_before=9, focus=text)
    yield (
        None,
        events.ContextCompacted(
            compaction=1, keep_from=13, summary=text, by=text, tokens_before=9, tokens_after=1, messages=1,
            checks=(text,), failed=text, kept=(text,), lost=(text,), model=text,
        ),
    )  # fmt: skip
    yield None, events.CommandAnswered(answers=2, answer=text, failed=False)


@pytest.mark.parametrize("name", [*(name for name in ESCAPES if name != "half of a pair"), "all of them"])
@pytest.mark.parametrize("styled", [False, True])
def test_no_event_controls_the_terminal_that_shows_it(name: str, styled: bool) -> None:
    text = ESCAPES.get(name, EVIL)
    out = io.StringIO()
    shown = screen.Screen(PlainRenderer(out, styled=styled), address="a", session="main")
    shown.show(Settings(session="main", session_id="s", queue="followup", verbose=True), ours=True)
    for seq, (turn, event) in enumerate(hostile_events(text), start=1):
        recorded = Recorded(seq=seq, at="2026-11-21T12:00:00.000Z", turn=turn, event=event)
        shown.show(Happened("s", recorded), ours=True)
        shown.show(Happened("s", recorded), ours=False)
    for signal in (Refusal(code="busy", message=text), Disconnected(reason=text), Postponed(reason=text)):
        shown.show(signal, ours=True)
    shown.unfold()
    assert out.getvalue().count("✗") == 3
    assert harmless_on_a_terminal(out.getvalue())


COMMANDS = [
    ("sessions", "list"),
    ("sessions", "list", "--json"),
    ("sessions", "show", "main"),
    ("sessions", "show", "main", "--json"),
    ("sessions", "export", "main", "--format", "markdown"),
    ("sessions", "verify"),
    ("sessions", "verify", "--json"),
    ("sessions", "compactions", "main"),
    ("sessions", "compactions", "main", "--json"),
    ("context", "main"),
    ("context", "main", "--json"),
    ("sessions", "show", "{evil}"),
    ("sessions", "forget", "{evil}"),
    ("sessions", "fork", "main", "--key", "{evil}"),
    ("memory", "search", "kettle"),
    ("memory", "search", "kettle", "--json"),
    ("memory", "audit"),
    ("memory", "audit", "--json"),
    ("plugins", "list"),
    ("models", "list", "--offline"),
    ("config", "check"),
    ("status", "--url", "ws://127.0.0.1:9/{evil}"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_terminal_control_sequences(command: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path, hostile_events(EVIL))
    seen = "".join(each for each in EVIL if each not in "\0/\ud800")
    (tmp_path / "sessions" / f"a{seen[:40]}.jsonl").write_text("nothing")
    notes = tmp_path / "workspace" / "memory"
    notes.mkdir(parents=True)
    (notes / f"a{seen[-50:]}.md").write_text(f"# {EVIL}\n\nThe kettle is blue. {EVIL}\n")
    (notes / "b.md").write_text(f"# {EVIL}\n\nThe kettle is blue. {EVIL}\n")
    (tmp_path / "config.toml").write_text(
        f'["a{TAGGED}"]\nx = 1\n' if command[0] == "config" else '[memory.embedding]\nprovider = "none"\n'
    )
    arguments = [each.replace("{evil}", EVIL.replace("\0", "")) for each in command]
    environment = {"EXUVIA_TOKEN": "a-token-for-tests-that-is-long-enough"}
    done = CliRunner().invoke(cli, [*arguments, "--home", str(tmp_path)], env=environment)
    shown = done.output or done.stdout  # what is written as bytes is not in `output`
    assert shown
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert harmless_on_a_terminal(shown), [line for line in shown.splitlines() if not harmless_on_a_terminal(line)]


async def test_a_chat_prints_no_control_sequences_in_a_pipe_or_on_a_terminal(tmp_path: Path) -> None:
    """From the provider to the screen, through all that lies between."""
    calls = [{"tool": "no" + EVIL, "arguments": {EVIL: EVIL}}]
    script: list[dict[str, Any]] = [
        {"text": EVIL + "first", "calls": calls},
        {"text": f"{EVIL}\n\n```{EVIL}\n{EVIL}\n```\nsecond"},
    ] * 2
    colours = {name: value for name, value in ENVIRONMENT.items() if name != "NO_COLOR"} | {"TERM": "xterm-256color"}
    async with gateway(tmp_path, script=script) as g:
        async with deadline():
            process = await start(g.url, "--once")
            out, complaints = await process.communicate(b"go")
        for printed in (out.decode(), complaints.decode()):
            assert "\x1b" not in printed
            assert harmless_on_a_terminal(printed)
        async with Terminal() as terminal:
            chatting = await terminal.chat(g.url, environment=colours)
            await terminal.until("›")
            terminal.types("again\r")
            await terminal.sees("second")
            terminal.types("\x04")
            async with deadline():
                await chatting.wait()
            raw = terminal.bytes.replace(KITTY_QUERY, b"", 1).decode("utf-8", "replace")
        for attack in (
            "owned",
            "\x1b]",
            "\x1bP",
            "\x1b_",
            "\x9b",
            "\x9d",
            "\u202e",
            "\u2066",
            "\u200e",
            "\u061c",
            TAGGED[0],
        ):
            assert attack not in raw.replace("0;owned", ""), attack


@pytest.mark.parametrize("name", [name for name in ESCAPES if name != "half of a pair"])
async def test_a_title_has_no_control_sequences(name: str, tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.command("/whoami")
        await client.say("rename", id="r", session="main", title=f"a {ESCAPES[name]} b")
        title = (await client.until(lambda frame: "title" in frame))["title"]
        assert title.startswith("a ")
        assert "\n" not in title
        assert harmless_on_a_terminal(title)


# --- the console ------------------------------------------------------------------------------------------------------

IN_BROWSER = pytest.mark.asyncio(loop_scope="session")
NAMES = {
    "an element": MARKUP,
    "an attribute": "\"' onmouseover='window.hit=3' style='position:fixed' x=\"",
    "an end": "</span></summary></title><svg onload=window.hit=4>",
    "a link": "javascript:window.hit=5",
    "a template": "${window.hit=6}{{window.hit=7}}<%= 1 %>",
    "an entity": "&lt;script&gt;window.hit=8&lt;/script&gt;&#x202e;",
    "markdown": "[x](javascript:window.hit=9) ![p](http://evil.example/p.png) <http://evil.example>",
    "properties": "__proto__",
    "a constructor": "constructor",
}


async def shows_no_harm(page: Page) -> None:
    """Assert that no script ran and that no text became markup."""
    assert await page.evaluate("window.hit") is None
    assert await page.evaluate("({}).hit") is None
    await expect(
        page.locator("#app :is(script, style, iframe, form[action], base, object, embed, [onload], [onerror])")
    ).to_have_count(0)
    ours = ".brand > img, .hello > img"  # the mark of the console
    shown = f"img:not([src^='/attachments/']):not([src^='blob:']):not({ours})"
    odd = f"#app :is(a[href^='javascript:'], a[href^='data:'], {shown})"
    await expect(page.locator(odd)).to_have_count(0)


@IN_BROWSER
@pytest.mark.parametrize("name", NAMES)
async def test_no_name_is_markup_on_any_page(name: str, tmp_path: Path, browser: Browser) -> None:
    text = NAMES[name]
    write(tmp_path, hostile_events(text))
    note = f"a{text.replace('/', '-')}.md"
    folder = tmp_path / "workspace" / "memory"
    folder.mkdir(parents=True)
    (folder / note).write_text(f"# {text}\n\nThe kettle is blue {text}\n")
    settings = {"memory.embedding.provider": "none"}
    async with gateway(tmp_path, settings=settings) as running, visiting(browser, running) as visit:
        page = visit.page
        client = await running.connect()
        await client.say("rename", id="r", session="main", title=text)
        await client.until(lambda frame: "title" in frame)
        await visit.sign_in()
        await expect(page.locator(".sessions .name").first).to_have_text(text)
        call = page.locator("div.call").first
        await call.locator("summary").click()
        await expect(call.locator("b")).to_have_text(text)
        await expect(call.locator(".inside")).to_contain_text(text)
        await expect(page.locator("article.person .file")).to_have_text(text)
        for summary in await page.locator("article.aside summary").all():
            await summary.click()
        await shows_no_harm(page)
        await page.goto(f"{visit.url}#/context/main")
        await page.get_by_role("button", name="Compaction 1").click()
        await expect(page.get_by_text("Summary written by")).to_be_visible()
        for summary in await page.locator("#page summary").all():
            await summary.click()
        await shows_no_harm(page)
        await page.goto(f"{visit.url}#/memory")
        await page.get_by_label("Search notes and conversations").fill("kettle blue")
        await expect(page.locator(".hit").first).to_contain_text("The kettle is blue")
        await page.get_by_role("tab", name="Notes").click()
        await page.locator(".note-list .path").first.click()
        await expect(page.locator(".note-page h2").first).to_have_text(f"memory/{note}")
        await shows_no_harm(page)
        await page.goto(f"{visit.url}#/health")
        await expect(page.locator(".tiles")).to_contain_text("running")
        await shows_no_harm(page)
        assert (visit.errors, visit.elsewhere) == ([], [])


@IN_BROWSER
async def test_no_name_looks_like_another_in_the_console(tmp_path: Path, browser: Browser) -> None:
    trick = f"a\u202egpj\u2066.\u200e\u061cb{TAGGED}\u200b\x9b"
    write(tmp_path, hostile_events(trick))
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        await visit.sign_in()
        call = page.locator("div.call").first
        await call.locator("summary").click()
        await expect(call.locator("b")).to_have_text("agpj.b")
        await expect(call.locator(".inside pre.long:not(.diff)").first).to_have_text("agpj.b")
        await expect(page.locator("article.person .file")).to_have_text("agpj.b")
        await expect(page.locator("article.person .file")).to_have_attribute("download", "agpj.b")
        await expect(page.locator("article.assistant code").first).to_have_text("agpj.b")
        await page.goto(f"{visit.url}#/context/main")
        await page.get_by_role("button", name="Compaction 1").click()
        await expect(page.get_by_text("Summary written by agpj.b with agpj.b.")).to_be_visible()
        assert (visit.errors, visit.elsewhere) == ([], [])


# --- time in the console ----------------------------------------------------------------------------------------------

MODULE = """async (name) => {
    const place = document.querySelector("script[src*='/console/']").src.replace(/[^/]*$/, "");
    window.given = await import(`${place}${name}.js`);
}"""

SLOW = [
    ("markdown", "[a]("),
    ("java", "$"),
    ("ini", "a_b"),
    ("ini", "-"),
    ("csharp", "import a "),
    ("csharp", "a\n"),
    ("csharp", "a "),
    ("javascript", "(a"),
    ("typescript", "a_b"),
    ("bash", "1_"),
    ("c", "__"),
    ("graphql", "_"),
    ("r", "."),
    ("scss", "a"),
    ("cpp", "b"),
    ("javascript", "/* a\n\n"),
    ("python", "1."),
    ("perl", "<<A\n"),
    ("csharp", "a\n\n"),
    ("java", "\u00e9\n\n"),
]
"""Languages and what makes highlight.js slow in them, by the square of its length."""


@IN_BROWSER
async def test_no_code_block_blocks_the_page_that_highlights_it(tmp_path: Path, browser: Browser) -> None:
    """The page stood still for minutes: highlight.js is not linear."""
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        await visit.page.evaluate(MODULE, "answer/code")
        took = {}
        for language, pump in SLOW:
            took[language, pump] = await visit.page.evaluate(
                """async ([language, text]) => {
                    const place = document.createElement("code");
                    place.dataset.language = language;
                    const before = performance.now();
                    new window.given.Highlighter(place).show(text, true);
                    while (!place.matches(".coloured")) await new Promise(requestAnimationFrame);
                    return place.textContent === text ? performance.now() - before : Infinity;
                }""",
                [language, (pump * 40_000)[:40_000]],
            )
        assert {case: seconds for case, seconds in took.items() if seconds > 5_000} == {}


@IN_BROWSER
async def test_ordinary_code_is_highlighted_completely(tmp_path: Path, browser: Browser) -> None:
    part = 'def add(one: int, other: int) -> int:\n    """Add.\n\n    Both.\n    """\n    return one + other\n\n\n'
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        await visit.page.evaluate(MODULE, "answer/code")
        coloured = await visit.page.evaluate(
            """async (text) => {
                const place = document.createElement("code");
                place.dataset.language = "python";
                new window.given.Highlighter(place).show(text, true);
                while (!place.matches(".coloured")) await new Promise(requestAnimationFrame);
                const counted = (scope) => place.querySelectorAll(scope).length;
                return [place.textContent === text, counted(".c-keyword"), counted(".c-string")];
            }""",
            part * 100,
        )
    assert coloured == [True, 200, 100]


@IN_BROWSER
async def test_announcing_an_answer_without_sentences_takes_linear_time(tmp_path: Path, browser: Browser) -> None:
    """Each piece is looked at once: the text was searched from its beginning again for each."""
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        await visit.page.evaluate(MODULE, "announcer")
        said = await visit.page.evaluate(
            """() => {
                const said = [];
                const announcer = new window.given.Announcer((sentence) => said.push(sentence));
                const entry = { id: "1", live: true, text: "" };
                const before = performance.now();
                for (let piece = 0; piece < 200_000; piece++) {
                    entry.text += "word ";
                    announcer.feed(entry, "word ");
                }
                const took = performance.now() - before;
                for (const piece of ["the end", ".", " And", " more.", "\\n3", ".", "5 is", " it"]) {
                    entry.text += piece;
                    announcer.feed(entry, piece);
                }
                entry.live = false;
                announcer.feed(entry);
                return [took, ...said];
            }"""
        )
    assert said[0] < 10_000
    assert said[1].startswith("word word")
    assert len(said[1]) <= 400
    assert said[2:] == ["And more.", "3.5 is it"]
