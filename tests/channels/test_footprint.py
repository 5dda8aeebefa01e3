"""The memory of channels, see `footprint`."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from plugins.host.loading import built_in_channels
from tests.servers.matrix_server import MatrixServer
from tests.waiting import deadline


async def measured(*arguments: str) -> float:
    """Return the bytes that a kind of channel needs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.channels.footprint", *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with deadline():
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return float(json.loads(output)["bytes"])


@pytest.mark.parametrize("kind", built_in_channels())
async def test_the_code_of_a_channel_needs_less_than_a_megabyte(kind: str) -> None:
    pytest.importorskip({"email": "aiosmtplib", "matrix": "vodozemac"}.get(kind, "aiohttp"))
    assert 100_000 < await measured(kind) < 1_000_000


async def test_an_idle_channel_of_matrix_with_encryption_needs_less_than_three_megabytes() -> None:
    pytest.importorskip("vodozemac")
    async with MatrixServer() as server:
        assert 300_000 < await measured("matrix", server.url) < 3_000_000
