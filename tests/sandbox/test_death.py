"""The death of the gateway ends what it runs, whenever it comes."""

from __future__ import annotations

import random

import pytest

from tests.sandbox.scene import SLEEP, USERS, Scene, User
from tests.waiting import until

PROGRAM = f"""
for _ in range(3):
    subprocess.Popen(["sleep", "{SLEEP}"], start_new_session=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("notes/started", "w").close()
time.sleep(1000)
"""


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("level", ["full", "partial", "none"])
async def test_a_killed_gateway_leaves_no_process(user: User, level: str) -> None:
    with Scene(user) as scene:
        workspace = scene.workspace()
        scene.begin(PROGRAM, level, workspace=str(workspace))
        await until((workspace / "notes/started").exists)
        assert scene.processes() != []
        scene.kill()
        await until(lambda: scene.processes() == [])


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("level", ["full", "partial"])
@pytest.mark.parametrize("seed", range(4))
async def test_a_gateway_killed_while_a_command_starts_leaves_no_process(user: User, level: str, seed: int) -> None:
    with Scene(user) as scene:
        workspace = scene.workspace()
        scene.begin(PROGRAM, level, workspace=str(workspace))
        enough = random.Random(seed).uniform(0, 30)
        looks = 0

        def has_begun() -> bool:
            nonlocal looks
            looks += bool(scene.processes())
            return looks > enough or (workspace / "notes/started").exists()

        await until(has_begun)
        scene.kill()
        await until(lambda: scene.processes() == [])
