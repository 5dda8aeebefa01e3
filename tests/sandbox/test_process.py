"""Starting commands: their output, their end, their limits of what they see, and what is refused."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from plugins.sandbox.detection import detect
from plugins.sandbox.policy import Ended, SandboxFailed, SandboxPolicy, SandboxStatus, accepted_level
from plugins.sandbox.process import SandboxedProcess, start
from tests.waiting import deadline, until

LEVELS = ["full", "partial", "none"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "notes").mkdir(parents=True)
    return folder


async def shell(workspace: Path, script: str, level: str, stdin: bytes = b"", **policy: object) -> tuple[str, Ended]:
    """Run a script; return its output and its end."""
    built = SandboxPolicy(workspace=workspace, **policy)  # type: ignore[arg-type]
    async with deadline(), await start(["sh", "-c", script], built, level=level, stdin=stdin) as process:  # type: ignore[arg-type]
        output = b"".join([chunk async for chunk in process.output()])
        return output.decode(), await process.wait()


@pytest.mark.parametrize("level", LEVELS)
async def test_output_and_errors_come_in_order_with_the_exit_code(workspace: Path, level: str) -> None:
    output, ended = await shell(workspace, "cat; echo out; echo err >&2; echo out; exit 3", level, b"input\n")
    assert (output, ended) == ("input\nout\nerr\nout\n", Ended(exit_code=3))


@pytest.mark.parametrize("level", LEVELS)
async def test_a_program_that_does_not_exist_ends_as_in_a_shell(workspace: Path, level: str) -> None:
    async with deadline(), await start(["no-such-program"], SandboxPolicy(workspace=workspace), level=level) as process:  # type: ignore[arg-type]
        output = b"".join([chunk async for chunk in process.output()])
        assert (await process.wait()).exit_code == 127
    assert b"no-such-program" in output


@pytest.mark.parametrize("level", LEVELS)
async def test_a_command_whose_output_is_not_read_waits(workspace: Path, level: str) -> None:
    policy = SandboxPolicy(workspace=workspace)
    script = "head -c 1000000 /dev/zero; touch notes/done"
    async with deadline(), await start(["sh", "-c", script], policy, level=level) as process:  # type: ignore[arg-type]
        output = process.output()
        assert len(await anext(output)) <= 65536
        assert not (workspace / "notes/done").exists()
        rest = [chunk async for chunk in output]
        assert (await process.wait()).exit_code == 0
    assert sum(map(len, rest)) > 900_000
    assert (workspace / "notes/done").exists()


@pytest.mark.parametrize("level", LEVELS)
async def test_a_killed_command_says_why_and_all_its_output_so_far(workspace: Path, level: str) -> None:
    policy = SandboxPolicy(workspace=workspace)
    async with deadline(), await start(["sh", "-c", "echo begins; sleep 1000"], policy, level=level) as process:  # type: ignore[arg-type]
        output = process.output()
        assert await anext(output) == b"begins\n"
        assert await process.kill("deadline") == Ended(exit_code=137, reason="deadline")
        assert [chunk async for chunk in output] == []
        assert await process.wait() == Ended(exit_code=137, reason="deadline")


@pytest.mark.parametrize("level", LEVELS)
async def test_a_cancelled_reader_leaves_nothing_behind(workspace: Path, level: str) -> None:
    pids = []

    async def read() -> None:
        async with await start(["sleep", "1000"], SandboxPolicy(workspace=workspace), level=level) as process:  # type: ignore[arg-type]
            pids.append(process.pid)
            await process.wait()

    before = set(os.listdir("/proc/self/fd"))
    task = asyncio.create_task(read())
    async with deadline():
        while not pids:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not Path(f"/proc/{pids[0]}").exists()
    await until(lambda: set(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize("level", LEVELS)
async def test_a_start_that_is_cancelled_leaves_nothing_behind(workspace: Path, level: str) -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before, others = set(os.listdir("/proc/self/fd")), set(children.read_text().split())
    for turns in range(1, 40, 3):
        task = asyncio.create_task(shell(workspace, "touch notes/x; sleep 1000", level))
        for _ in range(turns):
            await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await until(lambda: set(children.read_text().split()) <= others)
    await until(lambda: set(os.listdir("/proc/self/fd")) <= before)


async def test_a_listener_that_arrives_after_the_start_was_given_up_is_closed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def give_up(started: SandboxedProcess) -> None:
        await until(lambda: select.select([started._control], [], [], 0)[0])
        raise asyncio.CancelledError

    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(SandboxedProcess, "begin", give_up)
    async with deadline():
        with pytest.raises(asyncio.CancelledError):
            await start(["sleep", "1000"], SandboxPolicy(workspace=workspace, network=True), level="full")
    await until(lambda: set(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize(
    ("name", "working"), [("socket.socketpair", 0), ("os.pipe2", 0), ("os.memfd_create", 0), ("os.memfd_create", 1)]
)
async def test_a_start_without_a_free_descriptor_fails_and_leaves_nothing_behind(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, name: str, working: int
) -> None:
    owner, _, function = name.partition(".")
    module = {"os": os, "socket": socket}[owner]
    original, calls = getattr(module, function), 0

    def scarce(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > working:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return original(*arguments)

    before = set(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(module, function, scarce)
        with pytest.raises(SandboxFailed, match="Too many open files"):
            await start(["true"], SandboxPolicy(workspace=workspace), level="none")
    await until(lambda: set(os.listdir("/proc/self/fd")) <= before)


async def test_what_is_private_is_not_seen_even_in_the_workspace(workspace: Path) -> None:
    (workspace / "people/ana").mkdir(parents=True)
    (workspace / "people/ana/MEMORY.md").write_text("hers")
    (workspace / "MEMORY.md").write_text("the owner's")
    private = (workspace / "people/ana", workspace / "MEMORY.md")
    for level in ("full", "partial"):
        output, _ = await shell(workspace, "cat people/ana/MEMORY.md MEMORY.md; ls people/ana", level, private=private)
        assert "hers" not in output
        assert "the owner's" not in output
        for change in ("mv people people2", "rm -r people", "mv MEMORY.md notes"):
            await shell(workspace, change, level, private=private)
        assert (workspace / "people/ana/MEMORY.md").read_text() == "hers"
        assert (workspace / "MEMORY.md").read_text() == "the owner's"


@pytest.mark.parametrize("level", ["full", "partial"])
async def test_a_protected_path_that_is_a_link_is_refused(workspace: Path, level: str) -> None:
    (workspace / "AGENTS.md").symlink_to("notes/AGENTS.md")
    with pytest.raises(SandboxFailed, match=r"AGENTS\.md in the workspace is a symbolic link"):
        await shell(workspace, "true", level)


@pytest.mark.parametrize("cwd", ["..", "/etc", "missing", "link"])
async def test_a_folder_outside_of_the_workspace_is_refused(workspace: Path, cwd: str) -> None:
    (workspace / "link").symlink_to("/etc")
    with pytest.raises(SandboxFailed, match="is not a folder of the workspace"):
        await start(["true"], SandboxPolicy(workspace=workspace), level="full", cwd=cwd)


@pytest.mark.parametrize("folder", ["/", "/usr/share", "/etc", "/tmp"])
async def test_a_folder_of_the_system_is_no_workspace(folder: str) -> None:
    with pytest.raises(SandboxFailed, match="is a folder of the system"):
        await start(["true"], SandboxPolicy(workspace=Path(folder), protected=()), level="full")


async def test_placeholders_go_with_the_last_command_and_keep_what_a_person_wrote(workspace: Path) -> None:
    async with deadline():
        policy = SandboxPolicy(workspace=workspace)
        async with await start(["sleep", "1000"], policy, level="full"):
            async with await start(["sleep", "1000"], policy, level="full"):
                assert sorted(path.name for path in workspace.iterdir()) == ["AGENTS.md", "SOUL.md", "notes", "skills"]
            assert (workspace / "AGENTS.md").exists()
            output, _ = await shell(workspace, "echo changed > AGENTS.md", "full")
            assert "Read-only file system" in output
            (workspace / "SOUL.md").chmod(0o644)
            (workspace / "SOUL.md").write_text("written by a person")
    assert sorted(path.name for path in workspace.iterdir()) == ["SOUL.md", "notes"]


async def test_a_folder_swapped_for_a_link_meanwhile_shows_nothing_of_the_machine(workspace: Path, tmp_path: Path) -> None:
    """A command that runs already swaps a repository's hooks for a link to the home, while others start."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text("secret")
    policy = SandboxPolicy(workspace=workspace, protected=())
    swapping = f"""
import os, random, time
os.makedirs("notes/x/refs"), os.makedirs("notes/x/objects"), open("notes/x/config", "w").close()
while True:
    os.makedirs("notes/x/hooks", exist_ok=True)
    os.rename("notes/x/hooks", "notes/x/kept")
    os.symlink({str(home)!r}, "notes/x/hooks")
    time.sleep(random.uniform(0, 0.01))
    os.remove("notes/x/hooks")
    os.rename("notes/x/kept", "notes/x/hooks")
    time.sleep(random.uniform(0, 0.03))
"""
    readable = (Path(sys.base_prefix),)
    swapper = SandboxPolicy(workspace=workspace, protected=(), readable=readable)
    refused, outputs = 0, []
    async with (
        deadline(),
        await start([os.path.realpath(sys.executable), "-I", "-S", "-c", swapping], swapper, level="full"),
    ):
        await until((workspace / "notes/x/config").exists)
        for _ in range(40):
            try:
                async with await start(["cat", "notes/x/hooks/token"], policy, level="full") as process:
                    outputs.append(b"".join([chunk async for chunk in process.output()]))
            except SandboxFailed:
                refused += 1
    assert all(b"secret" not in output for output in outputs)
    assert len(outputs) + refused == 40


