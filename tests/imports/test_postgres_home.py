"""Importing into a home whose logs are in PostgreSQL, beside a gateway and without one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.faults.gateway_process import gateway_process
from tests.gateway.gateways import TOKEN
from tests.imports.sources import imported, run
from tests.imports.test_files import PICTURE, chatgpt_export
from tests.servers.postgres_server import postgres_server


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


async def test_conversations_and_files_go_into_the_database_once(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXUVIA_TOKEN", TOKEN)
    home, source = tmp_path / "home", chatgpt_export(tmp_path / "source.zip")
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[store]\nkind = "postgres"\nurl = "{url}"\n')
    planned = await asyncio.to_thread(imported, home, "chatgpt", source, "--dry-run")  # nobody has used the database yet
    report = await asyncio.to_thread(imported, home, "chatgpt", source)
    assert report["items"] == planned["items"] == {"conversations": {"new": 1}, "files": {"new": 3}}
    for options in (("--dry-run",), ()):
        report = await asyncio.to_thread(imported, home, "chatgpt", source, *options)
        assert report["items"] == {"conversations": {"unchanged": 1}}
    assert not list(home.rglob("*.jsonl"))
    assert (await asyncio.to_thread(run, "sessions", "verify", "--home", home)).exit_code == 0
    async with gateway_process(home) as running, aiohttp.ClientSession() as http:
        report = await asyncio.to_thread(imported, home, "chatgpt", source)
        assert report["items"] == {"conversations": {"unchanged": 1}}
        place = f"http://127.0.0.1:{running.port}/attachments/{hashlib.sha256(PICTURE).hexdigest()}"
        async with http.get(place, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            assert await response.read() == PICTURE
        other = tmp_path / "other"
        other.mkdir(mode=0o700)
        (other / "config.toml").write_text((home / "config.toml").read_text())
        refused = await asyncio.to_thread(run, "import", "chatgpt", source, "--home", other)
        assert refused.exit_code == 2
        assert "stop it first" in refused.output
