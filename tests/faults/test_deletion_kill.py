"""A deletion that is killed at any step has not begun, or is finished by the next start."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.deleter import STEPS
from tests.faults.gateway_process import ROOT
from tests.gateway.gateways import gateway
from tests.gateway.test_deletions import BY_WORDS, places, sing
from tests.waiting import DEADLINE, until


@pytest.fixture(scope="module")
def sung(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a stopped home with the canary in every place."""
    home = tmp_path_factory.mktemp("sung") / "home"

    async def run() -> None:
        async with gateway(home, settings=BY_WORDS) as running:
            await sing(running)

    asyncio.run(run())
    return home


def killed(home: Path, step: int) -> int:
    """Return the exit code of a gateway that kills itself before this step of a deletion."""
    command = [sys.executable, "-m", "tests.faults.deleter", str(home), str(step)]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=DEADLINE, capture_output=True).returncode


@pytest.mark.parametrize("step", range(1, STEPS + 2))
async def test_a_killed_deletion_has_not_begun_or_is_finished_by_the_next_start(
    tmp_path: Path, sung: Path, step: int
) -> None:
    home = tmp_path / "home"
    await asyncio.to_thread(shutil.copytree, sung, home)
    before = await asyncio.to_thread(places, home)
    ended = await asyncio.to_thread(killed, home, step)
    assert ended == (0 if step > STEPS else -signal.SIGKILL)
    async with gateway(home, settings=BY_WORDS) as running:
        client = await running.connect()
        if step > 1:
            await until(lambda: "deletion_finished" in (home / "deletions.jsonl").read_text())
        await client.say("sessions", id="l")
        listed = [row["session"] for row in (await client.until_type("sessions"))["sessions"]]
        assert listed == (["main", "other"] if step == 1 else ["other"])
    found = await asyncio.to_thread(places, home)
    assert found == (before if step == 1 else set())
    if step > 1:
        lines = [json.loads(line) for line in (home / "deletions.jsonl").read_text().splitlines()]
        assert [line["kind"] for line in lines] == ["session_deleted", "deletion_finished"]
