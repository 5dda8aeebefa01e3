"""Read-only links to conversations: what they show, and to whom."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gateway.conversations.shares import ConversationShared, shown_events, shown_files
from sessions.events.codec import FIRST, encode
from sessions.events.events import CallRef, Recorded, ToolReturned
from sessions.events.messages import Attachment
from tests.gateway.gateways import TOKEN, Frame, Gateway, gateway
from tests.gateway.test_deletions import delete
from tests.gateway.test_people import ANA
from tests.pictures import png

SHARES = "/api/conversations/main/shares"

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


async def fetched(running: Gateway, path: str) -> tuple[int, bytes, Mapping[str, str]]:
    """Return the status, the body and the headers of a response to somebody without a token."""
    async with running.http.get(f"{running.url}{path}") as response:
        return response.status, await response.read(), response.headers


async def test_a_link_serves_the_files_of_what_it_shows_and_no_others(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"people.ana.token": ANA}) as running:
        client = await running.connect()

        async def send(id_: str, data: bytes, name: str, session: str = "main") -> Frame:
            sent = {"data": base64.b64encode(data).decode(), "name": name}
            await client.say("send", id=id_, session=session, text="look", attachments=[sent])
            event = await client.until_event("message_received")
            await client.until_event("turn_ended")
            return event

        shown_first = await send("1", png(3, 2), "a\u202epicture.png")
        page_of_html = await send("2", b"<script>alert(1)</script>", "page.html")
        path, named, live = await share(running), await share(running, files=False), await share(running, live=True)
        later = await send("3", png(5, 5), "later.png")
        other = await send("4", png(7, 7), "other.png", session="other")
        await client.say("sessions", id="l")
        listed = (await client.until_type("sessions"))["sessions"]
        ids = {row["session"]: row["session_id"] for row in listed}

        def file(link: str, event: Frame, session: str = "main", digest: str = "") -> str:
            return f"{link}/files/{ids[session]}/{event['seq']}/{digest or event['attachments'][0]['sha256']}"

        status, page = await request(running, "GET", path, token=None)
        (picture,) = page["events"][0]["attachments"]
        size = {"width": 3, "height": 2}
        assert picture.items() >= {"sha256": shown_first["attachments"][0]["sha256"], "media": "image/png", **size}.items()
        status, body, headers = await fetched(running, file(path, shown_first))
        assert (status, body, headers["Content-Type"]) == (200, png(3, 2), "image/png")
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
        assert (headers["Referrer-Policy"], headers["Content-Security-Policy"]) == ("no-referrer", "sandbox")
        status, body, headers = await fetched(running, file(path, page_of_html))
        assert (status, body) == (200, b"<script>alert(1)</script>")
        assert headers["Content-Disposition"].startswith("attachment;")
        assert (await fetched(running, file(live, later)))[0] == 200

        named_events = (await request(running, "GET", named, token=None))[1]["events"]
        assert ["sha256" in each for event in named_events for each in event.get("attachments", ())] == [False, False]
        digest = shown_first["attachments"][0]["sha256"]
        for refused in (
            file(path, later),  # after the link was made
            file(live, other, "other"),  # of another conversation
            file(path, page_of_html, digest=digest),  # of another event
        ):
            assert (await fetched(running, refused))[0] == 404, refused
        assert (await fetched(running, file(named, shown_first)))[0] == 404
        (share_id, *_) = [each["id"] for each in (await request(running, "GET", SHARES))[1]["shares"]]
        assert (await request(running, "DELETE", f"{SHARES}/{share_id}"))[0] == 200
        refused_link = await fetched(running, file(path, shown_first))
        assert refused_link[:2] == (await fetched(running, file("/api/shared/never-made", shown_first)))[:2]
        assert refused_link[0] in (404, 429)


async def test_files_of_tools_are_served_with_the_tools_alone(tmp_path: Path) -> None:
    attachment = Attachment(sha256="a" * 64, media="image/png", bytes=9, name="plot.png", width=2, height=2)
    returned = ToolReturned(call=CallRef(of=3, index=0), outcome="returned", output="done", attachments=(attachment,))
    line, _ = encode(Recorded(seq=4, at="2026-11-21T12:00:00.000Z", turn=1, event=returned), FIRST)
    made = ConversationShared(share="s", person="owner", key="main", sessions=(), digest="d", tools=True, files=True)
    assert shown_files([line], made) == [attachment]
    assert shown_events([line], made)[0]["attachments"][0]["sha256"] == "a" * 64
    for less in ({"tools": False}, {"files": False}):
        assert shown_files([line], msgspec.structs.replace(made, **less)) == []


async def test_whoever_guesses_links_has_to_wait(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        await (await running.connect()).chat("one")
        path = await share(running)
        answers = [(await request(running, "GET", f"/api/shared/guess{number}", token=None))[0] for number in range(8)]
        assert (answers[:5], answers[-1]) == ([404] * 5, 429)
        assert (await request(running, "GET", path, token=None))[0] == 429
