"""The page of the settings, in a browser: every key is there, changes are checked, undone, saved and in force."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from tests.console.accessible import faults
from tests.console.asked import ask
from tests.console.browser import NARROW, WIDE, Visit, visiting
from tests.gateway.gateways import TOKEN, gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")

BEN = "a-token-for-ben-that-is-long-enough"
KEY = "sk-abcdefgh-0123456789-never-shown"
MINE = f"""\
# The configuration of the kitchen.
[agent]
model = "scripted:echo"   # do not touch

[people.ben]
token = "{BEN}"

[mcp.files]
url = "http://127.0.0.1:9/mcp"
headers = {{ X-Key = "{KEY}" }}

[prices."scripted:echo"]
input = 2.0
output = 8.0

[channels.home]
kind = "irc"
server = "127.0.0.1:9"
nick = "exuvia"
tls = false

[approvals]
default = "allow"
rules = [{{ tool = "write", path = "drafts/", decision = "allow" }}]
"""
TINY = (320, 640)


async def opened(visit: Visit, where: str = "models", token: str = TOKEN) -> Page:
    """Sign in and open a group of the settings."""
    await visit.sign_in(token)
    await go(visit.page, visit, where)
    return visit.page


async def go(page: Page, visit: Visit, where: str) -> None:
    await page.goto(f"{visit.url}#/settings/{where}")
    await expect(page.locator(".settings-content h2").first).to_be_visible()


def row(page: Page, key: str) -> Locator:
    return page.locator(f'[data-key="{key}"]')


def said(page: Page) -> Locator:
    return page.locator(".save-bar .said")


async def save(page: Page) -> None:
    await page.get_by_role("button", name="Save", exact=True).click()


# --- all keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "dark"), [(WIDE, False), (WIDE, True), (NARROW, True), (TINY, False), ((2560, 1200), False)]
)
async def test_every_key_is_in_one_group_and_everybody_can_use_every_group(
    size: tuple[int, int], dark: bool, tmp_path: Path, browser: Browser
) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running, size=size, dark=dark) as visit:
        page = await opened(visit)
        keys = [key["key"] for table in (await ask(running, "/api/config")).json["tables"] for key in table["keys"]]
        found: list[str] = []
        for group in await page.locator("[data-group]").evaluate_all("all => all.map((each) => each.dataset.group)"):
            await go(page, visit, group)
            await expect(page.locator(f'[data-group="{group}"]')).to_have_attribute("aria-current", "true")
            found += await page.locator("[data-key]").evaluate_all("all => all.map((each) => each.dataset.key)")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), group
            assert await faults(page) == [], group
        assert sorted(found) == sorted(key for key in keys if key != "channels.home.kind")  # its table shows it as its kind
        assert KEY not in await page.content()
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_warning_about_a_key_is_shown_in_its_group(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        page = await opened(visit, "people")
        warning = page.locator(".settings-state")
        await expect(warning).to_contain_text("people.ben.token is stored as plain text in config.toml;")
        await expect(warning).not_to_contain_text("mcp.files")
        assert str(tmp_path) not in await warning.inner_text()
        await go(page, visit, "mcp")
        await expect(warning).to_contain_text("mcp.files.headers")
        await expect(warning).not_to_contain_text("people.ben.token")
        await go(page, visit, "memory")
        await expect(warning).to_be_empty()


async def test_a_search_finds_keys_of_all_groups_and_a_link_opens_one(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        page = await opened(visit, "gateway")
        await page.keyboard.press("/")
        await page.keyboard.type("window reserve")
        await expect(page.get_by_text("2 settings found")).to_be_visible()
        await expect(row(page, "compaction.reserve_tokens_floor")).to_be_visible()
        await expect(page.locator("mark").first).to_be_visible()
        await page.keyboard.type(" nothing at all")
        await expect(page.get_by_text("No setting has these words.")).to_be_visible()
        await go(page, visit, "providers.openai.api_key")
        await expect(row(page, "providers.openai.api_key").get_by_role("textbox")).to_be_focused()


# --- changing ---------------------------------------------------------------------------------------------------------


async def test_a_change_is_checked_while_one_types_saved_and_in_force(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        page = await opened(visit)
        names = [each["id"] for each in (await ask(running, "/api/models")).json["models"]]
        assert names
        options = page.locator(f"#{await row(page, 'agent.model').get_by_role('combobox').get_attribute('list')} option")
        await expect(options).to_have_count(len(names))
        model, button = row(page, "agent.model"), page.get_by_role("button", name="Save", exact=True)
        await model.get_by_role("combobox").fill("nobody:x")
        await expect(model.locator(".settings-fault")).to_contain_text("agent.model names 'nobody:x', which is not")
        await expect(button).to_be_disabled()
        assert await faults(page) == []
        await model.get_by_role("combobox").fill("scripted:other")
        await expect(model.locator(".settings-fault")).to_have_text("")
        await go(page, visit, "conversations")
        await row(page, "sessions.queue").get_by_role("combobox").select_option("steer")
        await row(page, "sessions.resume_within").get_by_role("textbox").fill("soon")
        await expect(row(page, "sessions.resume_within")).to_contain_text("must be a duration such as 90s")
        await row(page, "sessions.resume_within").get_by_role("textbox").fill("90s")
        await row(page, "agent.verbose").get_by_role("switch").check()
        await expect(page.get_by_text("4 unsaved changes")).to_be_visible()
        await expect(page.locator('[data-group="models"] .mark')).to_have_text("1")
        await expect(button).to_be_enabled()
        await save(page)
        await expect(said(page)).to_have_text("Saved, and in force from the next turn on.")
        config = running.daemon.config
        assert (config.agent.model, config.sessions.queue, config.agent.verbose) == ("scripted:other", "steer", True)
        assert float(config.sessions.resume_within) == 90
        text = (tmp_path / "config.toml").read_text()
        assert text.startswith('# The configuration of the kitchen.\n[agent]\nmodel = "scripted:other"   # do not touch\n')
        await expect(page.get_by_text("unsaved change")).to_be_hidden()
        await row(page, "sessions.queue").get_by_role("button", name="Use the default").click()
        await save(page)
        await expect(said(page)).to_have_text("Saved, and in force from the next turn on.")
        await expect(row(page, "sessions.queue").get_by_role("combobox")).to_have_value("followup")
        assert "queue" not in tomllib.loads((tmp_path / "config.toml").read_text())["sessions"]
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_changes_are_undone_one_by_one_or_all_and_survive_another_page(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        page = await opened(visit)
        temperature = row(page, "agent.temperature")
        await temperature.get_by_role("textbox").fill("0.4")
        await row(page, "agent.fallback_models").get_by_role("textbox").fill("scripted:a\nscripted:b\n")
        await page.get_by_role("link", name="Health").click()
        await expect(page.locator(".tiles")).to_be_visible()
        await go(page, visit, "models")
        await expect(temperature.get_by_role("textbox")).to_have_value("0.4")
        await page.get_by_text("Review").click()
        await expect(page.locator(".save-bar .changes")).to_contain_text('["scripted:a","scripted:b"]')
        await temperature.get_by_role("button", name="Undo this change").click()
        await expect(temperature.get_by_role("textbox")).to_have_value("")
        await expect(page.get_by_text("One unsaved change")).to_be_visible()
        await page.get_by_role("button", name="Discard").click()
        await expect(page.get_by_text("unsaved change")).to_be_hidden()
        await expect(row(page, "agent.fallback_models").get_by_role("textbox")).to_have_value("")
    assert (tmp_path / "config.toml").read_text() == MINE


async def test_rules_lists_and_tables_are_edited_in_place(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        page = await opened(visit, "approvals")
        rules = row(page, "approvals.rules")
        await rules.get_by_role("button", name="Add a rule").click()
        rule = rules.get_by_role("listitem").nth(1)
        await rule.get_by_label("Tool").fill("shell")
        await rule.get_by_label("Command").fill("git\nstatus")
        await rule.get_by_label("Decision").select_option("deny")
        await rule.get_by_role("button", name="Move up").click()
        await go(page, visit, "models")
        windows = row(page, "agent.context_windows")
        await windows.get_by_role("button", name="Add an entry").click()
        await windows.get_by_label("Name").fill("openai:qwen3")
        await windows.get_by_label("Value").fill("40960")
        await page.get_by_role("textbox", name="provider:model").fill("openai:gpt-4.1")
        await page.get_by_role("button", name="Set a price").click()
        await row(page, 'prices.\\"openai:gpt-4.1\\".input').get_by_role("textbox").fill("1.5")
        await row(page, 'prices.\\"openai:gpt-4.1\\".output').get_by_role("textbox").fill("6")
        await go(page, visit, "memory")
        await row(page, "memory.sources").get_by_label("sessions").uncheck()
        await expect(page.get_by_text("5 unsaved changes")).to_be_visible()
        await save(page)
        await expect(said(page)).to_have_text("Saved, and in force from the next turn on.")
        assert running.daemon.config.prices["openai:gpt-4.1"].output == 6
    tree = tomllib.loads((tmp_path / "config.toml").read_text())
    assert tree["approvals"]["rules"] == [
        {"tool": "shell", "decision": "deny", "argv": ["git", "status"]},
        {"tool": "write", "path": "drafts/", "decision": "allow"},
    ]
    assert tree["agent"]["context_windows"] == {"openai:qwen3": 40960}
    assert tree["memory"]["sources"] == ["notes"]


async def test_a_file_that_was_changed_meanwhile_is_loaded_and_the_changes_stay(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        page = await opened(visit)
        await row(page, "agent.temperature").get_by_role("textbox").fill("0.4")
        (tmp_path / "config.toml").write_text(MINE.replace("scripted:echo", "scripted:editor"))
        await save(page)
        await expect(said(page)).to_contain_text("changed by somebody else meanwhile")
        await page.get_by_role("button", name="Load its values and keep my changes").click()
        await expect(row(page, "agent.model").get_by_role("combobox")).to_have_value("scripted:editor")
        await expect(row(page, "agent.temperature").get_by_role("textbox")).to_have_value("0.4")
        await save(page)
        await expect(said(page)).to_contain_text("Saved")
        assert (running.daemon.config.agent.model, running.daemon.config.agent.temperature) == ("scripted:editor", 0.4)


async def test_a_change_that_may_lock_the_owner_out_is_confirmed(tmp_path: Path, browser: Browser) -> None:
    file = MINE + '[gateway]\nhost = "127.0.0.1"\n'
    async with gateway(tmp_path, file=file) as running, visiting(browser, running) as visit:
        page = await opened(visit, "gateway")
        await expect(row(page, "gateway.port").get_by_role("textbox")).to_be_disabled()
        await expect(row(page, "gateway.port")).to_contain_text("Set by EXUVIA__GATEWAY__PORT, which overrides the file.")
        await row(page, "gateway.host").get_by_role("textbox").fill("127.0.0.2")
        await expect(page.get_by_text("needs a restart")).to_be_visible()
        await save(page)
        dialog = page.get_by_role("dialog", name="Save these changes?")
        await expect(dialog).to_contain_text("after a restart the gateway listens on 127.0.0.2")
        assert await faults(page) == []
        await dialog.get_by_role("button", name="Cancel").click()
        assert (tmp_path / "config.toml").read_text() == file
        await save(page)
        await dialog.get_by_role("button", name="Save anyway").click()
        await expect(said(page)).to_have_text("Saved. These keys wait for a restart: gateway.host.")


# --- secrets and people -----------------------------------------------------------------------------------------------


async def test_a_secret_in_the_file_is_marked_and_moved(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        page = await opened(visit, "people")
        token = row(page, "people.ben.token")
        await expect(token).to_contain_text("readable in config.toml")
        await expect(page.get_by_role("link", name="people.ben.token")).to_be_visible()
        assert await faults(page) == []
        await row(page, "people.ben.name").get_by_role("textbox").fill("Benjamin")  # stays unsaved
        await token.get_by_role("button", name="Move to a file").click()
        await expect(token.locator(".kept")).to_have_text("set")
        await expect(token.get_by_role("button", name="Replace")).to_be_focused()
        await expect(page.get_by_role("link", name="people.ben.token")).to_have_count(0)
        await expect(row(page, "people.ben.name").get_by_role("textbox")).to_have_value("Benjamin")
        tree = tomllib.loads((tmp_path / "config.toml").read_text())
        assert (tmp_path / tree["people"]["ben"]["token"].removeprefix("file:")).read_text() == f"{BEN}\n"
        assert "name" not in tree["people"]["ben"]
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_key_is_set_and_replaced_and_never_shown(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        page = await opened(visit)
        await page.get_by_text("OpenAI", exact=True).click()
        key = row(page, "providers.openai.api_key")
        await key.get_by_label("API key").fill(f"{KEY}-1")
        await page.keyboard.press("Tab")
        await expect(page.get_by_text("One unsaved change")).to_be_visible()
        await page.get_by_text("Review").click()
        await save(page)
        await expect(said(page)).to_have_text("Saved, and in force from the next turn on.")
        await expect(page.locator("details", has_text="OpenAI").first).to_contain_text("key set")
        assert KEY not in await page.content()
        kept = "JSON.stringify([{ ...localStorage }, { ...sessionStorage }])"
        assert KEY not in await page.evaluate(kept)
        secret = tomllib.loads((tmp_path / "config.toml").read_text())["providers"]["openai"]["api_key"]
        assert (tmp_path / secret.removeprefix("file:")).read_text() == f"{KEY}-1\n"
        await page.reload()
        await page.get_by_text("OpenAI", exact=True).click()
        await expect(key.locator(".kept")).to_have_text("set")
        assert KEY not in await page.content()
        await key.get_by_role("button", name="Replace").click()
        await page.keyboard.type(f"{KEY}-2")
        await page.keyboard.press("Tab")
        await save(page)
        await expect(said(page)).to_have_text("Saved, and in force from the next turn on.")
        (stored,) = (tmp_path / "secrets").iterdir()
        assert stored.read_text() == f"{KEY}-2\n"
        await go(page, visit, "mcp")
        headers = row(page, "mcp.files.headers")
        await headers.get_by_role("button", name="Add an entry").click()
        await headers.get_by_label("Name").nth(1).fill("X-Other")
        await headers.get_by_label("Value").fill(f"{KEY}-3")
        await page.keyboard.press("Tab")
        await save(page)
        await expect(said(page)).to_have_text("Saved, and in force from the next turn on.")
        tree: Any = tomllib.loads((tmp_path / "config.toml").read_text())
        assert tree["mcp"]["files"]["headers"]["X-Key"] == KEY  # as it was
        assert tree["mcp"]["files"]["headers"]["X-Other"].startswith("file:secrets/")
        assert KEY not in await page.content()
        assert (visit.errors, visit.elsewhere) == ([], [])


async def test_a_person_is_added_with_a_new_token_and_removed(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        page = await opened(visit, "people")
        name = page.get_by_role("textbox", name="Name of the person")
        await name.fill("Ana Maria")
        await page.get_by_role("button", name="Add a person").click()
        await expect(page.get_by_text("A name has up to 32 lower-case letters")).to_be_visible()
        await name.fill("ana")
        await page.get_by_role("button", name="Add a person").click()
        await row(page, "people.ana.name").get_by_role("textbox").fill("Ana")
        await expect(row(page, "people.ana.token")).to_contain_text("people.ana.token is missing.")
        await row(page, "people.ana.token").get_by_role("button", name="Generate").click()
        token = await row(page, "people.ana.token").get_by_role("textbox").input_value()
        assert re.fullmatch(r"[\w-]{43}", token)
        await expect(page.get_by_role("button", name="Save", exact=True)).to_be_enabled()
        assert await faults(page) == []
        await save(page)
        await expect(said(page)).to_have_text("Saved, and in force from the next turn on.")
        assert (await ask(running, "/api/facts", token=token)).status == 200
        assert token not in (tmp_path / "config.toml").read_text()
        ana = page.get_by_role("region", name="ana", exact=True)
        await ana.get_by_role("button", name="Remove").first.click()
        await expect(page.get_by_text("One unsaved change")).to_be_visible()
        await save(page)
        await expect(ana).to_be_hidden()
        assert (await ask(running, "/api/facts", token=token)).status == 401
        assert tomllib.loads((tmp_path / "config.toml").read_text())["people"] == {"ben": {"token": BEN}}


async def test_a_channel_is_added_with_the_keys_of_its_kind(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running, size=NARROW) as visit:
        page = await opened(visit, "channels")
        await page.get_by_role("textbox", name="Name of the channel").fill("hook")
        await page.get_by_role("combobox", name="Kind").select_option("webhook")
        await page.get_by_role("button", name="Add a channel").click()
        await row(page, "channels.hook.url").get_by_role("textbox").fill("https://example.org/replies")
        await (
            row(page, "channels.hook.secret")
            .get_by_role("textbox")
            .or_(row(page, "channels.hook.secret").locator("input"))
            .first.fill(KEY)
        )
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("button", name="Save", exact=True)).to_be_enabled()
        await save(page)
        await expect(said(page)).to_have_text("Saved, and in force from the next turn on.")
        table = tomllib.loads((tmp_path / "config.toml").read_text())["channels"]["hook"]
        assert (table["kind"], table["url"]) == ("webhook", "https://example.org/replies")
        assert running.daemon.config.channels["hook"].kind == "webhook"


# --- instructions, this browser, other people -------------------------------------------------------------------------


async def test_the_owner_edits_the_instructions_and_overwrites_nobody_unseen(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        page = await opened(visit, "instructions")
        await expect(page.get_by_text("Nothing is written here yet.")).to_have_count(2)
        await expect(page.locator(".instruction:visible")).to_have_count(0)
        await page.get_by_role("button", name="Write SOUL.md").click()
        soul = page.get_by_role("textbox", name="SOUL.md")
        await soul.fill("Speak like a sailor.\n")
        await expect(soul).to_be_focused()
        part = page.locator(".settings-table", has=soul)
        await part.get_by_role("button", name="Save").click()
        await expect(part).to_contain_text("Saved, and used from the next turn on.")
        path = tmp_path / "workspace" / "SOUL.md"
        assert path.read_text() == "Speak like a sailor.\n"
        path.write_text("Speak like a poet.\n")
        await soul.fill("Speak like a pirate.\n")
        await part.get_by_role("button", name="Save").click()
        await expect(part.locator(".theirs")).to_have_text("Speak like a poet.")
        assert path.read_text() == "Speak like a poet.\n"
        await part.get_by_role("button", name="Save").click()
        await expect(part).to_contain_text("Saved, and used from the next turn on.")
        assert path.read_text() == "Speak like a pirate.\n"
        assert running.daemon.config.agent.model == "scripted:echo"


async def test_who_writes_while_the_keys_are_loaded_goes_on_writing(tmp_path: Path, browser: Browser) -> None:
    typed = asyncio.Event()

    async def late(route: Route) -> None:
        await typed.wait()
        await route.continue_()

    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        await visit.page.route("**/api/config", late)
        page = await opened(visit, "instructions")
        await page.get_by_role("button", name="Write SOUL.md").click()
        soul = page.get_by_role("textbox", name="SOUL.md")
        await soul.press_sequentially("Speak like ")
        async with page.expect_response("**/api/config"):
            typed.set()
        await expect(page.get_by_text("Loading…")).to_have_count(0)
        await page.evaluate("() => new Promise(requestAnimationFrame)")
        await page.keyboard.type("a sailor.")
        await expect(soul).to_have_value("Speak like a sailor.")


async def test_other_people_see_the_instructions_and_their_sign_ins_only(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=MINE) as running, visiting(browser, running) as visit:
        (tmp_path / "workspace" / "AGENTS.md").write_text("Be brief.\n")
        page = await opened(visit, "people", BEN)
        await expect(page.get_by_role("textbox", name="AGENTS.md")).to_have_value("Be brief.\n")
        await expect(page.get_by_role("textbox", name="AGENTS.md")).to_have_js_property("readOnly", True)
        await expect(page.get_by_text("The owner has written nothing here.")).to_have_count(1)
        await expect(page.locator("[data-group] > span:not(.mark)")).to_have_text(["Instructions", "Signed-in browsers"])
        assert await page.locator("[data-key]").count() == 0
        assert await faults(page) == []
        assert (
            await ask(running, "/api/notes/AGENTS.md", "PUT", token=BEN, data="x", headers={"If-None-Match": "*"})
        ).status == 422
        assert (visit.errors, visit.elsewhere) == ([], [])
