"""Servers that others wrote, as the gateway runs them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from plugins.api.tool import ApprovalRequest
from plugins.mcp.mcp_settings import ServerKeys
from plugins.support.errors import ToolFailed
from tests.mcp.mcp_stage import call_context, opened, report, run

Command = Callable[[str], tuple[str, ...]]


async def test_server_everything(tmp_path: Path, npm_program: Command) -> None:
    shown: list[str] = []
    asked: list[str] = []

    async def ask(question: ApprovalRequest) -> bool:
        asked.append(question.what)
        return True

    async with opened(tmp_path, every=ServerKeys(command=npm_program("server-everything"))) as source:
        assert report(source, "every").protocol == "2025-11-25"
        assert (await run(source, "every_echo", message="hi")).text == "Echo: hi"
        assert "5" in (await run(source, "every_get-sum", a=2, b=3)).text
        image = await run(source, "every_get-tiny-image")
        assert [(file.media, file.content[:4]) for file in image.attachments] == [("image/png", b"\x89PNG")]
        links = await run(source, "every_get-resource-links", count=2)
        assert links.text.count("[resource ") == 2
        weather = json.loads((await run(source, "every_get-structured-content", location="New York")).text)
        assert weather["temperature"] > 0
        slow = call_context(progress=shown.append)
        await run(source, "every_trigger-long-running-operation", slow, duration=1, steps=4)
        assert shown
        await run(source, "every_trigger-elicitation-request", call_context(ask=ask))
        with pytest.raises(ToolFailed):
            await run(source, "every_get-sum", a="two")
        assert report(source, "every").prompts[:2] == ("simple-prompt", "args-prompt")


async def test_server_filesystem(tmp_path: Path, npm_program: Command) -> None:
    files = ServerKeys(command=(*npm_program("server-filesystem"), str(tmp_path / "workspace")))
    async with opened(tmp_path, files=files) as source:
        note = tmp_path / "workspace" / "note.md"
        await run(source, "files_write_file", path=str(note), content="written by a server")
        assert note.read_text() == "written by a server"
        assert "written by a server" in (await run(source, "files_read_text_file", path=str(note))).text
        with pytest.raises(ToolFailed, match="denied"):
            await run(source, "files_read_text_file", path="/etc/passwd")


async def test_mcp_server_time(tmp_path: Path, python_server: Command) -> None:
    async with opened(tmp_path, clock=ServerKeys(command=python_server("mcp-server-time"))) as source:
        assert report(source, "clock").protocol == "2026-07-28"
        converted = await run(
            source, "clock_convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
        )
        assert "T21:00:00+09:00" in converted.text
        with pytest.raises(ToolFailed, match="Invalid timezone"):
            await run(source, "clock_get_current_time", timezone="Mars/Olympus")


async def test_mcp_server_git(tmp_path: Path, python_server: Command) -> None:
    repository = tmp_path / "repository"
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(repository)], check=True)
    (repository / "file.txt").write_text("one\n")
    keys = ServerKeys(command=(*python_server("mcp-server-git"), "--repository", str(repository)))
    async with opened(tmp_path, git=keys) as source:
        assert "file.txt" in (await run(source, "git_git_status", repo_path=str(repository))).text
        await run(source, "git_git_add", repo_path=str(repository), files=["file.txt"])
        assert "new file" in (await run(source, "git_git_status", repo_path=str(repository))).text
