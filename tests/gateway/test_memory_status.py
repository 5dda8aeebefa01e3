"""What `/status` and the log say of the memory: what can be found, who makes the vectors, and why none come."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

from gateway import logs
from plugins.conformance.embedding_server import EmbeddingServer, Embeds
from plugins.conformance.faults import Fault
from tests.gateway.gateways import Client, gateway
from tests.servers.embedding_vendors import OpenAIEmbeddingServer


def configured(server: EmbeddingServer) -> str:
    account = f'provider = "openai"\nbase_url = "{server.url}"\napi_key = "{server.KEY}"\n'
    return f'[agent]\nmodel = "scripted:echo"\n[memory]\nsources = ["notes"]\n[memory.embedding]\n{account}'


async def status(client: Client, wanted: str) -> str:
    """What `/status` says once it says this; everything happens behind it."""
    async with asyncio.timeout(30):
        while wanted not in (told := await client.command("/status")):
            await asyncio.sleep(0.1)
    return told


async def test_status_says_what_can_be_found_and_who_makes_the_vectors(tmp_path: Path) -> None:
    async with OpenAIEmbeddingServer().serving() as server, gateway(tmp_path, file=configured(server)) as running:
        (tmp_path / "workspace" / "MEMORY.md").write_text("# Tea\n\ngreen\n\n# Coffee\n\nblack\n")
        told = await status(
            await running.connect(),
            "- Memory: 1 note and 0 sessions in 2 chunks with vectors by openai:text-embedding-3-small",
        )
        assert "all is well" in told


async def test_a_server_that_makes_no_vectors_is_a_trouble_and_one_line_in_the_log_until_it_does(tmp_path: Path) -> None:
    logged = io.StringIO()
    logs.configure("info", "json", logged)
    refusing = OpenAIEmbeddingServer(Fault(status=403, body=b"no"))
    async with refusing.serving() as server, gateway(tmp_path, file=configured(server)) as running:
        (tmp_path / "workspace" / "MEMORY.md").write_text("# Tea\n\ngreen\n")
        client = await running.connect()
        told = await status(client, "- Trouble: ")
        assert "Notes are found by their words alone: openai: The key of memory.embedding.api_key is refused: no." in told
        assert server.KEY not in told
        await client.command("/memory what of tea?")
        server.now_says(Embeds())
        await client.command("/memory and of coffee?")
        await status(client, "all is well")
    entries = [json.loads(line) for line in logged.getvalue().splitlines()]
    events = [entry["event"] for entry in entries if entry["event"].startswith("embedding")]
    assert events == ["embedding_failed", "embedding_works_again"]
    assert server.KEY not in logged.getvalue()
