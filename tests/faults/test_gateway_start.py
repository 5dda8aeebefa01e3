"""What the gateway refuses to start with: one line, exit code 2, nothing changed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from benchmarks.ports import free_port
from tests.faults.gateway_process import ROOT, GatewayProcess, gateway_process
from tests.gateway.gateways import TOKEN
from tests.waiting import DEADLINE


def start(home: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "exuvia", "run", "--home", str(home), "--port", str(free_port()), *options]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EXUVIA")}
    return subprocess.run(
        command,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        ((), {"EXUVIA_TOKEN": "short"}, "shorter than 24"),
        ((), {"EXUVIA_TOKEN": "   "}, "blank"),
        ((), {"EXUVIA_TOKEN": "changeme-changeme-changeme-changeme"}, "placeholder"),
        (("--host", "0.0.0.0"), {}, "token"),
        (("--host", "192.0.2.1"), {"EXUVIA_TOKEN": "a-good-token-that-is-long-enough-7"}, "cannot be listened on"),
        ((), {"EXUVIA__AGENT__COLOUR": "blue"}, "agent.colour"),
        ((), {"EXUVIA__SESSIONS__QUEUE_LIMIT": '"seven"'}, "sessions.queue_limit"),
    ],
)
def test_a_failed_start_is_explained_in_one_line(
    tmp_path: Path, options: tuple[str, ...], environment: dict[str, str], words: str
) -> None:
    refused = start(tmp_path / "home", *options, **environment)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "Traceback" not in refused.stderr


async def test_a_second_gateway_for_the_same_home_is_refused(tmp_path: Path) -> None:
    async with gateway_process(tmp_path):
        refused = start(tmp_path, EXUVIA_TOKEN="another-token-that-is-long-enough")
        assert refused.returncode == 2
        assert "in use by another gateway" in refused.stderr


async def test_output_that_cannot_be_printed_does_not_end_the_gateway(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *["/bin/sh", "-c", 'exec "$@" >/dev/full 2>/dev/full', "-"],
        *[sys.executable, "-m", "exuvia", "run", "--home", str(tmp_path), "--port", str(port := free_port())],
        env={**os.environ, "PYTHONPATH": str(ROOT), "EXUVIA_TOKEN": TOKEN},
    )
    running = GatewayProcess(process, port, tmp_path / "log")
    try:
        async with aiohttp.ClientSession() as http:
            await running.ready(http)
            assert await (await running.connect(http)).command("/whoami")
        assert await running.stop() == 0
    finally:
        await running.kill()
