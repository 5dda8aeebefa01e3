"""Servers in the sandbox of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.mcp.mcp_settings import ServerKeys
from plugins.sandbox.policy import SandboxStatus
from plugins.support.errors import ToolFailed
from tests.mcp.mcp_stage import SERVER, opened, report, run

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
