"""How an answer is drawn: the same while it is written as once it is complete, with elements that stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from tests.console.browser import visiting
from tests.gateway.gateways import gateway
from tests.waiting import deadline

pytestmark = pytest.mark.asyncio(loop_scope="session")

HARNESS = """async () => {
    const place = document.querySelector("script[src*='/console/']").src.replace(/[^/]*$/, "");
    const { Markdown } = await import(`${place}answer/markdown.js`);
    const { Highlighter } = await import(`${place}answer/code.js`);
    const { csvOf } = await import(`${place}answer/tables.js`);
    const drawing = () => {
        const element = document.createElement("div");
        element.className = "prose";
        document.body.prepend(element);
        return { element, markdown: new Markdown(element) };
    };
    window.answers = { Markdown, Highlighter, csvOf, drawing };
}"""


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[Page]:
    """A page of the console with the modules that draw an answer."""
    async with gateway(tmp_path_factory.mktemp("home")) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        await visit.page.evaluate(HARNESS)
        yield visit.page
        assert (visit.errors, visit.elsewhere) == ([], [])


PARTS = [
    "A paragraph with **bold**, `code` and a [link](https://example.org).",
    "# Heading",
    "Setext\n===",
    "- one\n- two\n  - inner\n\n  more of two",
    "1. one\n2. two",
    "- [ ] open\n- [x] done",
    "> quoted\nlazily\n-",
    "| a | b |\n|---|--:|\n| 1 | 2 |\n| 3 | 4 |",
    "```\ncode\n\nmore\n```",
    "~~~\nnever closed",
    "    indented\n\n    code",
    "***",
    "text[^1] and [^other]",
    "[^1]: A note.\n    And more.\n\n    Its second paragraph.",
    "[^other]: Another\nlazily",
    "$$\na\n$$ and $x$",
    "\\begin{align}\na &= b\n\\end{align}",
    "[x]: y\n<b>html</b> &amp; \\* \\_",
    "a\n- b\n+ c\n* d",
    "![p](http://a.example/p.png)  \nbroken",
    "\t- tab\n\t\tand tab",
    "x\n    not code",
]


def texts() -> list[str]:
    """Texts of parts in any order, with and without empty lines between them."""
    chosen = Random(20)
    return [chosen.choice(["\n", "\n\n", "\n\n\n"]).join(chosen.sample(PARTS, 5)) for _ in range(60)] + ["\n\n".join(PARTS)]


async def test_a_text_that_grows_is_drawn_like_one_that_is_complete(page: Page) -> None:
    """After every character; only its end is parsed again."""
    different = await page.evaluate(
        """(texts) => {
            const different = [];
            for (const text of texts) {
                const growing = window.answers.drawing();
                for (let end = 1; end <= text.length; end++) {
                    growing.markdown.show(text.slice(0, end), false);
                    const once = window.answers.drawing();
                    once.markdown.show(text.slice(0, end), false);
                    const same = growing.element.innerHTML === once.element.innerHTML;
                    once.element.remove();
                    if (!same) {
                        different.push([text.slice(0, end), growing.element.innerHTML]);
                        break;
                    }
                }
                growing.element.remove();
            }
            return different;
        }""",
        texts(),
    )
    assert different == []


async def test_elements_stay_while_a_text_grows(page: Page) -> None:
    """A reader's selection is kept, and nothing that was drawn moves or blinks."""
    stayed = await page.evaluate(
        """async () => {
            const pieces = [
                "First", " words.", "\\n\\n- one **bold**", " x", "\\n- tw", "o", "\\n\\n| a |\\n|---|\\n",
                "| 1 |\\n", "| 2 |", "\\n\\n```python\\n", "x = 1", "\\ny = 2", "\\n```", "\\n\\nLast", " words"
            ];
            const { element, markdown } = window.answers.drawing();
            const removed = [];
            const observer = new MutationObserver((records) => {
                for (const { removedNodes } of records)
                    for (const node of removedNodes) if (node.nodeType === 1) removed.push(node.outerHTML);
            });
            observer.observe(element, { childList: true, subtree: true });
            let text = "";
            for (const piece of pieces) markdown.show((text += piece), false);
            await new Promise(requestAnimationFrame);
            element.remove();
            return removed;
        }"""
    )
    assert stayed == []


