"""The look of the console: contrasts of both themes, scales, motion, landmarks, and every width."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from gateway.http.console.pages import FOLDER
from tests.console.accessible import faults
from tests.console.browser import visiting
from tests.gateway.gateways import gateway

SHEETS = sorted(path for path in FOLDER.rglob("*.css") if "vendor" not in path.parts)
SURFACES = ("ground", "side", "card", "raised", "accent-wash")
READ_ON = [
    *product(("ink", "faint", "accent", "fault"), SURFACES),
    *product(("warn", "added", "code-word", "code-text", "code-name", "code-aside"), ("ground", "card", "raised")),
    ("accent-ink", "accent"),
    ("fault", "fault-wash"),
    ("ink", "fault-wash"),
    ("ink", "added-wash"),
    ("added", "added-wash"),
    ("warn", "warn-wash"),
    ("ground", "ink"),  # notices
]
"""Pairs of a text's colour and what is behind it."""

COLOURS = """(names) => Object.fromEntries(names.map((name) => {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color.match(/[\\d.]+/g).map(Number);
  probe.remove();
  return [name, found];
}))"""


def luminance(colour: list[float]) -> float:
    """The relative luminance of WCAG 2.2 of a colour in sRGB."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (each / 255 for each in colour[:3])
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: list[float], other: list[float]) -> float:
    """The contrast of two colours, 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.asyncio(loop_scope="session")
async def test_every_text_has_a_contrast_of_aa(tmp_path: Path, browser: Browser, dark: bool) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running, dark=dark) as visit:
        await visit.page.goto(visit.url)
        names = sorted({name for pair in READ_ON for name in pair})
        colours = await visit.page.evaluate(COLOURS, names)
    assert len({tuple(colour) for colour in colours.values()}) > len(names) / 2  # the properties are there
    assert [pair for pair in READ_ON if contrast(colours[pair[0]], colours[pair[1]]) < 4.5] == []


@pytest.mark.parametrize("width", [320, 390, 768, 1440, 2560])
@pytest.mark.asyncio(loop_scope="session")
async def test_every_page_fits_its_window(tmp_path: Path, browser: Browser, width: int) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running, size=(width, 800)) as visit:
        page = visit.page
        client = await running.connect()
        await client.chat("# A title\n\n`" + "x" * 300 + "`\n\n| a | b |\n|---|---|\n| " + "wide " * 40 + " | b |")
        await page.goto(visit.url)
        await expect(page.get_by_label("Token")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        await visit.sign_in()
        for place in ("chat/~", "chat/main", "context/main", "memory", "skills", "schedules", "health"):
            await page.goto(f"{visit.url}/#/{place}")
            await expect(page.locator(f"main.{place.partition('/')[0]} > *").first).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
            assert await page.locator("main").count() == 1, place
            assert await page.locator("h1").count() == 1, place
            assert await faults(page) == [], place
        assert (visit.errors, visit.elsewhere) == ([], [])


@pytest.mark.asyncio(loop_scope="session")
async def test_nothing_moves_for_people_who_do_not_want_it(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running, size=(390, 800)) as visit:
        page = visit.page
        moving = (
            "[...document.querySelectorAll('*')].filter((each) => getComputedStyle(each).transitionDuration !== '0s').length"
        )
        await visit.sign_in()
        assert await page.evaluate(moving) > 0
        await page.emulate_media(reduced_motion="reduce")
        assert await page.evaluate(moving) == 0


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_colours_and_sizes_of_text_are_those_of_the_scales(sheet: Path) -> None:
    text = re.sub(r"/\*.*?\*/", "", sheet.read_text(), flags=re.DOTALL)
    rules = text if sheet.name != "console.css" else text.partition(":root[data-theme")[2]
    assert re.findall(r"#[0-9a-f]{3,8}\b(?=[\s;,)])|\b(?:rgb|hsl)a?\([^)]*\)", rules) == []
    assert re.findall(r"font(?:-size)?:[^;}]*\d(?:rem|px)[^;}]*", rules) == []


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_gaps_paddings_and_margins_are_those_of_the_scale(sheet: Path) -> None:
    """Sizes relative to a text (`em`) and of layouts, above the largest of the scale's small ones, are free."""
    text = re.sub(r"/\*.*?\*/", "", sheet.read_text(), flags=re.DOTALL)
    spaces = re.findall(r"(?<![\w-])((?:row-|column-)?gap|padding[a-z-]*|margin[a-z-]*):([^;}]*)", text)
    assert len(spaces) >= 1 or sheet.name == "shared.css"
    literal = [(name, value) for name, value in spaces if any(size <= 2 for size in literal_sizes(value))]
    assert literal == []


def literal_sizes(value: str) -> list[float]:
    """The lengths in rem that a value spells out, and those in px other than hairlines."""
    rem = [float(size) for size in re.findall(r"(?<![\w.])(\d*\.?\d+)rem", value)]
    return rem + [float(size) / 16 for size in re.findall(r"(?<![\w.])(\d*\.?\d+)px", value) if float(size) > 1]


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.asyncio(loop_scope="session")
async def test_every_text_of_every_page_has_a_size_of_the_scale(tmp_path: Path, browser: Browser, width: int) -> None:
    """Code, keys and the like are relative to the text around them; formulas and diagrams draw themselves."""
    file = '[agent]\nmodel = "scripted:echo"\n'
    async with gateway(tmp_path, file=file) as running, visiting(browser, running, size=(width, 800)) as visit:
        page = visit.page
        await (await running.connect()).chat("# A title\n\n## Another\n\ntext `code`\n\n| a |\n|---|\n| b |\n\n- c")
        await visit.sign_in()
        for place in (
            "chat/~",
            "chat/main",
            "context/main",
            "memory",
            "skills",
            "schedules",
            "health",
            "settings/models",
            "settings/browsers",
        ):
            await page.goto(f"{visit.url}/#/{place}")
            await expect(page.locator(f"main.{place.partition('/')[0]} > *").first).to_be_visible()
            found = await page.evaluate(SIZES)
            assert len(set(found["scale"])) == 7
            assert [each for each in found["texts"] if each["size"] not in found["scale"]] == [], place


SIZES = """() => {
  const probe = document.body.appendChild(document.createElement("i"));
  const scale = ["xs", "s", "ui", "m", "l", "xl", "2xl"].map((name) => {
    probe.style.fontSize = `var(--text-${name})`;
    return getComputedStyle(probe).fontSize;
  });
  probe.remove();
  const own = (each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const texts = [...document.body.querySelectorAll("*")]
    .filter((each) => own(each) && each.checkVisibility() && !each.closest("code, pre, kbd, svg, option, sup, noscript"))
    .map((each) => ({ size: getComputedStyle(each).fontSize, text: each.textContent.slice(0, 40) }));
  return { scale, texts };
}"""
"""The sizes of the scale, and of every text that is shown, as the browser computed them."""


def test_every_custom_property_is_defined() -> None:
    text = "".join(sheet.read_text() for sheet in SHEETS)
    defined = set(re.findall(r"(?<![\w-])(--[\w-]+):", text))
    used = set(re.findall(r"var\((--[\w-]+)\)", text))
    assert sorted(used - defined) == []
