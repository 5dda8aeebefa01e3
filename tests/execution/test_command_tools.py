"""The tools `shell`, `python` and `jobs` in a real sandbox, called as the gateway calls them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plugins.api.tool import ApprovalRequest, ToolContext, ToolOutput
from plugins.sandbox import detection
from plugins.sandbox.policy import AcceptedLevel, Level, SandboxKeys, SandboxStatus
from plugins.support.errors import ToolFailed
from plugins.testing.contexts import make_context
from plugins.tools.execution import jobs as jobs_module
from plugins.tools.execution.command_source import CommandSource, ExecutionKeys
from plugins.tools.read import Read
from tests.waiting import deadline, until

KEYS = ExecutionKeys(shell=True, python=True, sandbox=SandboxKeys(), access="rw")

CALL = ToolContext(session="20261121-120000-aaaaaa", person="owner", turn=1, call="20261121-120000-aaaaaa/4/0")


class Commands:
    """The tools of one workspace, and its folder."""

    def __init__(self, source: CommandSource, workspace: Path, read: Read) -> None:
        self.source = source
        self.workspace = workspace
        self._read = read
        self.call = CALL

    async def approval(self, tool: str, **arguments: Any) -> ApprovalRequest:
        described: ApprovalRequest = await self.source.tools()[tool].approval(arguments, self.call)  # type: ignore[attr-defined]
        return described

    async def run(self, tool: str, **arguments: Any) -> ToolOutput:
        async with deadline():
            return await self.source.tools()[tool].run(arguments, self.call)

    async def read(self, path: str) -> str:
        return (await self._read.run({"path": path}, self.call)).text

    async def jobs(self, action: str = "list", **arguments: Any) -> str:
        return (await self.run("jobs", action=action, **arguments)).text


@contextlib.asynccontextmanager
async def commands(folder: Path, keys: ExecutionKeys = KEYS) -> AsyncIterator[Commands]:
    async with make_context(folder) as context:
        source = CommandSource(
            lambda: keys,
            workspace=context.workspace,
            protected=lambda: ("AGENTS.md", "SOUL.md"),
            folder=folder / "jobs",
            now=context.clock.now,
            path=os.environ["PATH"],
        )
        async with source:
            await source.prepare(keys)
            yield Commands(source, context.workspace, Read(context))


async def test_output_and_exit_code_of_a_command(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        (made.workspace / "sub").mkdir()
        one = await made.run("shell", command="echo out; echo err >&2; echo again; pwd", folder="sub")
        assert one == ToolOutput(text=f"out\nerr\nagain\n{made.workspace}/sub\n", exit_code=0)
        two = await made.run("shell", command="printf 'no newline'; exit 3")
        assert two == ToolOutput(text="no newline\n[exit code 3]", exit_code=3)
        assert await made.run("shell", command="true") == ToolOutput(text="(no output)", exit_code=0)
        assert await made.run("shell", command="kill -9 $$") == ToolOutput(text="[exit code 137]", exit_code=137)
        missing = await made.run("shell", command="no-such-program")
        assert (missing.exit_code, "no-such-program: command not found" in missing.text) == (127, True)


async def test_output_and_exit_code_of_a_program(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        (made.workspace / "mine.py").write_text("VALUE = 41\n")
        code = "import mine, sys\nprint(mine.VALUE + 1)\nprint(repr(sys.stdin.read()))\nopen('made.txt', 'w').write('é')\n"
        assert await made.run("python", code=code) == ToolOutput(text="42\n''\n", exit_code=0)
        assert (made.workspace / "made.txt").read_text() == "é"
        failed = await made.run("python", code="1/0")
        assert (failed.exit_code, "ZeroDivisionError" in failed.text) == (1, True)


async def test_a_command_is_stopped_with_all_its_processes_when_its_time_is_over(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        script = "(setsid sh -c 'sleep 1000; touch late') & sleep 1000"
        assert await made.run("shell", command=script, timeout=1) == ToolOutput(text="[stopped after 1 second]")
        assert (await made.run("shell", command=f"echo begun; {script}", timeout=2)).text.endswith(
            "[stopped after 2 seconds]"
        )
        assert running_below(made.workspace) == []


async def test_a_cancelled_call_ends_every_process_of_its_command(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        script = "(setsid sh -c 'sleep 1000') & sleep 1000 & echo x > begun; wait"
        call = asyncio.create_task(made.run("shell", command=script))
        await until((made.workspace / "begun").exists)
        assert running_below(made.workspace) != []
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert running_below(made.workspace) == []


def running_below(workspace: Path) -> list[str]:
    """The processes of this machine that work in a workspace."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(workspace) in str((process / "cwd").readlink()):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


