"""Services for plugins: a model, embeddings, a log of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.plugin_runtime import service_factory
from gateway.plugin_runtime.service_factory import DurablePluginLog
from plugins.api.plugin_services import LogEntry, LogUnusable
from plugins.testing.contexts import ManualClock
from sessions.events.errors import StorageFailed
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from tests.gateway.gateways import gateway, syncs_wait
from tests.shelf import Shelf
from tests.stored import stored
from tests.waiting import until

SCRIBE = """
from exuvia import ProviderError, ToolDefinition, ToolFailed, ToolOutput, hookimpl

class Scribe:
    definition = ToolDefinition(name="scribe", description="Asks, embeds, writes down.", parameters={"type": "object"})
    repeatable = False

    def __init__(self, context):
        self.services = context.services

    async def run(self, arguments, call):
        answered = await self.services.ask(system="Be brief.", text="What is a crab?", limit=50)
        vectors = []
        for count in (257, 1):
            try:
                vectors.append(len(await self.services.embed(["a crab"] * count, "note")))
            except ProviderError as error:
                vectors.append(str(error))
        seq = await self.services.log.append({"said": answered.text, "vectors": vectors})
        return ToolOutput(text=f"{seq} {[each.entry for each in await self.services.log.entries()]}")

@hookimpl
def register_tools():
    return [Scribe]
"""

STORY: list[dict[str, Any]] = [
    {"text": "A shelled animal.", "purpose": "plugin:scribe"},
    {"text": "", "calls": [{"tool": "scribe", "arguments": {}}]},
    {"text": "Done."},
]


async def test_a_tool_uses_a_model_embeddings_and_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(tmp_path / "shelf", monkeypatch)
    shelf.install("scribing", "scribe", SCRIBE)
    home = tmp_path / "home"
    settings = {"plugins.allow": ["scribe"], "memory.embedding.provider": "none"}
    told = {
        "said": "A shelled animal.",
        "vectors": [
            "At most 256 texts can be embedded at once, not 257.",
            "No embedding provider is available; set memory.embedding.provider.",
        ],
    }

    async with gateway(home, script=STORY, settings=settings) as running:
        client = await running.connect()
        await client.send("Write it down.")
        assert (await client.until_event("tool_returned"))["output"] == f"1 {[told]}"
        await client.until_event("turn_ended")
        usage = await client.command("/usage")

    assert "Outside of sessions, `plugin:scribe` has used " in usage
    assert "out with `scripted:script` since the gateway started." in usage
    path = home / "plugins" / "scribe" / "log.jsonl"
    assert json.loads(path.read_text())["entry"] == told
    assert stored(path).verify().events == 1

    async with gateway(home, script=STORY, settings=settings) as running:
        client = await running.connect()
        await client.command("/new")
        await client.send("Write it down.")
        assert (await client.until_event("tool_returned"))["output"] == f"2 {[told, told]}"


# --- the log ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[DurablePluginLog]:
    """Open the log in a folder."""
    async with Committer() as committer:
        log = DurablePluginLog(
            Journals(folder / "plugin", folder / "quarantine", committer, essential=False), ManualClock().now
        )
        yield log
        await log.close()


async def test_entries_are_read_back_numbered_and_in_order_also_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        assert await asyncio.gather(*(log.append({"n": number}) for number in range(300))) == list(range(1, 301))
        assert await log.entries(298) == [
            LogEntry(seq=seq, at="2026-11-21T12:00:00.000Z", entry={"n": seq - 1}) for seq in (299, 300)
        ]
        assert [each.seq for each in await log.entries(limit=2)] == [1, 2]
    async with opened(tmp_path) as log:
        assert await log.append(None) == 301
        assert [each.entry for each in await log.entries(299)] == [{"n": 299}, None]
        assert await log.entries(301) == []


async def test_an_unused_log_is_not_created(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("entry", [object(), {1j: 2}, "\ud800", "x" * service_factory.ENTRY])
async def test_an_invalid_entry_is_refused_and_changes_nothing(entry: object, tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        with pytest.raises(LogUnusable):
            await log.append(entry)
        assert await log.append("well") == 1


async def test_waiting_for_an_entry_raises_if_the_storage_fails(tmp_path: Path) -> None:
    async with Committer() as committer:
        log = DurablePluginLog(
            Journals(tmp_path / "plugin", tmp_path / "quarantine", committer, essential=False), ManualClock().now
        )
        await log.append("one")
        with syncs_wait():
            waiting = asyncio.create_task(log.append("two"))
            await until(lambda: log._writer is not None and log._writer.head == 2)
            committer.fail(StorageFailed("the disk is gone", fatal=True))
            for _ in range(3):
                await asyncio.sleep(0)
            assert waiting.done()
        with pytest.raises(LogUnusable, match="the disk is gone"):
            await waiting


async def test_the_size_of_a_log_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_factory, "FULL", 1000)
    async with opened(tmp_path) as log:
        for _ in range(5):
            await log.append("x" * 100)
        with pytest.raises(LogUnusable, match="is full"):
            await log.append("x" * 200)
        assert len(await log.entries()) == 5


async def test_a_damaged_log_is_left_unchanged_and_reported(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await log.append("one")
        await log.append("two")
    path = tmp_path / "plugin" / "log.jsonl"
    harmed = path.read_bytes().replace(b"one", b"won")
    path.write_bytes(harmed)
    async with opened(tmp_path) as log:
        for use in (log.entries, lambda: log.append("three")):
            with pytest.raises(LogUnusable, match="cannot be used"):
                await use()
    assert path.read_bytes() == harmed
