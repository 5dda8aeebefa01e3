"""The endpoints for whole conversations: trees of forks and exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.http.console import conversation_endpoints
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.gateway.test_people import ANA
from tests.waiting import until


async def get(running: Gateway, path: str, token: str = TOKEN, **query: str) -> tuple[int, bytes, dict[str, str]]:
    """Return the status, the body and the headers of a response."""
    headers = {"Authorization": f"Bearer {token}"}
    async with running.http.get(f"{running.url}/api/conversations/{path}", params=query, headers=headers) as response:
        return response.status, await response.read(), dict(response.headers)


async def test_the_tree_has_the_sessions_of_a_key_and_all_related_forks(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"people.ana.token": ANA}) as running:
        client = await running.connect()
        await client.chat("one")
        await client.chat("unrelated", session="other")
        ids = {events[0]["key"]: session for session, events in running.journals().items()}
        for id_, parent in (("f1", "main"), ("f2", "main-fork")):
            await client.say("fork", id=id_, session=parent)
            made = await client.until_type("forked", id=id_)
            ids[made["session"]] = made["session_id"]
        await client.command("/new")
        await client.say("rename", id="r", session="main-fork", title="The fork")
        await client.until_type("settings", id="r")
        for key in ("main", "main-fork", "main-fork-fork"):
            status, body, _ = await get(running, f"{key}/tree")
            nodes: list[dict[str, Any]] = json.loads(body)
            assert status == 200
            shown = [(node["session"], node["session_id"], node["parent"] and node["parent"]["session"]) for node in nodes]
            new = (
                next(node["session_id"] for node in nodes if node["session_id"] not in ids.values()) if key == "main" else ""
            )
            wanted = [
                ("main", ids["main"], None),
                ("main-fork", ids["main-fork"], "main"),
                ("main-fork-fork", ids["main-fork-fork"], "main-fork"),
                *([("main", new, None)] if new else []),
            ]
            assert shown == wanted
        assert {node["title"] for node in nodes} == {"", "The fork"}
        assert (await get(running, "nobody/tree"))[0] == 404
        assert (await get(running, "main/tree", ANA))[0] == 404


async def test_a_conversation_is_exported_whole_in_each_format(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(conversation_endpoints, "PIECE", 100)
    async with gateway(tmp_path, settings={"people.ana.token": ANA}) as running:
        client = await running.connect()
        await client.chat("before ``` the <new>")
        await client.command("/new")
        await client.chat("after it")
        await until(lambda: any(events[-1]["kind"] == "session_closed" for events in running.journals().values()))
        status, body, headers = await get(running, "main/export", format="jsonl")
        journals = [path.read_bytes() for path in sorted((tmp_path / "sessions").iterdir())]
        assert (status, headers["Content-Disposition"]) == (200, 'attachment; filename="main.jsonl"')
        assert body in (b"".join(journals), b"".join(journals[::-1]))  # two sessions may begin in the same second
        _, body, headers = await get(running, "main/export", format="json")
        assert headers["Content-Type"] == "application/json"
        exported = json.loads(body)
        said = [[entry["text"] for entry in each["entries"] if entry["who"] == "person"] for each in exported]
        assert said == [["before ``` the <new>", "/new"], ["after it"]]
        status, body, headers = await get(running, "main/export")
        assert headers["Content-Disposition"] == 'attachment; filename="main.md"'
        assert body.decode().count("# Session ") == 2
        assert (await get(running, "main/export", format="pdf"))[0] == 400
        assert (await get(running, "nobody/export"))[0] == 404
        assert (await get(running, "main/export", ANA))[0] == 404
    session = exported[1]["session"]
    for form in ("json", "markdown", "jsonl"):
        printed = CliRunner().invoke(cli, ["sessions", "export", session, "--format", form, "--home", str(tmp_path)])
        assert "after it" in printed.stdout