async def test_the_best_level_is_found() -> None:
    assert await detect() == SandboxStatus(level="full")


async def test_without_bubblewrap_the_level_is_partial_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    status = await detect()
    assert (status.level, status.reason) == ("partial", "bubblewrap is not installed.")
    assert "apt install bubblewrap" in status.fix


async def test_a_bubblewrap_that_may_not_create_namespaces_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    status = await detect()
    assert status.level == "partial"
    assert "setting up uid map: Permission denied" in status.reason
    assert "docs/sandbox.md" in status.fix


async def test_a_kernel_without_landlock_leaves_no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("plugins.sandbox.detection.landlock_abi", lambda: 4)
    status = await detect()
    assert status.level == "none"
    assert "its version here is 4, and 6 is needed (Linux 6.12)" in status.reason


@pytest.mark.parametrize(
    ("setting", "reached", "level"),
    [
        ("auto", "full", "full"),
        ("auto", "partial", "partial"),
        ("auto", "none", None),
        ("full", "full", "full"),
        ("full", "partial", None),
        ("partial", "full", "full"),
        ("partial", "none", None),
        ("none", "full", "none"),
    ],
)  # fmt: skip
def test_a_setting_names_the_least_level(setting: str, reached: str, level: str | None) -> None:
    assert accepted_level(setting, SandboxStatus(level=reached)) == level  # type: ignore[arg-type]
