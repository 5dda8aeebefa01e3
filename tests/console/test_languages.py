"""The languages of the console: the dictionaries have what the scripts say, and a page speaks the person's language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from gateway.http.console.pages import FOLDER
from tests.console.accessible import faults
from tests.console.browser import NARROW, visiting
from tests.console.texts import SCRIPTS, calls, dictionary, loose_texts
from tests.gateway.gateways import TOKEN, gateway

LANGUAGES = sorted(path.stem for path in (FOLDER / "languages").glob("*.js"))
FORMS = {"de": {"one", "other"}, "es": {"one", "many", "other"}, "fr": {"one", "many", "other"}, "zh": {"other"}}
"""The categories of CLDR for whole numbers."""

CALLS = [call for path in SCRIPTS for call in calls(path)]


NAMES = {"Exuvia", "English", "Deutsch", "Markdown", "Files", "Enter", "Tab", "Esc", "It was forked from"}
"""Names, of keys too; a type of what is dragged, and the beginning of a sentence of the gateway."""

OUTSIDE = {"diagram_frame.js"}
"""Scripts without the dictionaries: that one runs in a frame of another origin."""


def names(text: str) -> set[str]:
    """The names in braces of a text."""
    return set(re.findall(r"\{(\w+)\}", text))


def test_texts_are_literals() -> None:
    """Otherwise nothing could say which texts there are."""
    assert len(CALLS) > 300
    assert [str(call) for call in CALLS if not all(each.startswith('"') for each in call.literals)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_dictionary_keeps_the_values_and_has_the_plural_forms_of_its_language(language: str) -> None:
    entries = dictionary(language)
    counted = {call.key for call in CALLS if call.name == "tn"}
    for key, text in entries.items():
        assert isinstance(text, dict) == (key in counted), key
        forms = text if isinstance(text, dict) else {"other": text}
        if key in counted:
            assert set(forms) == FORMS[language], key
            assert language != "fr" or "{count}" in forms["one"], key  # which stands for none, too
        for form, each in forms.items():
            assert each.strip(), key
            assert names(each) | ({"count"} if form == "one" else set()) >= names(key), (key, each)
            assert names(each) <= names(key), (key, each)


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_left_out(language: str) -> None:
    """What is missing must be translated, and what no script says any more goes."""
    said, known = {call.key for call in CALLS}, set(dictionary(language))
    assert (sorted(said - known), sorted(known - said)) == ([], [])


def test_every_text_of_the_page_goes_through_the_dictionaries() -> None:
    """A literal that reads like a sentence or a title is an argument of `t`, `th` or `tn`, or one of the names below."""
    loose = [
        f"{path.relative_to(FOLDER)}: {text}"
        for path in SCRIPTS
        if path.name not in OUTSIDE
        for text in loose_texts(path)
        if text not in NAMES
    ]
    assert loose == []


@pytest.mark.parametrize(
    ("language", "sign_in", "theme"),
    [
        ("de-AT", "Anmelden", "Dunkel"),
        ("es-MX", "Iniciar sesión", "Oscuro"),
        ("fr-CA", "Se connecter", "Sombre"),
        ("zh-CN", "登录", "深色"),
    ],
)
@pytest.mark.asyncio(loop_scope="session")
async def test_the_page_speaks_the_browsers_language_until_a_person_chooses_another(
    tmp_path: Path, browser: Browser, language: str, sign_in: str, theme: str
) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running, size=NARROW, language=language) as visit:
        page = visit.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url.rpartition("/console/")[2].partition("/")[2]))
        await page.goto(visit.url)
        await expect(page.get_by_role("button", name=sign_in)).to_be_visible()
        assert [each for each in asked if each.startswith("languages/")] == [f"languages/{language[:2]}.js"]
        assert await page.evaluate("document.documentElement.lang") == language[:2]
        assert await faults(page) == []
        await page.locator("#token").fill(TOKEN)
        await page.get_by_role("button", name=sign_in).click()
        await page.locator("button.menu").click()
        await page.locator("button[popovertarget], .foot button").first.click()
        await expect(page.get_by_text(theme, exact=True)).to_be_visible()
        assert await faults(page) == []
        await page.locator("#preferences select").select_option("English")
        await expect(page.locator("html")).to_have_attribute("lang", "en")
        await page.reload()
        await page.locator("button.menu").click()
        await expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        assert (visit.errors, visit.elsewhere) == ([], [])


@pytest.mark.asyncio(loop_scope="session")
async def test_numbers_dates_and_plurals_are_those_of_the_language(tmp_path: Path, browser: Browser) -> None:
    script = """async (folder) => {
      const { tn } = await import(`${folder}/language.js`);
      const { count, seconds, exactly } = await import(`${folder}/format.js`);
      const files = [0, 1, 2].map((number) => tn(number, "one file", "{count} files"));
      return [files, count(12345678), seconds(2.5), exactly("2026-05-04T12:00:00Z").split(",")[0]];
    }"""
    expected = {
        "en-GB": [["0 files", "one file", "2 files"], "12,345,678", "2.5 s", "Monday"],
        "de-DE": [["0 Dateien", "eine Datei", "2 Dateien"], "12.345.678", "2,5 s", "Montag"],
        "fr-FR": [
            ["0 fichier", "1 fichier", "2 fichiers"],
            "12\u202f345\u202f678",
            "2,5 s",
            "lundi 4 mai 2026 à 12:00:00",
        ],
    }
    async with gateway(tmp_path) as running:
        for language, values in expected.items():
            async with visiting(browser, running, language=language) as visit:
                await visit.page.goto(visit.url)
                await visit.page.locator("#token").wait_for()
                folder = await visit.page.evaluate(
                    "new URL('.', document.querySelector('script').src).pathname.slice(0, -1)"
                )
                assert await visit.page.evaluate(script, folder) == values
