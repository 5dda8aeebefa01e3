"""The page of the skills: what there is, shown before it is admitted, and admitted only as it was shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.console.accessible import faults
from tests.console.asked import ask
from tests.console.browser import NARROW, visiting
from tests.gateway.gateways import gateway

BOB = "a-token-for-bob-that-is-long-enough"
MAIN = Path("workspace/skills")
WORK = Path("agents/work/workspace/skills")

pytestmark = pytest.mark.asyncio(loop_scope="session")


def write_skill(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    file = folder / "SKILL.md"
    file.write_text(f"---\nname: {folder.name}\ndescription: About {folder.name}.\n---\n\n{text}\n")
    return file


async def test_a_skill_is_admitted_as_it_was_shown_and_revoked(tmp_path: Path, browser: Browser) -> None:
    notes = write_skill(tmp_path / MAIN / "notes", "Write <b>notes</b>.\u202e")
    write_skill(tmp_path / MAIN / "notés", "An imitation.")
    write_skill(tmp_path / WORK / "invoices", "Number them.")
    (tmp_path / WORK.parent / "MEMORY.md").write_text("# Ledger\n")
    file = '[agents.work]\nmodel = "scripted:echo"\n'
    async with gateway(tmp_path, file=file) as running, visiting(browser, running, size=NARROW, dark=True) as visit:
        await visit.sign_in()
        page = visit.page
        await page.goto(f"{visit.url}#/skills")
        status, skill = page.locator(".skills-page > .status"), page.locator('.skill[data-name="notes"]')
        await expect(status).to_have_text("0 of 2 skills are admitted")
        await expect(page.locator(".standing")).to_have_text(["not admitted yet", "not usable"])
        await skill.locator("summary").press("Enter")
        await expect(skill.locator("pre")).to_contain_text("Write <b>notes</b>.\\u{202e}")
        assert await faults(page) == []
        notes.write_text(notes.read_text() + "And more.\n")  # after it was shown
        await skill.get_by_role("button", name="Admit exactly this").click()
        await expect(status).to_contain_text("have another digest")
        await expect(skill.locator(".standing")).to_have_text("not admitted yet")
        await skill.locator("summary").click()
        await expect(skill.locator("pre")).to_contain_text("And more.")
        await skill.get_by_role("button", name="Admit exactly this").press("Enter")
        await expect(status).to_have_text("The skill notes is admitted. Models see it from the next turn on.")
        await expect(skill).to_be_focused()
        await expect(skill).to_contain_text("About notes.")
        notes.write_text(notes.read_text() + "Changed.\n")
        await page.reload()
        await expect(skill.locator(".standing")).to_have_text("changed since it was admitted, not used")
        await skill.get_by_text("What changed").click()
        await expect(skill.locator("pre")).to_contain_text("+Changed.")
        await skill.get_by_role("button", name="Admit exactly this").click()
        await expect(skill.locator(".standing")).to_have_text("admitted")
        await skill.locator("summary").click()
        await skill.get_by_role("button", name="Revoke…").click()
        await skill.get_by_role("button", name="Revoke", exact=True).click()
        await expect(status).to_have_text("The skill notes is not admitted any more.")
        await page.get_by_label("Agent").select_option("work")
        await expect(page.locator(".skill h2")).to_contain_text(["invoices"])
        await page.goto(f"{visit.url}#/memory/MEMORY.md/1/1/ledgers/work")
        await page.reload()  # also before the gateway has named the agents, the note is that agent's
        await expect(page.locator(".cited mark")).to_have_text("Ledger")
        assert [each for each in visit.errors if "422" not in each] == []  # the refused one
        assert visit.elsewhere == []


async def test_only_the_owner_sees_what_is_not_admitted_and_admits(tmp_path: Path) -> None:
    write_skill(tmp_path / MAIN / "notes", "Write notes.")
    write_skill(tmp_path / WORK / "invoices", "Number them.")
    settings = {"people.bob.token": BOB}
    async with gateway(tmp_path, file='[agents.work]\nmodel = "scripted:echo"\n', settings=settings) as running:
        shown = (await ask(running, "/api/skills/notes")).json
        path, body = "/api/skills/notes/admit", f'{{"digest": "{shown["digest"]}"}}'.encode()
        assert (await ask(running, "/api/skills", token=BOB)).json == {"skills": [], "admits": False}
        assert (await ask(running, "/api/skills/notes", token=BOB)).status == 422
        assert (await ask(running, path, "POST", data=body, token=BOB)).status == 422
        for wrong in (b"", b'{"digest": 1}', b"[" * 4000, b'{"digest": "' + b"0" * 5000 + b'"}'):
            assert (await ask(running, path, "POST", data=wrong)).status in (400, 413)
        assert (await ask(running, path, "POST", data=b'{"digest": ""}')).status == 422
        admitted = (await ask(running, path, "POST", data=body)).json
        assert [(each["name"], each["state"]) for each in admitted["skills"]] == [("notes", "admitted")]
        bobs = (await ask(running, "/api/skills", token=BOB)).json
        assert (bobs["admits"], [each["name"] for each in bobs["skills"]]) == (False, ["notes"])
        assert (await ask(running, "/api/skills/notes/revoke", "POST", token=BOB)).status == 422
        works = (await ask(running, "/api/skills", params={"agent": "work"})).json
        assert [(each["name"], each["state"]) for each in works["skills"]] == [("invoices", "new")]
        assert (await ask(running, "/api/skills", params={"agent": "nobody"})).status == 404
        assert (await ask(running, "/api/skills/nothing")).status == 422
