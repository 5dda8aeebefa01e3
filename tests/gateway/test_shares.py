"""Read-only links to conversations: what they show, and to whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.gateway.gateways import TOKEN, Frame, Gateway, gateway
from tests.gateway.test_deletions import delete
from tests.gateway.test_people import ANA

CALL = {"tool": "write", "arguments": {"path": "a.txt", "content": "of the tool"}}
SCRIPT: list[Frame] = [{"text": "I write.", "calls": [CALL]}, {"text": "done"}]


async def request(running: Gateway, method: str, path: str, token: str | None = TOKEN, **wish: Any) -> tuple[int, Frame]:
    """Return the status and the JSON of a response."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = json.dumps(wish) if wish else None
    async with running.http.request(method, f"{running.url}{path}", data=body, headers=headers) as response:
        return response.status, json.loads(await response.read())


async def share(running: Gateway, key: str = "main", **wish: Any) -> str:
    """Make a link, and return the path of what it shows."""
    status, made = await request(running, "POST", f"/api/conversations/{key}/shares", **wish)
    assert status == 201, made
    return f"/api{made['url']}"


async def shown(running: Gateway, path: str) -> list[tuple[str, str]]:
    """Return the kinds and texts that everybody with a link is shown, over all pages."""
    found, query = [], ""
    while True:
        status, page = await request(running, "GET", path + query, token=None)
        assert status == 200, page
        found += [(event["kind"], event.get("text", event.get("output", ""))) for event in page["events"]]
        if "next" not in page:
            return [each for each in found if each[0] != "turn_ended"]
        query = f"?session={page['next']['session']}&after={page['next']['after']}"


async def test_a_link_shows_messages_and_answers_up_to_the_moment_and_nothing_else(tmp_path: Path) -> None:
    async with gateway(tmp_path, script=SCRIPT) as running:
        client = await running.connect()
        (tmp_path / "workspace" / "MEMORY.md").write_text("the note's secret")
        await client.say("rename", id="r", session="main", title="")
        await client.send("one")
        await client.until_event("turn_ended")
        await client.command("/status")
        await client.say("rename", id="r", session="main", title="Numbers")
        path, tools, live = await share(running), await share(running, tools=True), await share(running, live=True)
        await client.send("two")
        await client.until_event("turn_ended")
        await client.command("/new")
        await client.send("three")
        await client.until_event("turn_ended")
        first = [("message_received", "one"), ("model_replied", "I write."), ("model_replied", "done")]
        assert await shown(running, path) == first
        outputs = await shown(running, tools)
        assert [kind for kind, _ in outputs] == ["message_received", "model_replied", "tool_returned", "model_replied"]
        assert [text for kind, text in await shown(running, live) if kind == "message_received"] == ["one", "two", "three"]
        page = (await request(running, "GET", path, token=None))[1]
        assert (page["title"], page["live"]) == ("Numbers", False)
        text = json.dumps(page)
        assert "secret" not in text
        assert "owner" not in text
        assert "of the tool" not in text
        assert "of the tool" in json.dumps((await request(running, "GET", tools, token=None))[1])


async def test_a_link_ends_when_it_is_revoked_and_is_then_as_if_it_had_never_been(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"people.ana.token": ANA}) as running:
        client = await running.connect()
        await client.chat("one")
        path, kept = await share(running), await share(running, expires_days=1, live=True)
        status, listed = await request(running, "GET", "/api/conversations/main/shares")
        assert (status, [each["live"] for each in listed["shares"]]) == (200, [False, True])
        assert path.rpartition("/")[2] not in json.dumps(listed) + (tmp_path / "shares.jsonl").read_text()
        id_ = listed["shares"][0]["id"]
        for person, answered in ((ANA, 404), (TOKEN, 200), (TOKEN, 404)):
            status, _ = await request(running, "DELETE", f"/api/conversations/main/shares/{id_}", person)
            assert status == answered
        revoked = await request(running, "GET", path, token=None)
        assert revoked == await request(running, "GET", "/api/shared/never-made", token=None)
        assert revoked[0] == 404
        assert (await request(running, "GET", "/api/conversations/main/shares", ANA))[1] == {"shares": []}
        assert (await request(running, "POST", "/api/conversations/main/shares", ANA))[0] == 404
        assert (await request(running, "POST", "/api/conversations/main/shares", expires_days=-1))[0] == 400
    async with gateway(tmp_path) as running:
        assert len(await shown(running, kept)) == 2
        await delete(await running.connect())
        await (await running.connect()).chat("another conversation under the same key")
        assert (await request(running, "GET", kept, token=None))[0] == 404


async def test_whoever_guesses_links_has_to_wait(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        await (await running.connect()).chat("one")
        path = await share(running)
        answers = [(await request(running, "GET", f"/api/shared/guess{number}", token=None))[0] for number in range(8)]
        assert (answers[:5], answers[-1]) == ([404] * 5, 429)
        assert (await request(running, "GET", path, token=None))[0] == 429
