"""A plugin that blocks the event loop is named, ended, and left out of the next start; one that keeps the process alive is
cut off."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from gateway.plugin_runtime import watchdog as module
from gateway.plugin_runtime.watchdog import LoopBlocked, Watchdog, read_last_block
from tests.gateway.gateways import TOKEN, gateway
from tests.shelf import Shelf
from tests.waiting import DEADLINE, until

BLOCKING = """
import time

def block(seconds):
    time.sleep(seconds)
"""


@pytest.fixture
def blocking(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Create a plugin's module with a function that blocks."""
    plugin = ModuleType("blocking_plugin")
    exec(compile(BLOCKING, "blocking_plugin.py", "exec"), plugin.__dict__)
    for name, seconds in (("TICK", 0.02), ("REPORTED", 0.1)):
        monkeypatch.setattr(module, name, seconds)
    return plugin


def watching(tmp_path: Path, limit: float, end: Callable[[int], object] = os._exit) -> Watchdog:
    return Watchdog(lambda: {"blocking_plugin": "block"}, limit=limit, file=tmp_path / "held_up.json", end=end)


async def test_the_plugin_that_blocked_the_loop_is_named_with_the_place(tmp_path: Path, blocking: ModuleType) -> None:
    watchdog = watching(tmp_path, limit=60)

    with watchdog.awake():
        await asyncio.sleep(0.05)
        blocking.block(0.5)
        await until(watchdog.problems)
        (sentence,) = watchdog.problems()

    place = r"in blocking_plugin\.py, line 5 \(block\)"
    assert re.fullmatch(rf"The plugin 'block' blocked the event loop for \d+\.\d s, {place}\.", sentence)
    assert read_last_block(tmp_path / "held_up.json") is None, "it was not for long"


async def test_a_plugin_that_blocks_too_long_ends_the_gateway_and_is_named_at_the_next_start(
    tmp_path: Path, blocking: ModuleType
) -> None:
    ended: list[int] = []

    with watching(tmp_path, limit=0.3, end=ended.append).awake():
        await asyncio.sleep(0.05)
        blocking.block(1.0)

    held = read_last_block(tmp_path / "held_up.json")
    assert ended == [1]
    assert held is not None
    assert (held.plugin, held.where) == ("block", "blocking_plugin.py, line 5 (block)")
    assert read_last_block(tmp_path / "held_up.json") is None, "one start goes by it"


async def test_a_limit_of_zero_never_ends_the_gateway(tmp_path: Path, blocking: ModuleType) -> None:
    ended: list[int] = []

    with watching(tmp_path, limit=0, end=ended.append).awake():
        await asyncio.sleep(0.05)
        blocking.block(0.5)

    assert ended == []


async def test_a_responsive_loop_is_not_reported(tmp_path: Path, blocking: ModuleType) -> None:
    watchdog = watching(tmp_path, limit=0.5, end=lambda _: None)

    with watchdog.awake():
        for _ in range(10):
            await asyncio.sleep(0.05)

    assert watchdog.problems() == []


@pytest.mark.parametrize("text", ["", "{", '{"plugin": 3}', "\udcff"])
def test_an_unreadable_report_is_discarded(tmp_path: Path, text: str) -> None:
    file = tmp_path / "held_up.json"
    file.write_text(text, errors="surrogateescape")

    assert read_last_block(file) is None
    assert not file.exists()


async def test_the_next_start_leaves_the_plugin_out_and_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, home = Shelf(tmp_path / "shelf", monkeypatch), tmp_path / "home"
    shelf.install("exuvia_stalls", "stalls", "raise SystemExit('imported')")
    home.mkdir(mode=0o700)
    held = LoopBlocked(plugin="stalls", seconds=60.2, where="stalls.py, line 3 (run)")
    (home / "held_up.json").write_bytes(msgspec.json.encode(held))

    async with gateway(home, settings={"plugins.allow": ["stalls"]}) as g:
        status = await (await g.connect()).command("/status")

    assert (
        "The plugin 'stalls' is not used: it ended the gateway: The plugin 'stalls' blocked the event loop for 60.2 s, in"
        " stalls.py, line 3 (run). The next restart tries it again."
    ) in status


STALLING = """
import time
from exuvia import hookimpl

@hookimpl
async def gateway_started(context):
    {act}
"""


def process(tmp_path: Path, act: str, **settings: str) -> subprocess.Popen[str]:
    """Run `exuvia run` with a plugin that does this at the start."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        Shelf(shelf, patch).install("exuvia_stalls", "stalls", STALLING.format(act=act))
    root = Path(__file__).parents[2]
    named = {f"EXUVIA__{key.upper()}": value for key, value in settings.items()}
    return subprocess.Popen(
        [sys.executable, "-m", "exuvia", "run", "--home", tmp_path / "home", "--port", "0"],
        env={
            **os.environ,
            "PYTHONPATH": f"{root}:{shelf}",
            "EXUVIA_TOKEN": TOKEN,
            "EXUVIA__AGENT__MODEL": "scripted:echo",
            "EXUVIA__PLUGINS__ALLOW": '["stalls"]',
            "EXUVIA__APPROVALS__DEFAULT": '"allow"',
            **named,
        },
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_process_blocked_by_a_plugin_exits_with_1_and_the_reason(tmp_path: Path) -> None:
    with process(tmp_path, "time.sleep(60)", plugins__hold_limit="1s") as running:
        _, told = running.communicate(timeout=DEADLINE)

    assert running.returncode == 1
    assert '"plugin": "stalls"' in told
    assert "exuvia_stalls.py, line 7 (gateway_started)" in told
    assert read_last_block(tmp_path / "home" / "held_up.json") is not None


def test_a_thread_left_by_a_plugin_does_not_keep_the_process_alive(tmp_path: Path) -> None:
    act = "import threading; threading.Thread(target=time.sleep, args=(600,), name='lingerer').start()"
    with process(tmp_path, act) as running:
        assert running.stderr is not None
        while '"ready"' not in (line := running.stderr.readline()):
            assert line, "it ended"
        running.send_signal(signal.SIGTERM)
        _, told = running.communicate(timeout=DEADLINE)

    assert running.returncode == 0
    assert "a plugin kept the process alive for 3 s (threads lingerer)" in told


LOOKING = """
import gc, threading, time
from gateway.plugin_runtime.watchdog import current_frames

class Waste:
    def __init__(self):
        self.itself = self
    def __del__(self):
        time.sleep(0)  # lets the other thread run

def look():
    for _ in range(500):
        Waste(), Waste()
        current_frames()

gc.set_threshold(1)
looking = threading.Thread(target=look)
looking.start()
while looking.is_alive():
    other = threading.Thread(target=int)
    other.start()
    other.join()
"""


def test_looking_at_the_threads_does_not_stop_a_process_that_collects_garbage_and_starts_threads() -> None:
    subprocess.run([sys.executable, "-c", LOOKING], check=True, timeout=DEADLINE)