async def test_marks_that_are_not_closed_yet_are_not_shown(page: Page) -> None:
    shown = await page.evaluate(
        """() => {
            const { element, markdown } = window.answers.drawing();
            const texts = ["It is **bo", "It is **bold", "It is **bold** and `co",
                "2 ** 3 and x**2", "```\\na **b", "**"];
            const shown = texts.map((text) => {
                markdown.show(text, false);
                return element.querySelector(".block").lastChild.innerHTML;
            });
            markdown.show("It is **bo", true);
            shown.push(element.querySelector("p").innerHTML);
            element.remove();
            return shown;
        }"""
    )
    assert shown[:4] == [
        "It is <strong>bo</strong>",
        "It is <strong>bold</strong>",
        "It is <strong>bold</strong> and <code>co</code>",
        "2 ** 3 and x**2",
    ]
    assert "a **b" in shown[4]
    assert shown[5:] == ["**", "It is **bo"]


async def test_a_long_text_that_grows_is_parsed_only_at_its_end(page: Page) -> None:
    """What a frame parses is bounded by the last block, not by the text."""
    longest = await page.evaluate(
        """async () => {
            const place = document.querySelector("script[src*='/console/']").src.replace(/[^/]*$/, "");
            const { default: MarkdownIt } = await import(`${place}vendor/markdown-it.js`);
            const { parse } = MarkdownIt.prototype;
            let longest = 0;
            MarkdownIt.prototype.parse = function (text, ...rest) {
                longest = Math.max(longest, text.length);
                return parse.call(this, text, ...rest);
            };
            const { element, markdown } = window.answers.drawing();
            let text = "";
            for (let part = 0; part < 400; part++) {
                text += `Paragraph ${part} with some **words**.\\n\\n- one\\n- two\\n\\n`;
                markdown.show(text, false);
            }
            MarkdownIt.prototype.parse = parse;
            element.remove();
            return longest;
        }"""
    )
    assert longest < 200


async def test_code_is_highlighted_while_it_grows_and_its_final_pieces_stay(page: Page) -> None:
    """What a frame highlights is bounded by a piece, however long the code is."""
    seen = await page.evaluate(
        """async () => {
            const place = document.querySelector("script[src*='/console/']").src.replace(/[^/]*$/, "");
            const { default: hljs } = await import(`${place}vendor/highlight.js`);
            const { highlight } = hljs;
            const now = performance.now;
            performance.now = () => 0; // a slow machine leaves pieces for later
            let longest = 0;
            hljs.highlight = (text, ...rest) => {
                longest = Math.max(longest, text.length);
                return highlight(text, ...rest);
            };
            const { element, markdown } = window.answers.drawing();
            const line = (at) => (at % 6 ? `    value_${at} = "text ${at}"` : `\\ndef function_${at}():`);
            const lines = Array.from({ length: 600 }, (_, at) => line(at));
            let text = "```python\\n";
            markdown.show(text, false);
            await import(`${place}answer/code.js`);
            await new Promise(requestAnimationFrame);
            let first = null;
            let keywords = 0;
            for (const line of lines) {
                text += `${line}\\n`;
                markdown.show(text, false);
                first ??= element.querySelectorAll(".lines").length > 1 ? element.querySelector(".lines .c-keyword") : null;
                keywords = Math.max(keywords, element.querySelectorAll(".c-keyword").length);
            }
            const kept = first?.isConnected;
            markdown.show(`${text}\\`\\`\\`\\n`, true);
            while (!element.querySelector(".coloured")) await new Promise(requestAnimationFrame);
            hljs.highlight = highlight;
            performance.now = now;
            const whole = element.querySelector("code").textContent;
            const all = element.querySelectorAll(".c-keyword").length;
            const found = { longest, kept, keywords, all, same: whole === lines.join("\\n") };
            element.remove();
            return found;
        }"""
    )
    assert seen.pop("longest") <= 3000
    assert seen == {"kept": True, "keywords": 100, "all": 100, "same": True}


async def drawn(page: Page, text: str) -> None:
    """Draw a text at the top of the page."""
    await page.evaluate(
        """(text) => {
            document.querySelector("#answer")?.remove();
            const { element, markdown } = window.answers.drawing();
            element.id = "answer";
            markdown.show(text);
        }""",
        text,
    )


