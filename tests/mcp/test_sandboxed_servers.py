"""Servers in the sandbox of commands."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from plugins.mcp import sandboxed_transport
from plugins.mcp.mcp_settings import ServerKeys
from plugins.sandbox.detection import detect
from plugins.sandbox.policy import Level, SandboxStatus, accepted_level
from plugins.sandbox.process import SandboxedProcess, start
from plugins.support.errors import ToolFailed
from tests.mcp.mcp_stage import SERVER, opened, report, run
from tests.waiting import deadline, until

SANDBOXED = ServerKeys(command=("python3", "-S", SERVER), sandbox=True, readable=(str(Path(SERVER).parent),))


async def test_a_server_in_the_sandbox_is_called_and_restarted(tmp_path: Path) -> None:
    async with opened(tmp_path, odd=SANDBOXED) as source:
        assert report(source, "odd").ready, report(source, "odd").problem
        assert (await run(source, "odd_echo", text="x" * 300_000)).text == "x" * 300_000
        with pytest.raises(ToolFailed, match="ended before it answered"):
            await run(source, "odd_die")
        assert (await run(source, "odd_echo", text="back")).text == "back"


async def test_a_server_in_the_sandbox_sees_the_workspace_and_nothing_else_of_the_home(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    note, token = tmp_path / "workspace" / "note.md", tmp_path / "token"
    note.touch()
    token.touch()
    async with opened(tmp_path, odd=SANDBOXED) as source:
        assert (await run(source, "odd_look", paths=f"{note} {token} /home /etc/shadow")).text == str(note)


async def test_without_a_sandbox_the_server_is_not_started(tmp_path: Path) -> None:
    async with opened(tmp_path) as source:
        source._sandbox_status = SandboxStatus(level="none", reason="it is a test.")
        await source.reconfigure({"odd": SANDBOXED})
        await source.settled()
        assert report(source, "odd").problem.startswith("the sandbox does not work here")


async def test_a_stop_that_is_cut_off_by_the_end_of_the_event_loop_ends_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[SandboxedProcess]()

    async def starting(*given: Any, **named: Any) -> SandboxedProcess:
        started.append(await start(*given, **named))
        return started[0]

    async def level() -> Level | None:
        return accepted_level("auto", await detect())

    async def connected() -> None:
        async with transport.connect():
            running.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(sandboxed_transport, "END_SECONDS", 600.0)
    monkeypatch.setattr(sandboxed_transport, "start", starting)
    transport = sandboxed_transport.SandboxedTransport(
        ["python3", "-S", "-c", "import time; time.sleep(600)"], {}, workspace=tmp_path, cwd=".", readable=(), level=level
    )
    before, running, open_files = asyncio.all_tasks(), asyncio.Event(), set(os.listdir("/proc/self/fd"))
    connecting = asyncio.create_task(connected())
    async with deadline():
        await running.wait()
    connecting.cancel()
    await until(lambda: any("._stop" in repr(task) for task in asyncio.all_tasks() - before))
    for task in asyncio.all_tasks() - before:  # as the end of the loop does
        task.cancel()
    async with deadline():
        await asyncio.wait(asyncio.all_tasks() - before)
    assert started[0]._process.returncode is not None
    await until(lambda: set(os.listdir("/proc/self/fd")) <= open_files)  # a thread may have a file open for a moment
