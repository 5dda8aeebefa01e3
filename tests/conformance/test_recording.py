"""Real calls are recorded once and replayed: an author's own test, run by pytest as the author runs it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plugins.testing.recording import HIDDEN, NOT_RECORDED, recording, replaying
from plugins.testing.servers.embedding_server import EmbeddingServer

ROOT = Path(__file__).parents[2]

TESTS = '''
import os
from exuvia import EmbeddingKeys, Secret, check, make_provider_context
from plugins.providers.openai.embeddings import OpenAIEmbeddings

@check
async def test_the_service_itself(recorded, tmp_path):
    """It answers."""
    key = os.environ.get("SERVICE_KEY", "replayed")
    async with recorded(os.environ.get("SERVICE", ""), key) as url:
        settings = EmbeddingKeys(provider="openai", base_url=f"{url}/v1", api_key=Secret(key), model="test-model")
        async with make_provider_context(tmp_path, settings) as house, OpenAIEmbeddings(house) as provider:
            vectors = await provider.embed(["a crab", os.environ.get("ALSO", "a shell")], "note")
            assert [len(vector) for vector in vectors] == [8, 8]
'''


async def author_runs(folder: Path, *options: str, **environment: str) -> int:
    """Run the author's tests; returns the exit code."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "plugins.testing.recording", "-p", "no:cacheprovider")
    process = await asyncio.create_subprocess_exec(
        *command,
        *options,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    await process.communicate()
    return process.returncode or 0


async def test_calls_are_recorded_once_without_the_key_and_replayed_without_the_service(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TESTS)
    async with EmbeddingServer().serving() as server:
        service = {"SERVICE": server.url.removesuffix("/v1"), "SERVICE_KEY": server.KEY}
        assert await author_runs(tmp_path, "--record", **service) == 0
        assert len(server.requests) == 1

    text = (tmp_path / "recordings" / "test_mine.test_the_service_itself.json").read_text()
    (call,) = json.loads(text)
    assert (call["method"], call["path"], call["status"]) == ("POST", "/v1/embeddings", 200)
    assert server.KEY not in text
    assert await author_runs(tmp_path) == 0


async def test_a_request_that_was_not_recorded_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="`pytest --record` makes it"):
        async with replaying(tmp_path / "none.json"):
            pass
    file = tmp_path / "one.json"
    async with EmbeddingServer().serving() as server, recording(file, server.url, [server.KEY]) as url:
        assert (await asked(url, {"input": ["one", server.KEY]}, server.KEY))[0] == 200
    assert HIDDEN in file.read_text()
    async with replaying(file) as url:
        assert await asked(url, {"input": ["two"]}, "") == (
            NOT_RECORDED,
            "one.json has no POST /embeddings with this body; `pytest --record` records it anew.",
        )
        status, text = await asked(url, {"input": ["one", HIDDEN]}, "")
        assert (status, len(json.loads(text)["data"])) == (200, 2)
        assert (await asked(url, {"input": ["one", HIDDEN]}, ""))[0] == NOT_RECORDED, "each call is replayed once"


async def asked(url: str, body: dict[str, Any], key: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/embeddings", json=body, headers={"Authorization": f"Bearer {key}"}) as answer,
    ):
        return answer.status, await answer.text()
