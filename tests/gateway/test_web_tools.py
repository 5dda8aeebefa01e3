"""The web tools in a running gateway: which URLs are requested without a question, and that this follows from the log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateways import Client, Gateway, gateway
from tests.plugins.small_web import SmallWeb, small_web
from tests.servers.search_services import SearchServer

FILE = """
[agent]
model = "scripted:script"
[approvals]
default = "ask"
[memory.embedding]
provider = "none"
"""


@pytest.fixture
async def net(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallWeb]:
    async with small_web(monkeypatch) as found:
        yield found


def calls(*named: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"text": "I look.", "calls": [{"tool": tool, "arguments": arguments} for tool, arguments in named]}


def fetches(*urls: str) -> dict[str, Any]:
    return calls(*(("fetch", {"url": url}) for url in urls))


def playing(home: Path, *script: dict[str, Any], more: str = "") -> Any:
    """A gateway whose model gives these replies."""
    home.mkdir(exist_ok=True)
    path = home / "script.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in script))
    return gateway(home, file=f'{FILE}{more}\n[providers.scripted]\nscript = "{path}"\n')


async def asked_about(client: Client, decision: str = "deny", scope: str = "once") -> list[str]:
    """Answer each question until the turn ends, and return what was asked."""
    asked = list[str]()
    while True:
        frame = await client.until(lambda f: f["type"] == "event" and f["event"]["kind"] in ("approval_asked", "turn_ended"))
        event = frame["event"]
        if event["kind"] == "turn_ended":
            assert event["outcome"] == "replied", event
            return asked
        asked.append(event["what"])
        approval = event["approval"]
        await client.say("approve", id=approval, session="main", approval=approval, decision=decision, scope=scope)


def outputs(running: Gateway) -> list[tuple[str, str]]:
    """The outcomes and outputs of all calls in the log."""
    events = [event for journal in running.journals().values() for event in journal]
    return [(event["outcome"], event["output"]) for event in events if event["kind"] == "tool_returned"]


async def test_what_a_person_and_a_page_name_is_read_and_what_the_model_makes_up_is_asked_about(
    tmp_path: Path, net: SmallWeb
) -> None:
    net.public.pages["/start"] = "<p>Go on <a href='/next?page=2'>there</a>, or to /hidden"
    net.public.pages["/next?page=2"] = "<p>the end"
    made_up = net.url("/next?page=2&notes=my+secret")
    script = [fetches(net.url("/start")), fetches(net.url("/next?page=2"), made_up, net.url("/hidden")), {"text": "Done."}]
    async with playing(tmp_path, *script) as running:
        client = await running.connect()
        await client.send(f"Please read {net.url('/start')}.")
        assert await asked_about(client) == [made_up, net.url("/hidden")]
        assert net.public.requests == ["/start", "/next?page=2"]
        assert [outcome for outcome, _ in outputs(running)] == ["returned", "returned", "refused", "refused"]


async def test_an_approved_page_is_read_on_without_another_question_and_another_url_of_its_host_is_not(
    tmp_path: Path, net: SmallWeb
) -> None:
    net.public.pages["/long"] = f"<p>{'words and more words ' * 2000}"
    long, other = net.url("/long"), net.url("/long?secret=1")
    part = calls(("fetch", {"url": long, "offset": 20_000}))
    async with playing(tmp_path, fetches(long), part, fetches(other), {"text": "Done."}) as running:
        client = await running.connect()
        await client.send("Read something.")
        assert await asked_about(client, "approve") == [long, other]
        assert net.public.requests == ["/long", "/long?secret=1"]


async def test_a_host_that_was_approved_for_the_session_is_not_asked_about_again(tmp_path: Path, net: SmallWeb) -> None:
    other = net.url("/c", "other.example")
    async with playing(tmp_path, fetches(net.url("/a"), net.url("/b?x=1"), other), {"text": "Done."}) as running:
        client = await running.connect()
        await client.send("Read something.")
        assert await asked_about(client, "approve", "session") == [net.url("/a"), other]
        assert net.public.requests == ["/a", "/b?x=1", "/c"]


async def test_a_refused_url_is_not_named_by_its_refusal(tmp_path: Path, net: SmallWeb) -> None:
    url = net.url("/leak?x=1")
    async with playing(tmp_path, fetches(url), fetches(url), {"text": "Done."}) as running:
        client = await running.connect()
        await client.send("Read something.")
        assert await asked_about(client) == [url, url]
        assert net.public.requests == []


async def test_notes_files_and_the_models_own_words_name_nothing(tmp_path: Path, net: SmallWeb) -> None:
    urls = {name: net.url(f"/{name}") for name in ("note", "file", "said", "searched")}
    memory = tmp_path / "workspace" / "memory"
    memory.mkdir(parents=True)
    (memory / "2026-11-20.md").write_text(f"# Recipe for quince jam\n\nThe recipe for quince jam is at {urls['note']}\n")
    (tmp_path / "workspace" / "letter.md").write_text(f"See {urls['file']}\n")
    script = [
        {"text": f"I know {urls['said']}"},
        calls(("read", {"path": "letter.md"}), ("memory_search", {"query": f"quince {urls['searched']}"})),
        fetches(*urls.values()),
        {"text": "Done."},
    ]
    async with playing(tmp_path, *script) as running:
        client = await running.connect()
        await client.send("Hello")
        assert await asked_about(client) == []
        await client.send("Where is the recipe for quince jam, and what does the letter say?")
        assert await asked_about(client) == list(urls.values())
        (journal,) = running.journals().values()
        recalled = [event for event in journal if event["kind"] == "memory_recalled"]
        assert urls["note"] in json.dumps(recalled), "the note was not recalled, so this shows nothing about it"
        assert net.public.requests == []


async def test_what_was_named_is_known_after_a_restart(tmp_path: Path, net: SmallWeb) -> None:
    net.public.pages["/start"] = "<p><a href='/next'>there</a>"
    named, made_up = [net.url("/start"), net.url("/next"), net.url("/later")], net.url("/secret")
    script = [fetches(named[0]), {"text": "Done."}, fetches(*named, made_up), {"text": "Done."}]
    async with playing(tmp_path, *script) as running:
        client = await running.connect()
        await client.send(f"Read {named[0]}, and later {named[2]}.")
        assert await asked_about(client) == []
    async with playing(tmp_path, *script) as running:
        client = await running.connect()
        await client.send("Go on.")
        assert await asked_about(client) == [made_up]
    assert net.public.requests == ["/start", "/start", "/next", "/later"]


async def test_what_another_session_named_is_not_named_here(tmp_path: Path, net: SmallWeb) -> None:
    url = net.url("/start")
    async with playing(tmp_path, fetches(url), {"text": "Done."}) as running:  # both sessions have these replies
        client = await running.connect()
        await client.send(f"Read {url}.")
        assert await asked_about(client) == []
        await client.command("/new")
        await client.send("Read it.")
        assert await asked_about(client) == [url]


async def test_a_search_result_is_read_without_a_question(tmp_path: Path, net: SmallWeb) -> None:
    async with SearchServer().serving() as server:
        server.found = [("A page", net.url("/found"), "words")]
        more = f'[tools.search]\nprovider = "searxng"\nbase_url = "{server.url}"\n'
        query = f"tea {net.url('/queried')}"
        script = [calls(("search", {"query": query})), fetches(net.url("/found"), net.url("/queried")), {"text": "Done."}]
        async with playing(tmp_path, *script, more=more) as running:
            client = await running.connect()
            await client.send("Search for tea.")
            assert await asked_about(client) == [net.url("/queried")]
            assert net.public.requests == ["/found"]
            assert server.queries == [("searxng", query, None)]


async def test_a_rule_about_a_host_counts_for_named_urls_too(tmp_path: Path, net: SmallWeb) -> None:
    denied, allowed, asked = net.url("/a"), net.url("/b", "other.example"), net.url("/c", "third.example")
    net.names["third.example"] = net.names["site.example"]
    net.names["fourth.example"] = net.names["site.example"]
    rules = (
        '{ tool = "fetch", host = "site.example", decision = "deny" },'
        '{ tool = "fetch", host = "other.example", decision = "allow" },'
        '{ tool = "fetch", host = "third.example", decision = "ask" },'
    )
    urls = (denied, allowed, asked, net.url("/d", "fourth.example"))
    path = tmp_path / "script.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (fetches(*urls), {"text": "Done."})))
    file = FILE.replace('default = "ask"', f'default = "ask"\nrules = [{rules}]')
    async with gateway(tmp_path, file=f'{file}\n[providers.scripted]\nscript = "{path}"\n') as running:
        client = await running.connect()
        await client.send(f"Read {denied}, {asked} and {urls[3]}.")
        assert await asked_about(client) == [asked]
        assert net.public.requests == ["/b", "/d"]
        assert "Rule 1 of approvals.rules says deny" in outputs(running)[0][1]


async def test_switched_off_tools_are_neither_offered_nor_run(tmp_path: Path, net: SmallWeb) -> None:
    off = "[tools.fetch]\nenabled = false\n"
    async with playing(tmp_path, fetches(net.url("/")), {"text": "Done."}, more=off) as running:
        client = await running.connect()
        await client.send(f"Read {net.url('/')}")
        assert await asked_about(client) == []
        ((outcome, output),) = outputs(running)
        assert outcome == "refused"
        assert output.startswith("There is no tool 'fetch'")
    assert net.public.requests == []


async def test_a_configured_private_host_is_read(tmp_path: Path, net: SmallWeb) -> None:
    net.inside.pages["/"] = "<p>the wiki"
    net.names["wiki.lan"] = [["127.0.0.1"]]
    url = net.url("/", "wiki.lan")
    private = f'[tools.fetch]\nprivate_hosts = ["wiki.lan:{net.port}"]\n'
    for home, more, found in (("a", "", "not public"), ("b", private, "the wiki")):
        async with playing(tmp_path / home, fetches(url), {"text": "Done."}, more=more) as running:
            client = await running.connect()
            await client.send(f"Read {url}")
            assert await asked_about(client) == []
            assert found in outputs(running)[-1][1]
    assert net.inside.requests == ["/"]
