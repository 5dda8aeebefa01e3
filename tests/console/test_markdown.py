"""Markdown in the console: what is not rendered stays as it was written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.console.browser import visiting
from tests.console.test_chat import entries, say
from tests.gateway.gateways import gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")

AS_WRITTEN = [
    r"The area \(a^2\) and \(x_1^*, y_1^*\) are equal.",
    r"\[ \left(C,\; \frac{a}{b}\right) \]",
    "\\[\n\\sum_{i=1}^n i\n= \\frac{n(n+1)}{2}\n\\]",
    "$$\nf(x)\n=\n-1\n$$",
    "$$ a * b * c $$",
    "\\begin{align*}\na &= b \\\\\n* c &= d\n\\end{align*}",
    r"where $x_i *y_i* z$ holds",
    r"an open \(a*b*c",
    r"\left(C,\; D\right), \{1, 2\}, 5\,\% of R\&D, \\server\share, C:\new\(x86\)",
    r"\|x\| \leq 1 \; and \[1\] is no link",
    "__init__, __post_init__ and __init__.py of __all__",
    "__FILE__ and __main__.__name__",
    "2*3*4 = 24, 2**3**2 = 512, x**2 + y**2",
    "f(*args, **kwargs) and snake_case_name and _private and a*b",
    "[12:03]: done",
    "[INFO]: started",
    "a < b > c && <T> &",
    r"\left(C,\; D\right)\!: \{x\} \| y \\ z \% \& \, \#",
    "$a_1*b_2*c$ and $$x_1*y*z$$ and $10, $20",
    "_generate_next_value_ and __name__ == '__main__'",
    "5*(a+b)*c and COUNT(*) and SUM(*)",
    "std::vector<std::string> and List<int>",
    "handlers[name](event)",
    "src/**/*.py, **/*.md, **/a/*.md and /tmp/*.log or /var/*.log",
    "Accept: */* and .*foo.*",
    "cd x && \\\nls",
]
RENDERED = [
    ("**bold**, *light*, __two words__ and __Note__", "bold, light, two words and Note", "strong, em, strong, strong"),
    ("un*believ*able is as written", "un*believ*able is as written", ""),
    ("the **URL**s and *one* more", "the URLs and one more", "strong, em"),
    (r"1\. \*not light\* \_nor this\_ \<b\>", "1. *not light* _nor this_ <b>", ""),
    ("中文**重点**和*轻*的", "中文重点和轻的", "strong, em"),
    (r"It costs $5 or $6, **not** \$7", "It costs $5 or $6, not $7", "strong"),
    ("`__init__` and `\\(`", "__init__ and \\(", "code, code"),
    (
        "**API**s, **.env**, **/etc/hosts**, **(x)** and a **src/**.",
        "APIs, .env, /etc/hosts, (x) and a src/.",
        ", ".join(["strong"] * 5),
    ),
    ("1\\. one\n\\- two\n\\# three", "1. one\n- two\n# three", ""),
    ("**Let \\(a*b*c\\) be**", "Let \\(a*b*c\\) be", "strong"),
    ("**__init__** runs", "__init__ runs", "strong"),
    ("$$\n+ b\n\n**not** closed", "$$\n+ bnot closed", "strong"),
    ("an _emphasised_ word and <https://a.example/x_y>", "an emphasised word and https://a.example/x_y", "em, a"),
    (r"[a\]b](https://example.org/a_b_c)", r"a\]b", "a"),
    ("see README.md, main.py or https://example.org/x", "see README.md, main.py or https://example.org/x", "a"),
]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[Page]:
    """A page of the console that can draw Markdown."""
    async with gateway(tmp_path_factory.mktemp("home")) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        yield visit.page


async def drawn(page: Page, text: str) -> dict[str, Any]:
    """The text of what is drawn, with formulas as they were written, and its inline elements."""
    found: dict[str, Any] = await page.evaluate(
        """async (text) => {
            const place = document.querySelector("script[src*='/console/']").src.replace(/[^/]*$/, "");
            const { Markdown } = await import(`${place}answer/markdown.js`);
            const element = document.createElement("div");
            new Markdown(element).show(text);
            const inline = [...element.querySelectorAll("strong, em, code, a")].map((each) => each.tagName.toLowerCase());
            for (const formula of element.querySelectorAll(".formula")) formula.textContent = formula.dataset.source;
            return { text: element.textContent, inline: inline.join(", ") };
        }""",
        text,
    )
    return found


@pytest.mark.parametrize("text", AS_WRITTEN)
async def test_formulas_paths_and_identifiers_are_shown_verbatim(page: Page, text: str) -> None:
    assert await drawn(page, text) == {"text": text, "inline": ""}
    inside = text.replace("\n", "\n  ")
    assert (await drawn(page, f"- {inside}"))["text"].split() == text.split()


@pytest.mark.parametrize(("text", "shown", "inline"), RENDERED)
async def test_markdown_is_rendered(page: Page, text: str, shown: str, inline: str) -> None:
    assert await drawn(page, text) == {"text": shown, "inline": inline}


MARKS = r"$a :$\$:$a b~:$$:$$~:\(:\(a\):\[~:- \[~:\[[:[\(:\begin{a}~:\:__a:__a__:_a_b:2*3:a(*".replace("~", "\n").split(":")


@pytest.mark.parametrize("mark", MARKS)
async def test_rendering_unclosed_markup_takes_linear_time(page: Page, mark: str) -> None:
    """The parser itself is not linear in every text, so it is compared with what it takes without the rules of ours."""
    took = await page.evaluate(
        """async (mark) => {
            const place = document.querySelector("script[src*='/console/']").src.replace(/[^/]*$/, "");
            const { default: MarkdownIt } = await import(`${place}vendor/markdown-it.js`);
            const { verbatim } = await import(`${place}answer/verbatim.js`);
            const measured = (parser, size) => {
                const before = performance.now();
                parser.parse(mark.repeat(size / mark.length), {});
                return performance.now() - before;
            };
            const plain = new MarkdownIt({ html: false, linkify: true });
            const ours = new MarkdownIt({ html: false, linkify: true }).use(verbatim);
            measured(ours, 10_000);
            return { plain: measured(plain, 200_000), ours: measured(ours, 200_000) };
        }""",
        mark,
    )
    assert took["ours"] < 5_000 + 10 * took["plain"], took


async def test_identifiers_are_verbatim_in_the_answer_of_compact(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        client = await running.connect()
        for number in range(6):
            await client.chat(f"What do __post_init__ and \\(a^2\\) say of *args, {number}? " + "Many words. " * 60)
        await visit.sign_in()
        await say(visit.page, "/compact")
        answer = entries(visit.page, "answer")
        await expect(answer).to_contain_text("What do __post_init__ and")
        await expect(answer).to_contain_text("say of *args, 0?")
        await expect(answer.locator(".formula").first).to_have_attribute("data-source", r"\(a^2\)")
