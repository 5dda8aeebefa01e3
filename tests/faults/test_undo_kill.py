"""Kill -9 at each step of an `/undo`: after the next start it is carried out to its end, once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.faults.gateway_process import ROOT, gateway_process, verify
from tests.gateway.gateways import Client, gateway
from tests.gateway.test_undo import ANSWER, OTHER, PLAN, SCRIPT, changed, files, prepared
from tests.shelf import Shelf
from tests.waiting import deadline

DEADLY = """
import os
import signal
from itertools import count

from sessions.store.recorder import Recorder

numbers = count(1)


def step():
    if next(numbers) == int(os.environ["DEADLY_STEP"]):
        os.kill(os.getpid(), signal.SIGKILL)


def deadly(plain):
    def wrapped(*arguments, **named):
        if named.get("dir_fd", named.get("src_dir_fd")) is None:
            return plain(*arguments, **named)
        step()
        done = plain(*arguments, **named)
        step()
        return done

    return wrapped


async def append_durable(self, event, *, turn=None, plain=Recorder.append_durable):
    if type(event).__name__ != "ChangesUndone":
        return await plain(self, event, turn=turn)
    step()
    seq = await plain(self, event, turn=turn)
    step()
    return seq


os.rename, os.unlink, Recorder.append_durable = deadly(os.rename), deadly(os.unlink), append_durable
"""

STEPS = [
    "before the first file",
    "after the first file",
    "before the second file",
    "after the second file",
    "before the new file is removed",
    "after the new file is removed",
    "before it is recorded",
    "before it is answered",
]


async def said(home: Path, step: int, shelf: Path) -> int | None:
    """Send `/undo` to a gateway process that kills itself at a step; return its exit code."""
    settings = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(shelf)]),
        "EXUVIA__PLUGINS__ALLOW": '["deadly"]',
        "DEADLY_STEP": str(step),
    }
    async with gateway_process(home, script=SCRIPT, settings=settings) as process, aiohttp.ClientSession() as http:
        client = await process.connect(http)
        await client.send("/undo", id_="undo")
        async with deadline():
            return await process.process.wait()


def answers(client: Client) -> list[dict[str, Any]]:
    return [event for _, event in client.events() if event["kind"] == "command_answered"]


@pytest.mark.parametrize("step", range(1, len(STEPS) + 1), ids=STEPS)
async def test_an_undo_that_is_killed_is_carried_out_once(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    workspace = prepared(home)
    Shelf(tmp_path / "shelf", monkeypatch).install("deadly", "deadly", DEADLY)
    async with gateway(home, script=SCRIPT) as running:
        await changed(running, workspace)
    assert await said(home, step, tmp_path / "shelf") == -signal.SIGKILL
    async with gateway(home, script=SCRIPT) as running:
        client = await running.connect()
        await client.send("/undo", id_="undo")
        await client.say("subscribe", session="main", after=0)
        answered = await client.until_event("command_answered")
        assert (answered["answer"], answered["failed"]) == (ANSWER, False)
        assert files(workspace) == (PLAN, OTHER, False)
        await client.send("and now?")
        await client.until_event("turn_ended")
        (lines,) = running.journals().values()
        kinds = [line["kind"] for line in lines]
        assert (kinds.count("changes_undone"), kinds.count("command_answered")) == (1, 1)
    assert await verify(home) == 0
