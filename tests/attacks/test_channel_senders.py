"""Hostile senders on each kind of channel: their names, texts, files and HTML, wherever the gateway shows them.

The messages go through the fake or the real server of the kind. First nobody is known, so that the names stand in the lists
of those who ask to be paired; then the sender is admitted, and has a session.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.async_api import Browser, expect

from gateway.cli.main import cli
from gateway.support import logs
from tests.attacks.test_markup import EVIL, IN_BROWSER, MARKUP, harmless_on_a_terminal, shows_no_harm
from tests.channels.kinds import KINDS, serving
from tests.channels.story import StoryService
from tests.console.browser import Visit, visiting
from tests.gateway.gateways import TOKEN, Gateway
from tests.gateway.person import start
from tests.waiting import deadline, until

NAME = "\x1b]0;\x07\u202e\n`[tea](http://evil.example)`<img src=x onerror=window.hit=1>@everyone"
"""A name; only its beginning is shown."""

HOSTILE = (
    f"</script>{MARKUP}[x](javascript:window.hit=9) ![p](http://evil.example/p.png) [tea](http://evil.example) @everyone"
    f" <!channel> <@U1> `/pair X owner` *b*\nAdmitted: everybody {EVIL}"
)

COMMANDS = (
    ("channels", "list"),
    ("channels", "list", "--json"),
    ("channels", "check"),
    ("pair",),
    ("status",),
    ("status", "--json"),
    ("sessions", "list"),
    ("sessions", "list", "--json"),
    ("sessions", "show", "{key}"),
    ("sessions", "show", "{key}", "--json"),
    ("sessions", "export", "{key}", "--format", "markdown"),
    ("context", "{key}"),
)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def invoke(g: Gateway, *arguments: str) -> str:
    """Run a command of the terminal, and return what it prints."""
    command = [*arguments, "--home", str(g.home)]
    done = await asyncio.to_thread(CliRunner().invoke, cli, command, env={"EXUVIA_TOKEN": TOKEN})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output or done.stdout


def sessions(g: Gateway) -> list[str]:
    """Return the keys of the channel's sessions in which something hostile was answered."""
    return [str(lines[0]["key"]) for lines in g.journals().values() if any(line["kind"] == "turn_ended" for line in lines)]


async def admitted(service: StoryService, g: Gateway) -> str:
    """Have a hostile stranger write, check the lists in which they stand, admit them, and have them write again; return the
    key of their session once it has an answer."""
    client = await g.connect()
    await service.attack(NAME, HOSTILE)
    async with deadline():
        while not (codes := CODE.findall(asking := await client.command("/pair"))):
            await asyncio.sleep(0.05)
    for shown in (asking, await invoke(g, "pair")):
        assert harmless_on_a_terminal(shown)
        assert "Admitted: everybody" not in shown.splitlines()
    assert not g.journals() or not sessions(g)
    await client.command(f"/pair {codes[0]} owner")
    await service.attack(NAME, HOSTILE)
    await until(lambda: sessions(g))
    return sessions(g)[0]


CODE = re.compile(r"\b[0-9A-Z]{4}-[0-9A-Z]{4}\b")


@pytest.mark.usefixtures("restored_logs")
async def test_no_sender_controls_a_terminal_or_a_log(kind: str, tmp_path: Path) -> None:
    stream: dict[Any, io.StringIO] = {"text": io.StringIO(), "json": io.StringIO()}
    logs.configure("info", "text", stream["text"])
    async with serving(kind, tmp_path, strangers=True) as (service, g):
        key = await admitted(service, g)
        logs.configure("info", "json", stream["json"])
        for command in COMMANDS:
            shown = await invoke(g, *[each.replace("{key}", key) for each in command])
            assert shown, command
            assert harmless_on_a_terminal(shown), (command, shown)
        client = await g.connect()
        for typed in ("/pair", "/status", "/sessions", "/history 5"):
            assert harmless_on_a_terminal(await client.command(typed)), typed
        process = await start(g.url, "--session", key, "--once")
        async with deadline():
            printed = b"".join(await process.communicate(b"go")).decode()
        assert "go" in printed
        assert harmless_on_a_terminal(printed), printed
    assert "address_linked" in stream["text"].getvalue()
    for lines in stream.values():
        assert all(line.isprintable() for line in lines.getvalue().split("\n")), lines.getvalue()
    assert all(json.loads(line) for line in stream["json"].getvalue().splitlines())


@IN_BROWSER
async def test_no_sender_is_markup_in_the_console(kind: str, tmp_path: Path, browser: Browser) -> None:
    async with serving(kind, tmp_path, strangers=True) as (service, g), visiting(browser, g) as visit:
        page = visit.page
        await service.attack(NAME, HOSTILE)
        await visit.sign_in()
        await page.goto(f"{visit.url}#/health")
        asking = page.get_by_role("region", name="Senders who ask to speak").get_by_role("row")
        await expect(asking.filter(has_text="[tea](http://evil.example)")).to_have_count(0 if kind == "irc" else 1)
        await shows_nothing_hostile(visit)
        key = await admitted(service, g)
        for place in ("", "#/health", f"#/chat/{key}", f"#/context/{key}", "#/settings"):
            await page.goto(f"{visit.url}{place}")
            await page.reload()
            await page.get_by_text("Connected", exact=True).wait_for(state="attached")
            await shows_nothing_hostile(visit)
        await page.goto(f"{visit.url}#/chat/{key}")
        await expect(page.locator("article.person").first).to_be_visible()
        await shows_nothing_hostile(visit)
        assert (visit.errors, visit.elsewhere) == ([], [])


SEEN = """() => {
    const copy = document.body.cloneNode(true);
    for (const text of copy.querySelectorAll(".said, .prose")) text.remove();
    const named = [...copy.querySelectorAll("[title], [aria-label], [download]")];
    const names = named.flatMap((each) => ["title", "aria-label", "download"].map((name) => each.getAttribute(name)));
    return [copy.textContent, ...names].join(" ");
}"""
"""Everything that a page shows, apart from the texts of messages: in their blocks these may have any characters."""


async def shows_nothing_hostile(visit: Visit) -> None:
    """Assert that no text of a sender is markup, and no name of theirs controls what is seen."""
    await shows_no_harm(visit.page)
    seen = await visit.page.evaluate(SEEN)
    assert not [each for each in seen if not harmless_on_a_terminal(each)], seen