async def test_output_is_shown_as_it_comes(tmp_path: Path) -> None:
    shown: list[str] = []
    async with commands(tmp_path) as made:
        made.call = msgspec.structs.replace(CALL, progress=shown.append)
        script = "echo one; while ! [ -e go ]; do sleep 0.02; done; printf '\\033[31mtwo\\033[0m\\n'"
        call = asyncio.create_task(made.run("shell", command=script))
        await until(lambda: shown == ["one\n"])
        (made.workspace / "go").touch()
        assert (await call).text == "one\ntwo\n"
        assert "".join(shown) == "one\ntwo\n"


async def test_of_fast_output_people_are_shown_pieces(tmp_path: Path) -> None:
    shown: list[str] = []
    async with commands(tmp_path) as made:
        made.call = msgspec.structs.replace(CALL, progress=shown.append)
        await made.run("shell", command="seq 300000; echo end")
        assert all(len(piece) <= 5000 for piece in shown)
        assert "".join(shown).endswith("300000\nend\n")


async def test_a_long_output_can_be_read_on(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        output = (await made.run("shell", command="seq 20000")).text
        assert output.startswith("1\n2\n3\n")
        assert output.endswith("19999\n20000\n")
        path = output.partition(" Read ")[2].partition(" ")[0]
        assert (await made.read(path)).startswith("1\n2\n3\n")
        assert (made.workspace / path).read_text() == "".join(f"{n}\n" for n in range(1, 20001))


async def test_a_gigabyte_of_output_ends_the_command_and_not_the_gateway(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        output = await made.run("shell", command="head -c 1000000000 /dev/zero | tr '\\0' 'y'")
        assert (output.exit_code, output.text.endswith("[killed, because it printed too much]")) == (None, True)
        assert sum(path.stat().st_size for path in (made.workspace / "outputs").iterdir()) <= 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "command"),
        ({"command": ""}, "command"),
        ({"command": " \n"}, "It is empty."),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "\udc80"}, "not valid Unicode"),
        ({"command": "true", "timeout": 0}, "timeout"),
        ({"command": "true", "timeout": 281}, "The timeout can be at most 280 seconds; with background it can be longer."),
        ({"command": "true", "timeout": 90_000, "background": True}, "The timeout can be at most 86,400 seconds."),
        ({"command": "true", "folder": "../.."}, "path with .."),
        ({"command": "true", "folder": "/etc"}, "outside the workspace"),
        ({"command": "true", "folder": "missing"}, "not a folder"),
    ],
)
async def test_what_cannot_run_is_refused_and_said(arguments: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        with pytest.raises(ToolFailed, match=sentence):
            await made.run("shell", **arguments)
        if sentence != "not a folder":  # which it may become before the answer
            with pytest.raises(ToolFailed, match=sentence):
                await made.approval("shell", **arguments)


# --- approvals --------------------------------------------------------------------------------------------------------


async def test_a_plain_command_is_described_by_its_arguments(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        assert await made.approval("shell", command="git  commit -m 'it works'") == ApprovalRequest(
            what="git commit -m 'it works'", argv=("git", "commit", "-m", "it works")
        )
        described = await made.approval("shell", command="make", folder="docs", background=True, timeout=60)
        assert (described.what, described.detail, described.argv) == (
            "make",
            "In the folder docs. In the background, for at most 60 seconds.",
            ("make",),
        )
        assert not (await made.approval("shell", command="bash -c 'rm -r .'")).rememberable


async def test_a_script_is_described_in_full_and_never_remembered(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        script = 'for each in *; do\n  rm "$each"\ndone'
        assert await made.approval("shell", command=script) == ApprovalRequest(
            what="for each in *; do (and 2 more lines)", detail=script, rememberable=False
        )
        assert await made.approval("shell", command="echo \x1b[2J; x") == ApprovalRequest(
            what="echo \ufffd[2J; x", detail="echo \x1b[2J; x", rememberable=False
        )
        assert await made.approval("python", code="print(1)", folder="sub") == ApprovalRequest(
            what="print(1)", detail="In the folder sub.", path="sub", rememberable=False
        )
        assert await made.source.tools()["jobs"].approval({}, CALL) is None  # type: ignore[attr-defined]


async def test_a_description_changes_with_the_files_that_the_command_names(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        script = made.workspace / "run.sh"
        states = []
        for content in ("echo one", "echo two"):
            script.write_text(content)
            states += [
                (await made.approval("shell", command="sh run.sh")).state,
                (await made.approval("shell", command="true && sh ./run.sh > x")).state,
                (await made.approval("python", code="import subprocess; subprocess.run(['sh', 'run.sh'])")).state,
            ]
        assert states == [states[0]] * 3 + [states[3]] * 3
        assert len({"", *states}) == 3


# --- what a command reaches -------------------------------------------------------------------------------------------


@pytest.fixture(params=["full", "partial"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The level of the sandbox."""

    async def found() -> SandboxStatus:
        return SandboxStatus(level=request.param)

    monkeypatch.setattr(detection, "detect", found)
    return str(request.param)


@pytest.mark.usefixtures("level")
async def test_a_command_reaches_the_workspace_and_not_the_gateways_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    async with commands(tmp_path) as made:
        (made.workspace / "SOUL.md").write_text("You are kind.\n")
        output = await made.run("shell", command=f"cat {tmp_path}/token; echo x > SOUL.md; cat SOUL.md; env | sort; id -u")
        assert "secret" not in output.text
        assert "You are kind." in output.text
        assert "EXUVIA" not in output.text


@pytest.mark.usefixtures("level")
async def test_a_person_has_their_own_folder_and_sees_nobody_elses(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        (made.workspace / "MEMORY.md").write_text("the owner's secret")
        (made.workspace / "people" / "ben").mkdir(parents=True)
        (made.workspace / "people" / "ben" / "MEMORY.md").write_text("ben's secret")
        made.call = msgspec.structs.replace(CALL, person="ana")
        output = await made.run(
            "shell", command="pwd; echo mine > MEMORY.md; cat ../../MEMORY.md ../ben/MEMORY.md; seq 20000"
        )
        assert output.text.startswith(f"{made.workspace}/people/ana\n")
        assert "secret" not in output.text
        assert (made.workspace / "people" / "ana" / "MEMORY.md").read_text() == "mine\n"
        assert (await made.read(output.text.partition(" Read ")[2].partition(" ")[0])).endswith("20000\n")

        made.call = CALL
        output = await made.run("shell", command="cat MEMORY.md; ls -a people; cat people/*/MEMORY.md")
        assert output.text.startswith("the owner's secret")
        assert "ben" not in output.text


@pytest.mark.usefixtures("level")
async def test_in_a_group_nobodys_private_note_is_seen(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        (made.workspace / "MEMORY.md").write_text("the owner's secret")
        made.call = msgspec.structs.replace(CALL, group=True)
        output = await made.run("shell", command="cat MEMORY.md; python3 -c 'print(open(\"MEMORY.md\").read())'")
        assert "secret" not in output.text


@pytest.mark.usefixtures("level")
async def test_a_workspace_that_is_read_only_is_not_changed(tmp_path: Path) -> None:
    async with commands(tmp_path, msgspec.structs.replace(KEYS, access="ro")) as made:
        (made.workspace / "notes.md").write_text("as it was\n")
        output = await made.run(
            "shell", command="cat notes.md; echo x > notes.md; touch new; mkdir d; echo t > $TMPDIR/t; cat $TMPDIR/t"
        )
        assert output.text.startswith("as it was\n")
        assert output.text.endswith("t\n")
        assert [(path.name, path.read_text()) for path in made.workspace.iterdir()] == [("notes.md", "as it was\n")]


@pytest.mark.parametrize(
    ("changes", "offered", "problem"),
    [
        ({}, ["shell", "python", "jobs"], ""),
        ({"python": False}, ["shell", "jobs"], ""),
        ({"access": "none"}, [], "Commands (shell and python) are not offered, because agent.workspace_access is none."),
        (
            {"sandbox": SandboxKeys(level="none")},
            ["shell", "python", "jobs"],
            "Commands (shell and python) run unconfined, with all rights of the gateway's user: sandbox.level is none.",
        ),
        (
            {"sandbox": SandboxKeys(level="none"), "access": "ro"},
            [],
            "Commands (shell and python) are not offered: without a sandbox, agent.workspace_access must be rw.",
        ),
    ],
)
async def test_what_is_offered_follows_the_configuration(
    changes: dict[str, Any], offered: list[str], problem: str, tmp_path: Path
) -> None:
    async with commands(tmp_path, msgspec.structs.replace(KEYS, **changes)) as made:
        assert list(made.source.tools()) == offered
        assert made.source.problems() == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("setting", "found", "offered"),
    [
        ("auto", "partial", True),
        ("auto", "none", False),
        ("partial", "partial", True),
        ("partial", "none", False),
        ("full", "full", True),
        ("full", "partial", False),
        ("none", "none", True),
    ],
)
async def test_commands_are_offered_where_the_level_suffices(
    setting: AcceptedLevel, found: Level, offered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def detected() -> SandboxStatus:
        return SandboxStatus(level=found, reason="It is missing.", fix="Install it.")

    monkeypatch.setattr(detection, "detect", detected)
    async with commands(tmp_path, msgspec.structs.replace(KEYS, sandbox=SandboxKeys(level=setting))) as made:
        assert bool(made.source.tools()) is offered
        if not offered:
            assert made.source.problems() == [
                f"Commands (shell and python) are not offered; the sandbox's level is {found}: It is missing. Install it."
            ]


async def test_an_unconfined_command_says_so_where_it_is_approved(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("seen")
    keys = msgspec.structs.replace(KEYS, sandbox=SandboxKeys(level="none"))
    async with commands(tmp_path, keys) as made:
        described = await made.approval("shell", command="cat ../outside")
        assert described.detail == "It runs unconfined, with all rights of the gateway's user."
        assert (await made.run("shell", command="cat ../outside")).text == "seen"


# --- jobs -------------------------------------------------------------------------------------------------------------


async def test_a_job_goes_on_is_shown_and_ends(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        script = "echo one; while ! [ -e go ]; do sleep 0.02; done; echo two; exit 4"
        started = await made.run("shell", command=script, background=True)
        path = started.text.partition("goes to ")[2].rstrip(".")
        assert started.text == f"Started job 1. The tool jobs shows its output, which goes to {path}."
        assert await made.jobs() == f"1: running: {script}"
        async with deadline():
            while (shown := await made.jobs("output", job=1)).endswith("(no new output)"):
                await asyncio.sleep(0.005)
        assert shown == f"1: running: {script}\none\n"
        assert await made.jobs("output", job=1) == f"1: running: {script}\n(no new output)"
        (made.workspace / "go").touch()
        ended = await made.run("jobs", action="output", job=1, wait=60)
        assert ended == ToolOutput(text=f"1: exit code 4: {script}\ntwo\n", exit_code=4)
        assert await made.read(path) == "one\ntwo\n"
        assert await made.jobs() == f"1: exit code 4: {script}"


async def test_a_long_command_is_listed_by_its_beginning(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        await made.run("shell", command=f"echo {'x' * 5000}", background=True)
        await made.run("jobs", action="output", job=1, wait=60)
        assert await made.jobs() == f"1: exit code 0: echo {'x' * 195}…"


async def test_a_job_is_stopped_with_all_its_processes(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        script = "(setsid sleep 1000) & touch begun; sleep 1000"
        await made.run("shell", command=script, background=True)
        await until((made.workspace / "begun").exists)
        assert await made.jobs("stop", job=1) == f"1: stopped: {script}\n(no new output)"
        assert running_below(made.workspace) == []
        assert await made.jobs("stop", job=1) == f"1: stopped: {script}\n(no new output)"


async def test_a_job_is_stopped_when_its_time_is_over(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        await made.run("shell", command="sleep 1000", background=True, timeout=1)
        assert (await made.jobs("output", job=1, wait=60)).startswith("1: stopped after 1 second: sleep 1000\n")
        assert running_below(made.workspace) == []


async def test_jobs_end_with_their_session_and_with_the_gateway(tmp_path: Path) -> None:
    other = msgspec.structs.replace(CALL, session="20261121-130000-bbbbbb")
    async with commands(tmp_path) as made:
        await made.run("shell", command="sleep 1001", background=True)
        made.call = other
        assert await made.jobs() == "There are no jobs."
        with pytest.raises(ToolFailed, match="There is no job 1; jobs: none"):
            await made.jobs("stop", job=1)
        await made.run("python", code="import time; time.sleep(1002)", background=True)
        assert made.source.jobs is not None
        made.source.jobs.end_session(CALL.session)
        await until(lambda: len(running_below(made.workspace)) > 0 and "1001" not in str(running_below(made.workspace)))
        assert "1002" in str(running_below(made.workspace))
    assert running_below(made.workspace) == []


async def test_the_number_of_running_jobs_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "MAX_RUNNING", 2)
    async with commands(tmp_path) as made:
        for _ in range(2):
            await made.run("shell", command="sleep 1000", background=True)
        with pytest.raises(ToolFailed, match="Too many jobs are running: 2 of this session, 2 in all"):
            await made.run("shell", command="sleep 1000", background=True)
        await made.jobs("stop", job=1)
        assert (await made.run("shell", command="sleep 1000", background=True)).text.startswith("Started job 3.")


async def test_a_job_that_cannot_start_is_no_job(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        with pytest.raises(ToolFailed, match="missing is not a folder"):
            await made.run("shell", command="true", folder="missing", background=True)
        assert await made.jobs() == "There are no jobs."


async def test_jobs_that_a_restart_ended_are_said_to_be_gone(tmp_path: Path) -> None:
    async with commands(tmp_path) as made:
        await made.run("shell", command="echo one; sleep 1000", background=True)
        (path,) = (tmp_path / "jobs").glob("*.json")
        content = path.read_bytes()
        outputs = made.workspace / "outputs"
        await until(lambda: outputs.exists() and any(each.stat().st_size for each in outputs.iterdir()))
        (output,) = outputs.iterdir()
    path.write_bytes(content)  # as a killed gateway leaves it
    async with commands(tmp_path) as made:
        what = "1: gone, because the gateway stopped while it ran: echo one; sleep 1000"
        assert await made.jobs() == what
        assert await made.jobs("output", job=1) == f"{what}\nIts output until then is in outputs/{output.name}."
        assert await made.jobs("stop", job=1) == f"{what}\nIts output until then is in outputs/{output.name}."
        assert (await made.run("shell", command="true", background=True)).text.startswith("Started job 2.")
    async with commands(tmp_path) as made:
        assert await made.jobs() == "There are no jobs."