async def test_tasks_have_boxes(page: Page) -> None:
    await drawn(page, "- [ ] open\n- [x] **done**\n- [X] too\n\n1. [ ] first\n\n- [y] none\n- x [ ] none")
    boxes = page.locator("#answer input[type=checkbox]")
    assert await boxes.evaluate_all("boxes => boxes.map(({ checked, disabled }) => [checked, disabled])") == [
        [False, True],
        [True, True],
        [True, True],
        [False, True],
    ]
    await expect(page.locator("#answer li")).to_have_text(["open", "done", "too", "first", "[y] none", "x [ ] none"])


async def test_footnotes_are_numbered_and_lead_to_each_other(page: Page) -> None:
    await drawn(
        page,
        "One[^b] two[^a] one[^b] none[^c], `[^a]`, [^a-z].\n\n"
        "[^a]: About *a*.\n[^b]: About b.\n\n    More.\n\n[^d]: Unused.",
    )
    answer = page.locator("#answer")
    await expect(answer.locator("p").first).to_have_text("One1 two2 one1 none[^c], [^a], [^a-z].")
    await expect(answer.locator(".definition")).to_have_text(["2About a.", "1About b.More.", "[^d]:Unused."])
    await answer.get_by_role("button", name="Footnote 1").first.click()
    await expect(answer.get_by_role("button", name="Back to the text").nth(1)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(answer.get_by_role("button", name="Footnote 1").first).to_be_focused()


CELLS = r"""
| name | sum |
|---|---:|
| a, "b" | -5.20 |
| =1+1 | +4 |
| @x \| y | **-z** |
"""


async def test_a_table_is_copied_as_csv_that_no_spreadsheet_runs(page: Page) -> None:
    await drawn(page, CELLS)
    found: Any = await page.evaluate("window.answers.csvOf(document.querySelector('#answer table'))")
    assert found == 'name,sum\r\n"a, ""b""",-5.20\r\n\'=1+1,+4\r\n\'@x | y,\'-z\r\n'
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="Copy as CSV").click()
    await expect(page.locator("#answer .copy")).to_have_text("Copied")
    assert (await page.evaluate("navigator.clipboard.readText()")).splitlines()[0] == "name,sum"


PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_pictures_that_are_in_the_text_are_shown_and_others_are_named(page: Page) -> None:
    await drawn(
        page,
        f"![dot]({PIXEL}) ![svg](data:image/svg+xml;base64,PHN2Zy8+) ![far](https://a.example/x.png) ![up](/api/sign-out)",
    )
    await expect(page.locator("#answer img")).to_have_count(1)
    await expect(page.locator("#answer img")).to_have_js_property("naturalWidth", 1)
    await expect(page.locator("#answer .picture")).to_have_text(["Picture: far", "Picture: up"])


async def formulas(page: Page, text: str) -> list[str]:
    """Draw a text, and return the sources of the formulas that KaTeX has drawn."""
    await drawn(page, "$x$")
    await page.locator("#answer .katex").wait_for()
    await drawn(page, text)
    found: list[str] = await page.evaluate(
        """async () => {
            await new Promise(requestAnimationFrame);
            return [...document.querySelectorAll("#answer .formula:has(.katex)")].map(({ dataset }) => dataset.source);
        }"""
    )
    return found


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        (r"Let $a^2$ and \(b\) be $$c$$ or \[d\].", ["$a^2$", r"\(b\)", "$$c$$", r"\[d\]"]),
        (
            "$$\nx = 1\n$$\n\n\\begin{align*}\na &= b\n\\end{align*}",
            ["$$\nx = 1\n$$", "\\begin{align*}\na &= b\n\\end{align*}"],
        ),
        ("the $n$th, $k$-th of $10^6$ | $5 and $6, $10-$20, from $5 to 10$, US$5 or A$6", ["$n$", "$k$", "$10^6$"]),
        ("$HOME/$USER, $HOME:$PATH, ${a}/${b}, $(date)-$(id), $foo/$src, $a_b", []),
        ("`$a$` and \\$a\\$\n\n```\n$$b$$\n```\n\n    $c$", []),
        (r"$\notacommand{x}$ $\frac{1}$ $\left( x$", []),
        ("| $a$ | b |\n|---|---|\n| $$c$$ | **$d$** |", ["$a$", "$$c$$", "$d$"]),
    ],
)
async def test_formulas_are_drawn_and_prices_variables_and_code_are_not(page: Page, text: str, sources: list[str]) -> None:
    assert await formulas(page, text) == sources


