"""The file tools in whole conversations, through the gateway and the log, as the configuration allows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.support.errors import StartRefused
from gateway.support.home import Home
from tests.gateway.gateways import Client, Gateway, gateway
from tests.waiting import until

MEMORY = ["memory_search", "memory_get"]


def asks(tool: str, **arguments: object) -> dict[str, Any]:
    return {"text": "", "calls": [{"tool": tool, "arguments": arguments}]}


def results(client: Client) -> list[tuple[str, str]]:
    return [(event["outcome"], event["output"]) for _, event in client.events() if event["kind"] == "tool_returned"]


def offered(client: Client) -> list[str]:
    last = [event for _, event in client.events() if event["kind"] == "instructions_set"][-1]
    return [tool["name"] for tool in last["tools"]]


async def in_force(running: Gateway, access: str) -> None:
    await until(lambda: running.daemon.config.agent.workspace_access == access)


async def test_a_model_writes_edits_and_reads_its_notes_but_not_its_orders(tmp_path: Path) -> None:
    script = [
        asks("write", path="memory/2026-11-21.md", content="The meeting is on Monday.\n", mode="append"),
        asks("edit", path="memory/2026-11-21.md", old="Monday", new="Tuesday"),
        asks("read", path="memory/2026-11-21.md"),
        asks("read", path="SOUL.md"),
        asks("write", path="SOUL.md", content="You obey the model.\n", mode="replace"),
        {"text": "Done."},
    ]
    async with gateway(tmp_path, script=script) as running:
        workspace = tmp_path / "workspace"
        (workspace / "SOUL.md").write_text("You are kind.\n")
        client = await running.connect()
        await client.send("remember it")
        await client.until_event("turn_ended")

        assert results(client) == [
            ("returned", "Created memory/2026-11-21.md: 26 bytes, 1 line."),
            ("returned", "Edited memory/2026-11-21.md in 1 place.\n    1  The meeting is on Tuesday."),
            ("returned", "The meeting is on Tuesday.\n"),
            ("returned", "You are kind.\n"),
            (
                "refused",
                "This file holds the operator's instructions; only the operator may change it (agent.protected_files).",
            ),
        ]
        assert (workspace / "SOUL.md").read_text() == "You are kind.\n"
        assert offered(client) == ["read", "write", "edit", *MEMORY, "write_memory", "fetch", "schedule"]


async def test_what_the_configuration_takes_away_is_neither_offered_nor_run_from_the_next_turn_on(tmp_path: Path) -> None:
    tries = [asks("write", path="a.md", content="x"), {"text": "So."}]
    tries += [asks("write", path="b.md", content="x"), {"text": "So."}] * 2
    told = tmp_path / "story.jsonl"
    told.write_text("".join(json.dumps(line) + "\n" for line in tries))

    def configured(access: str) -> str:
        agent = f'[agent]\nmodel = "scripted:script"\nworkspace_access = "{access}"\n'
        return f'{agent}[providers.scripted]\nscript = "{told}"\n'

    async with gateway(tmp_path, file=configured("rw")) as running:
        client = await running.connect()
        seen = []
        for access in ("rw", "ro", "none"):
            (tmp_path / "config.toml").write_text(configured(access))
            await in_force(running, access)
            await client.send(access)
            await client.until_event("turn_ended")
            seen.append(offered(client))

        assert seen == [
            ["read", "write", "edit", *MEMORY, "write_memory", "fetch", "schedule"],
            ["read", *MEMORY, "fetch", "schedule"],
            ["fetch", "schedule"],
        ]
        assert results(client) == [
            ("returned", "Created a.md: 1 byte, 1 line."),
            ("refused", "There is no tool 'write'; available: read, memory_search, memory_get, fetch, schedule."),
            ("refused", "There is no tool 'write'; available: fetch, schedule."),
        ]
    assert (tmp_path / "workspace" / "a.md").exists()
    assert not (tmp_path / "workspace" / "b.md").exists()


@pytest.mark.parametrize("named", [".", "..", "sessions", "attachments/mine", "link"])
def test_a_workspace_in_which_the_gateways_own_files_lie_is_refused(named: str, tmp_path: Path) -> None:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    (root / "link").symlink_to(root, target_is_directory=True)
    with pytest.raises(StartRefused, match=r"^agent\.workspace is .*Choose a separate folder\.$"):
        Home(root).make(named)


def test_a_workspace_elsewhere_or_below_the_home_is_made(tmp_path: Path) -> None:
    for named in ("workspace", "notes/mine", str(tmp_path / "elsewhere")):
        Home(tmp_path / "home").make(named)
        assert Home(tmp_path / "home").workspace(named).is_dir()
