"""Kill -9 in the middle of a fork: it is there whole, or nothing of it is, and the parent is as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from sessions.events.codec import decode
from sessions.events.events import SessionForked, TurnStarted
from tests.faults.gateway_process import gateway_process, verify
from tests.faults.stage import needs_strace
from tests.sessions.journal_files import ended, messages, session_id, write_journal
from tests.stored import stored

ROOT = Path(__file__).parents[2]


def fork(home: Path, *strace: str) -> subprocess.CompletedProcess[bytes]:
    """Ask for a fork of `main`, under strace where it is given options."""
    command = [sys.executable, "-m", "exuvia", "sessions", "fork", session_id(1), "--home", str(home)]
    if strace:
        command = ["strace", "-f", "-qq", "-o", os.devnull, *strace, *command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, env=environment, capture_output=True, check=False)


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """A journal that is copied in two blocks."""
    started = TurnStarted(takes=(2, 3, 4), provider="p", model="m", window=None, reserve=0)
    return write_journal(tmp_path / "sessions", 1, *messages(1, 3, size=500_000), started, ended())[0]


@needs_strace
@pytest.mark.parametrize(
    ("call", "when", "there"),
    [
        pytest.param("write", 1, False, id="while the first block is copied"),
        pytest.param("write", 2, False, id="while the second is"),
        pytest.param("write", 3, False, id="before the line that makes it a fork"),
        pytest.param("fdatasync", 1, False, id="before it is durable"),
        pytest.param("fsync", 1, False, id="before it gets its name"),
        pytest.param("fsync", 2, True, id="before that is durable"),
    ],
)
def test_a_killed_fork_is_complete_or_absent(tmp_path: Path, parent: Path, call: str, when: int, there: bool) -> None:
    content = parent.read_bytes()
    killed = fork(tmp_path, "-e", f"inject={call}:signal=KILL:when={when}")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    forks = set(parent.parent.glob("*.jsonl")) - {parent}
    assert (len(forks), parent.read_bytes() == content) == (int(there), True)
    for path in forks:
        assert isinstance(decode(stored(path).lines(stored(path).verify().events, 1)[0]).event, SessionForked)


@needs_strace
async def test_after_a_killed_fork_the_gateway_starts_and_the_next_fork_removes_what_was_left(
    tmp_path: Path, parent: Path
) -> None:
    fork(tmp_path, "-e", "inject=write:signal=KILL:when=3")
    assert len(list(parent.parent.iterdir())) == 2
    async with gateway_process(tmp_path) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        await client.say("sessions", id="s")
        assert [each["session"] for each in (await client.until_type("sessions"))["sessions"]] == ["main"]
        assert await gateway.stop() == 0
    assert await verify(tmp_path) == 0
    assert fork(tmp_path).stdout.startswith(b"main-fork (")
    assert sorted(path.suffix for path in parent.parent.iterdir()) == [".jsonl", ".jsonl"]
    assert await verify(tmp_path) == 0