async def test_a_formula_can_be_read_by_screen_readers(page: Page) -> None:
    await formulas(page, r"$\frac{a}{b}$ and $\pmb{x} \fcolorbox{red}{blue}{y}$")
    await expect(page.locator("#answer math mfrac")).to_have_count(1)
    await expect(page.locator("#answer math").first).to_contain_text(r"\frac{a}{b}")
    fonts = await page.evaluate(
        "document.fonts.ready.then(() => [...document.fonts].filter(({status}) => status === 'loaded').length)"
    )
    assert fonts > 0


NESTED = [
    r"\frac{1}{",
    r"\sqrt{",
    r"\hat{",
    r"\left(",
    r"{",
    "x^{",
    r"\overset{x}{",
    r"\underbrace{",
    r"\mathchoice{a}{b}{c}{",
    r"\text{$",
    r"\binom{1}{",
    r"\begin{matrix}",
    r"\cancel{",
    r"\overrightarrow{",
    r"\color{red}",
    r"\operatorname{",
    r"\hat{x}_{",
    r"\boldsymbol{",
    r"\xrightarrow{",
    r"\mathop{",
]


async def test_no_formula_takes_long(page: Page) -> None:
    """Its length and nesting are limited, and it defines nothing."""
    await formulas(page, "$x$")
    closes = {"{": "}", "(": r"\right)", "}": r"\end{matrix}", "$": "$}"}
    took = {}
    for part in NESTED:
        close = closes.get(part[-1], "")
        times = 1900 // (len(part) + len(close))
        text = part * times + "x" + close * times
        took[part] = await page.evaluate(
            """async (text) => {
                for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
                const { element, markdown } = window.answers.drawing();
                const before = performance.now();
                markdown.show(`$$${text}$$`);
                const took = performance.now() - before;
                element.remove();
                return took;
            }""",
            text,
        )
    assert {part: millis for part, millis in took.items() if millis > 5_000} == {}


async def test_a_diagram_is_drawn_once_it_is_complete_and_its_source_can_be_shown(page: Page) -> None:
    await drawn(
        page, "```mermaid\nflowchart LR\n  A[Question] --> B[Answer]\n```\n\n```mermaid\nflowchart LR\n  A[--> B\n```"
    )
    answer = page.locator("#answer")
    picture = answer.locator(".diagram img")
    await expect(picture.first).to_be_visible()
    assert await picture.first.evaluate("picture => picture.naturalWidth > 100 && picture.naturalHeight > 30")
    await expect(answer.locator("pre").first).to_be_hidden()
    await answer.get_by_role("button", name="Source").click()
    await expect(answer.locator("pre").first).to_be_visible()
    await expect(picture.first).to_be_hidden()
    await expect(answer.locator(".problem").nth(1)).to_contain_text("The diagram cannot be drawn: ")
    await expect(answer.locator("pre").nth(1)).to_be_visible()
    before = await picture.first.get_attribute("src")
    await page.evaluate("document.documentElement.dataset.theme = 'dark'")
    await expect(picture.first).not_to_have_attribute("src", before or "")
    await page.evaluate("delete document.documentElement.dataset.theme")


async def test_a_frame_that_does_not_answer_is_replaced(tmp_path: Path, browser: Browser) -> None:
    """A diagram that takes too long is shown as its source, and the next one is drawn."""
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        page = visit.page
        mute = asyncio.Event()

        async def answer(route: Route) -> None:
            if mute.is_set():
                await route.continue_()
            else:
                mute.set()
                await route.fulfill(body="<!doctype html>", content_type="text/html")

        await page.route("**/diagram_frame.html", answer)
        await page.clock.install()
        await visit.sign_in()
        await page.evaluate(HARNESS)
        await drawn(page, "```mermaid\nflowchart LR\n  A --> B\n```\n\n```mermaid\nflowchart LR\n  C --> D\n```")
        async with deadline():
            await mute.wait()
        await page.clock.pause_at(await page.evaluate("Date.now()") / 1000 + 10.5)
        diagram = page.locator("#answer .diagram:visible")
        async with deadline():
            while await diagram.count() == 0:  # its own time passes slowly, for a machine that draws slowly
                await page.clock.run_for(20)
        await expect(page.locator("#answer .problem:visible")).to_have_text(
            ["The diagram cannot be drawn: It takes too long."]
        )
        await expect(diagram).to_have_count(1)
        await expect(page.locator("#answer pre:visible")).to_have_count(1)
        await expect(page.locator("iframe")).to_have_count(1)
