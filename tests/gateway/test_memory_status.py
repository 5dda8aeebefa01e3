"""The memory in `/status` and the log: what can be found, the embedding provider, and why vectors are missing."""

from __future__ import annotations

import asyncio
import io
import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from gateway.cli.memory import memory_commands
from gateway.cli.memory.memory_commands import SearchFailed
from gateway.cli.options import Invocation
from gateway.conversations.commands.memory_view import memory_in_short, memory_report
from gateway.support import logs
from gateway.support.home import Home
from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory_settings import MemoryKeys, SearchKeys
from plugins.memory.index.index_stats import IndexStats
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import Notes
from plugins.testing.servers.embedding_server import EmbeddingBehavior, EmbeddingServer
from plugins.testing.servers.faulty_server import Fault
from tests.gateway.gateways import Client, gateway
from tests.memory.without_fts5 import refuse_fts5
from tests.servers.embedding_vendors import OpenAIEmbeddingServer
from tests.waiting import deadline


def configured(server: EmbeddingServer) -> str:
    account = f'provider = "openai"\nbase_url = "{server.url}"\napi_key = "{server.KEY}"\n'
    return f'[agent]\nmodel = "scripted:echo"\n[memory]\nsources = ["notes"]\n[memory.embedding]\n{account}'


async def status(client: Client, wanted: str) -> str:
    """Return the answer of `/status` once it contains these words; the work happens in the background."""
    async with deadline():
        while wanted not in (told := await client.command("/status")):
            await asyncio.sleep(0.1)
    return told


async def test_status_reports_the_index_and_the_embedding_provider(tmp_path: Path) -> None:
    async with OpenAIEmbeddingServer().serving() as server, gateway(tmp_path, file=configured(server)) as running:
        (tmp_path / "workspace" / "MEMORY.md").write_text("# Tea\n\ngreen\n\n# Coffee\n\nblack\n")
        told = await status(
            await running.connect(),
            "- Memory: 1 note and 0 sessions in 2 chunks with vectors by openai:text-embedding-3-small",
        )
        assert "all is well" in told


async def test_without_full_text_search_the_notes_are_found_and_status_says_where_the_index_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_fts5(monkeypatch)
    async with gateway(tmp_path, settings={"memory.embedding.provider": "none"}) as running:
        (tmp_path / "workspace" / "MEMORY.md").write_text("# Tea\n\ngreen\n")
        client = await running.connect()
        assert "MEMORY.md#L3-L3" in await client.command("/memory green tea")
        told = await client.command("/status")
    why = "this Python's SQLite has no full-text search (FTS5)"
    assert f"The memory uses the backend local, since sqlite cannot be used: {why}." in told
    call = Invocation(Home(tmp_path), tmp_path / "config.toml", {}, io.StringIO())
    with pytest.raises(SearchFailed, match="The index is in the backend local"):
        memory_commands.show_status(call, datetime(2026, 11, 22, tzinfo=UTC))


async def test_without_keyword_search_nothing_is_reported_as_found_by_keywords(tmp_path: Path) -> None:
    keys = MemoryKeys(search=SearchKeys(keywords=False))
    notes = Notes(tmp_path)
    (tmp_path / "MEMORY.md").write_text("# Tea\n\ngreen\n")
    async with Memory(
        tmp_path / "memory.sqlite", [notes], keys=lambda: keys, providers={}, today=lambda: date(2026, 11, 22)
    ) as memory:
        await memory.refresh(30)
        assert memory_in_short(memory) == (
            "1 note and 0 sessions in 1 chunk, found by nothing: keyword search is off, and no vectors are made"
        )
        report = await memory_report(memory, notes, datetime(2026, 11, 22, tzinfo=UTC), EVERYTHING)
        assert report.how == "by nothing: keyword search is off, and no vectors are made"
    assert not any("found by their words" in line for line in described_index(keys))

    refusing = OpenAIEmbeddingServer(Fault(status=403, body=b"no"))
    text = "[memory.search]\nkeywords = false\n"
    async with refusing.serving() as server, gateway(tmp_path / "home", file=configured(server) + text) as running:
        (tmp_path / "home" / "workspace" / "MEMORY.md").write_text("# Tea\n\ngreen\n")
        told = await status(await running.connect(), "- Trouble: ")
        assert "Notes are not found, since keyword search is off: openai: The key of" in told
        assert "found by their words" not in told


def described_index(keys: MemoryKeys) -> list[str]:
    """Return the lines of `exuvia memory status`."""
    return memory_commands._status_lines(IndexStats(), None, 0, keys, None)


async def test_a_server_that_makes_no_vectors_is_a_problem_and_one_log_line_until_it_does(tmp_path: Path) -> None:
    logged = io.StringIO()
    logs.configure("info", "json", logged)
    refusing = OpenAIEmbeddingServer(Fault(status=403, body=b"no"))
    async with refusing.serving() as server, gateway(tmp_path, file=configured(server)) as running:
        (tmp_path / "workspace" / "MEMORY.md").write_text("# Tea\n\ngreen\n")
        client = await running.connect()
        told = await status(client, "- Trouble: ")
        assert "Notes are found by keywords only: openai: The key of memory.embedding.api_key was refused: no." in told
        assert server.KEY not in told
        await client.command("/memory what of tea?")
        server.now_says(EmbeddingBehavior())
        await client.command("/memory and of coffee?")
        await status(client, "all is well")
    entries = [json.loads(line) for line in logged.getvalue().splitlines()]
    events = [entry["event"] for entry in entries if entry["event"].startswith("embedding")]
    assert events == ["embedding_failed", "embedding_works_again"]
    assert server.KEY not in logged.getvalue()
