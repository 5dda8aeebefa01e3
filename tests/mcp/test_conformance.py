"""The client against the protocol's own conformance suite: all client scenarios that are no extension, in both eras."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import deadline

ROOT = Path(__file__).parents[2]

VERSIONS = ("2025-03-26", "2025-11-25", "2026-07-28")

AT_ONCE = 3
"""Scenarios that run at the same time."""

ALONE = "sse-retry"
"""The scenario that measures the time of a reconnection, which others would delay."""

SECONDS = 120


def scenarios(suite: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the scenarios of each version of the protocol."""
    listed = subprocess.run([*suite, "list", "--client"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ +- (\S+) \[(.+)\]$", listed, re.MULTILINE)
    return {version: [name for name, versions in found if version in versions.split(",")] for version in VERSIONS}


@pytest.fixture(scope="module")
def clients() -> Iterator[str]:
    """The socket of the process that forks a client for each scenario."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.mcp.conformance_client", f"{folder}/socket"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, start_new_session=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
                yield command[-1]
            finally:
                os.killpg(process.pid, signal.SIGKILL)


async def run_scenario(suite: tuple[str, ...], clients: str, folder: Path, name: str, version: str) -> str:
    """Run a scenario; return "" if it passed, else its output."""
    client = f"{sys.executable} -S -E {ROOT}/tests/mcp/conformance_command.py {clients}"
    arguments = ["client", "--command", client, "--scenario", name, "--spec-version", version]
    process = await asyncio.create_subprocess_exec(
        *(*suite, *arguments, "--timeout", str(SECONDS * 1000), "--output-dir", str(folder)),
        cwd=ROOT,
        env={**os.environ, "NODE_COMPILE_CACHE": f"{Path(clients).parent}/compiled"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await process.communicate())[0].decode(errors="replace")
    passed = process.returncode == 0 and "OVERALL: PASSED" in output
    return "" if passed else f"{name} at {version}:\n{output[-6000:]}"


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_client_passes_the_conformance_suite(
    tmp_path: Path, npm_program: Callable[[str], tuple[str, ...]], clients: str, version: str
) -> None:
    suite = npm_program("conformance")
    names = scenarios(suite)[version]
    assert len(names) >= {"2025-03-26": 2, "2025-11-25": 18, "2026-07-28": 30}[version]
    room = asyncio.Semaphore(AT_ONCE)

    async def run(name: str) -> str:
        async with room:
            return await run_scenario(suite, clients, tmp_path, name, version)

    failures = await asyncio.gather(*(run(name) for name in names if name != ALONE))
    if ALONE in names:
        async with deadline():
            failures.append(await run(ALONE))
    assert [failure for failure in failures if failure] == []
